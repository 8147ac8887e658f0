"""Progress bars: shown on a terminal only."""

from __future__ import annotations

import sys

import numpy as np
import pytest

from shortlist._utils import progress
from shortlist._utils.progress import track


def count(show: object) -> None:
    with track("counting", 2, show) as step:  # type: ignore[arg-type]
        step("first")
        step("second")


@pytest.fixture
def shown_immediately(monkeypatch: pytest.MonkeyPatch) -> None:
    """Simulate a terminal, and show bars without a delay."""
    monkeypatch.setattr(progress, "SHOW_AFTER_S", -1.0)
    monkeypatch.setenv("FORCE_COLOR", "1")  # Rich treats the captured stream as a terminal.
    monkeypatch.setenv("TERM", "xterm")


@pytest.mark.usefixtures("shown_immediately")
def test_a_bar_shows_description_note_and_count(capsys: pytest.CaptureFixture[str]) -> None:
    count(True)
    out, err = capsys.readouterr()
    assert "counting" in err
    assert "second" in err
    assert "2/2" in err
    assert out == ""  # Stdout is for results.


@pytest.mark.usefixtures("shown_immediately")
def test_a_nested_task_has_a_second_bar(capsys: pytest.CaptureFixture[str]) -> None:
    with track("outer", 2, True) as step:
        for name in ("a", "b"):
            with track(f"inner {name}", 3, True) as turn:
                for i in range(3):
                    turn(f"{name}{i}")
            step(name)
    err = capsys.readouterr().err
    for shown in ("outer", "inner a", "inner b", "2/2"):
        assert shown in err
    assert err.count("\x1b[?25l") == 1  # A second display would overwrite the first.
    count(True)  # The next task has its own display.
    assert "counting" in capsys.readouterr().err


@pytest.mark.usefixtures("shown_immediately")
@pytest.mark.parametrize("show", [False, 0, np.False_, "auto"])
def test_no_bar_is_shown(show: object, capsys: pytest.CaptureFixture[str]) -> None:
    count(show)  # The captured stream is not a terminal.
    assert capsys.readouterr() == ("", "")


def test_a_short_task_shows_no_bar(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FORCE_COLOR", "1")
    count(True)
    assert capsys.readouterr() == ("", "")


@pytest.mark.usefixtures("shown_immediately")
def test_a_task_that_raises_restores_the_terminal(capsys: pytest.CaptureFixture[str]) -> None:
    def fail() -> None:
        with track("counting", 2, True) as step:
            step("first")
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        fail()
    assert "\x1b[?25h" in capsys.readouterr().err  # The cursor is visible again.


def test_without_rich_auto_is_silent_and_true_says_what_to_install(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "rich", None)
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True)
    count("auto")
    assert capsys.readouterr() == ("", "")
    with pytest.raises(ImportError, match=r"pip install 'shortlist\[cli\]'"):
        count(True)


def test_an_invalid_option_raises() -> None:
    with pytest.raises(ValueError, match="got 'sometimes'"):
        count("sometimes")
