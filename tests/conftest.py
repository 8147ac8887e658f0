"""Settings for all tests."""

import os

import pytest

# Before torch is loaded: threads that spin while they wait make small steps many times slower
# where cores are shared with anything else.
os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")
if "PYTEST_XDIST_WORKER" in os.environ:  # several processes share the cores: a thread for each
    os.environ.setdefault("OMP_NUM_THREADS", "1")

LONGEST = (
    "tests/ray/test_ray_fit.py",
    "tests/test_benchmarks.py",
    "tests/ray/test_ray_predict.py",
    "tests/test_larger_than_memory.py",
    "tests/test_documents.py",
    "tests/cli/test_cli.py",
    "tests/learning/test_process_group.py",
    "tests/ray/",
)
"""Files that take longest. They run first, so that no process waits for one of them at the end."""


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Put the files that take longest first; the order within a file stays."""

    def place(item: pytest.Item) -> int:
        matching = (k for k, name in enumerate(LONGEST) if item.nodeid.startswith(name))
        return next(matching, len(LONGEST))

    items.sort(key=place)


@pytest.fixture
def few_epochs(monkeypatch: pytest.MonkeyPatch) -> None:
    """End each training after three epochs, where the quality of a model does not matter."""
    from shortlist.learning.training import TrainingRun

    needs_another = TrainingRun.should_continue

    def should_continue(run: TrainingRun) -> bool:
        return len(run.history) < 3 and needs_another(run)

    monkeypatch.setattr(TrainingRun, "should_continue", should_continue)
