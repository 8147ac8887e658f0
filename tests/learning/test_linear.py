"""The linear classifier: its losses, and probabilities if the loss determines them."""

from __future__ import annotations

import pickle
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from sklearn.base import clone
from sklearn.exceptions import NotFittedError
from sklearn.utils.estimator_checks import parametrize_with_checks

import shortlist as sl
from shortlist.learning import linear
from shortlist.losses import loss_names

DIGITS = sl.datasets.digits()
POSTERIOR = np.array([[0.7, 0.2, 0.1], [0.1, 0.3, 0.6], [0.25, 0.5, 0.25]])


# Some checks need an accuracy of 0.83, for which these epochs are enough.
@parametrize_with_checks([sl.LinearClassifier(max_epochs=10, learning_rate=0.01)])
def test_scikit_learns_own_checks(
    estimator: sl.LinearClassifier, check: Callable[[sl.LinearClassifier], None]
) -> None:
    check(estimator)


@pytest.mark.parametrize("loss", loss_names())
def test_every_loss_learns_digits(loss: str) -> None:
    h = sl.LinearClassifier(loss, learning_rate=0.003, max_epochs=12)
    h.fit(DIGITS.x[:1200], DIGITS.y[:1200])
    # The gradient of the margin loss is zero where a wrong label has the highest score, and the
    # hinge loss separates few of ten classes with linear scores.
    min_accuracy = {"margin": 0.3, "hinge": 0.75}.get(loss, 0.85)
    assert h.score(DIGITS.x[1200:], DIGITS.y[1200:]) > min_accuracy


def data_with_posterior(
    posterior: NDArray[np.float64],
) -> tuple[NDArray[np.float64], NDArray[np.int64]]:
    """Return rows whose labels have exactly these frequencies."""
    inputs, labels = posterior.shape
    counts = np.rint(100 * posterior).astype(int)
    x = np.repeat(np.eye(inputs), counts.sum(axis=1), axis=0)
    y = np.concatenate([np.repeat(np.arange(labels), row) for row in counts])
    return x, y


@pytest.mark.parametrize(
    "posterior", [POSTERIOR, POSTERIOR[:, :2] / POSTERIOR[:, :2].sum(1)[:, None]]
)
@pytest.mark.parametrize(("loss", "q"), [("log", 0.7), ("exp", 0.7), ("gce", 0.7), ("gce", 0.3)])
def test_probabilities_are_the_true_posterior(
    loss: str, q: float, posterior: NDArray[np.float64]
) -> None:
    x, y = data_with_posterior(np.rint(100 * posterior) / 100)
    h = sl.LinearClassifier(
        loss,
        q=q,
        learning_rate=0.1,
        batch_size=len(x),
        max_epochs=20,
        validation_fraction=0.0,
        weight_decay=0.0,
        clip_norm=None,
    ).fit(x, y)
    result = h.predict_proba(np.eye(len(posterior)))
    np.testing.assert_allclose(result, np.rint(100 * posterior) / 100, atol=0.01)
    np.testing.assert_allclose(result.sum(axis=1), 1, rtol=1e-6)


@pytest.mark.parametrize("loss", ["mae", "constrained_exp", "squared_hinge", "hinge", "margin"])
def test_other_losses_have_no_predict_proba(loss: str) -> None:
    h = sl.LinearClassifier(loss)
    assert not hasattr(h, "predict_proba")
    with pytest.raises(AttributeError) as caught:
        _ = h.predict_proba
    message = f"{caught.value} {caught.value.__cause__}"
    assert repr(loss) in message
    assert "decision_function" in message


@pytest.mark.parametrize("scale", [1.0, 1000.0])
def test_coefficients_apply_to_unscaled_features(scale: float) -> None:
    x = (DIGITS.x * scale + 3).astype(np.float64)
    h = sl.LinearClassifier(max_epochs=3).fit(x, DIGITS.y)
    np.testing.assert_allclose(h.decision_function(x), x @ h.coef_.T + h.intercept_, atol=1e-9)
    assert h.coef_.shape == (10, 64)
    assert h.intercept_.shape == (10,)
    # The scale of the features does not change the classifier.
    plain = sl.LinearClassifier(max_epochs=3).fit(DIGITS.x.astype(np.float64), DIGITS.y)
    np.testing.assert_allclose(
        h.decision_function(x), plain.decision_function(DIGITS.x.astype(np.float64)), atol=1e-3
    )


def test_two_classes_have_one_decision_value() -> None:
    two = DIGITS[np.flatnonzero(DIGITS.y < 2)]
    h = sl.LinearClassifier(max_epochs=20).fit(two.x, two.y)
    values = h.decision_function(two.x)
    assert values.shape == (len(two),)
    assert ((values > 0) == (h.predict(two.x) == 1)).all()
    np.testing.assert_allclose(
        h.predict_proba(two.x)[:, 1], 1 / (1 + np.exp(-values)), rtol=1e-4, atol=1e-6
    )


def test_tensors_give_tensors() -> None:
    x, y = torch.from_numpy(DIGITS.x), torch.from_numpy(DIGITS.y)
    h = sl.LinearClassifier(max_epochs=3).fit(x, y)
    numpy_fit = sl.LinearClassifier(max_epochs=3).fit(DIGITS.x, DIGITS.y)
    for method in ("decision_function", "predict", "predict_proba"):
        out = getattr(h, method)(x)
        assert isinstance(out, torch.Tensor)
        assert np.array_equal(out.numpy(), getattr(numpy_fit, method)(DIGITS.x))
        assert isinstance(getattr(h, method)(DIGITS.x), np.ndarray)
    names = np.array([f"digit {i}" for i in range(10)])
    named = sl.LinearClassifier(max_epochs=3).fit(x, names[DIGITS.y].tolist())
    assert named.predict(x[:3]).tolist() == names[h.predict(x[:3]).numpy()].tolist()


@pytest.mark.parametrize("dtype", [np.float16, np.float32, np.float64, np.int64, np.uint8])
def test_features_of_every_type(dtype: type[np.number]) -> None:
    x = (DIGITS.x * 16).astype(dtype)
    h = sl.LinearClassifier(max_epochs=5).fit(x[:1200], DIGITS.y[:1200])
    assert h.score(x[1200:], DIGITS.y[1200:]) > 0.8
    wide = dtype in (np.float64, np.int64, np.uint8)
    assert h.decision_function(x).dtype == (np.float64 if wide else np.float32)


def test_the_same_seed_gives_the_same_classifier() -> None:
    state = torch.get_rng_state()
    first, again, other = (
        sl.LinearClassifier(max_epochs=2, random_state=s).fit(DIGITS.x, DIGITS.y) for s in (0, 0, 1)
    )
    assert np.array_equal(first.coef_, again.coef_)
    assert not np.array_equal(first.coef_, other.coef_)
    assert torch.equal(torch.get_rng_state(), state)


def test_pickle_and_clone() -> None:
    h = sl.LinearClassifier("hinge", max_epochs=2).fit(DIGITS.x, DIGITS.y)
    loaded = pickle.loads(pickle.dumps(h))
    assert np.array_equal(loaded.predict(DIGITS.x), h.predict(DIGITS.x))
    with pytest.raises(NotFittedError):
        clone(h).predict(DIGITS.x)


def test_an_interrupted_fit_is_unfitted_until_it_is_resumed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "h.ckpt"
    whole = sl.LinearClassifier("exp", max_epochs=4).fit(DIGITS.x, DIGITS.y)
    h = sl.LinearClassifier("exp", max_epochs=4, checkpoint=path)
    original, calls = linear.from_name, []

    def interrupted(*args: object, **kwargs: object) -> torch.nn.Module:
        loss = original(*args, **kwargs)  # type: ignore[arg-type]

        def count(*_: object) -> None:
            calls.append(1)
            if len(calls) == 40:
                raise KeyboardInterrupt

        loss.register_forward_pre_hook(count)
        return loss

    monkeypatch.setattr(linear, "from_name", interrupted)
    with pytest.raises(KeyboardInterrupt):
        h.fit(DIGITS.x, DIGITS.y)
    assert path.exists()
    with pytest.raises(NotFittedError):
        h.predict(DIGITS.x)
    with pytest.raises(ValueError, match="another training"):
        clone(h).set_params(loss="log").fit(DIGITS.x, DIGITS.y)
    monkeypatch.undo()
    h.fit(DIGITS.x, DIGITS.y)
    assert not path.exists()
    assert np.array_equal(h.coef_, whole.coef_)
    assert h.history_.loss == whole.history_.loss


def test_the_default_dtype_of_torch_has_no_effect() -> None:
    before = torch.get_default_dtype()
    torch.set_default_dtype(torch.float64)
    try:
        double = sl.LinearClassifier(max_epochs=2).fit(DIGITS.x, DIGITS.y)
    finally:
        torch.set_default_dtype(before)
    single = sl.LinearClassifier(max_epochs=2).fit(DIGITS.x, DIGITS.y)
    assert np.array_equal(double.coef_, single.coef_)
