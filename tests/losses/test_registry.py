"""Losses that are registered from outside the package work everywhere."""

from __future__ import annotations

import dataclasses
import math
import pickle
from collections.abc import Iterator

import numpy as np
import pytest
import torch
from loss_definitions import DEFINITIONS

import shortlist as sl
from shortlist import theory
from shortlist.losses import (
    Bound,
    Parameter,
    SurrogateLoss,
    UnknownFactError,
    get_loss,
    loss_names,
    register_loss,
    unregister_loss,
)

FOCAL = SurrogateLoss(
    name="own_focal",
    family="comp_sum",
    phi=lambda t: (1 - torch.exp(-t)) ** 2 * t,
    bounded_gradient=True,
)
CUBIC = SurrogateLoss(
    name="own_cubic",
    family="constrained",
    phi=lambda r: (1 + r).clamp(min=0) ** 3,
    bounded_gradient=False,
)


def power_margin(rho: float) -> SurrogateLoss:
    return SurrogateLoss(
        name="own_power",
        family="constrained",
        phi=lambda r: (1 + r).clamp(min=0) ** rho,
        bounded_gradient=False,
    )


@pytest.fixture(autouse=True)
def _registered_losses() -> Iterator[None]:
    register_loss(FOCAL)
    register_loss(CUBIC)
    register_loss(power_margin, parameter=Parameter("rho", 0.5, 4.0))
    yield
    for name in set(loss_names()) - set(DEFINITIONS):
        unregister_loss(name)


def test_every_registered_loss_has_a_reference_definition() -> None:
    own = {"own_focal", "own_cubic", "own_power"}
    missing = set(loss_names()) - own - set(DEFINITIONS)
    assert not missing, f"add these to tests/loss_definitions.py: {missing}"


# Functions and modules


def test_functions_and_modules_accept_its_name() -> None:
    scores = torch.tensor([[2.0, 0.0, -1.0], [0.0, 1.0, 0.0]], dtype=torch.float64)
    labels = torch.tensor([0, 2])
    costs = 1 - torch.nn.functional.one_hot(labels, 3)
    s = torch.softmax(scores, dim=1)[[0, 1], labels]
    expected = (1 - s) ** 2 * -s.log()
    loss = sl.losses.comp_sum(scores, labels, "own_focal", reduction="none")
    torch.testing.assert_close(loss, expected)
    by_cost = sl.losses.CostSensitiveCompSumLoss("own_focal", reduction="none")
    torch.testing.assert_close(by_cost(scores, costs), expected)
    module = sl.losses.from_name("own_cubic", cost_sensitive=False)
    centered = scores - scores.mean(dim=1, keepdim=True)
    wrong = (1 + centered).clamp(min=0).pow(3) * costs
    torch.testing.assert_close(module(scores, labels), wrong.sum(dim=1).mean())
    assert repr(module) == "ConstrainedLoss('own_cubic', reduction='mean')"
    assert torch.equal(pickle.loads(pickle.dumps(module))(scores, labels), module(scores, labels))


def test_its_parameter_is_passed_and_checked() -> None:
    scores, labels = torch.tensor([[2.0, 0.0, -1.0]]), torch.tensor([1])
    module = sl.losses.ConstrainedLoss("own_power", rho=3.0)
    assert repr(module) == "ConstrainedLoss('own_power', rho=3.0, reduction='mean')"
    assert module(scores, labels) == sl.losses.constrained(scores, labels, "own_cubic")
    with pytest.raises(ValueError, match=r"rho=4.0 is out of range.*between 0.5 and 4"):
        sl.losses.ConstrainedLoss("own_power", rho=4.0)


# Training


@pytest.mark.parametrize(
    ("loss", "rho"), [("own_focal", 1.0), ("own_cubic", 1.0), ("own_power", 2.0)]
)
def test_estimators_train_with_it_by_name(loss, rho) -> None:
    data = sl.datasets.digits()
    h = sl.LinearClassifier(loss=loss, rho=rho, max_epochs=10).fit(data.x[:800], data.y[:800])
    assert h.score(data.x[1200:], data.y[1200:]) > 0.85
    scores = h.decision_function(data.x)
    selector = sl.CardinalitySelector(loss=loss, rho=rho, cost_weight=0.05, max_epochs=10)
    selector.fit(scores[800:1200], data.y[800:1200], data.x[800:1200])
    sets = selector.predict_set(scores[1200:], features=data.x[1200:])
    assert sets.accuracy(data.y[1200:]) > 0.85
    with pytest.raises(AttributeError) as error:
        h.predict_proba(data.x)
    assert f"{loss!r} loss does not determine probabilities" in str(error.value.__cause__)
    assert not hasattr(sl.LinearClassifier(loss="nothing"), "predict_proba")


def test_a_model_trained_with_it_is_saved_by_name(tmp_path) -> None:
    data = sl.datasets.digits()
    h = sl.LinearClassifier(loss="own_focal", max_epochs=1).fit(data.x[:300], data.y[:300])
    h.save(tmp_path / "h")
    loaded = sl.load(tmp_path / "h")
    assert loaded.loss == "own_focal"
    np.testing.assert_array_equal(loaded.predict(data.x), h.predict(data.x))


def test_training_clips_only_unbounded_gradients() -> None:
    from shortlist.learning.settings import training_settings

    for loss, clipped in (("own_focal", False), ("own_cubic", True)):
        module = sl.losses.from_name(loss, cost_sensitive=False)
        assert (
            training_settings(sl.LinearClassifier(loss=loss), module).clip_norm is None
        ) != clipped


# Facts


NEEDS_FACT = {
    "infimum": lambda x: theory.surrogate_infimum(x, [0.5, 0.5]),
    "psi": lambda x: theory.psi(x, 0.5),
    "psi_inverse": lambda x: theory.realizable_bound(x, 0.1, n=3),
    "largest_value": lambda x: theory.loss_bound(x, n=3),
    "lipschitz": lambda x: theory.rademacher_linear(x, m=10, n=3, norm=1.0, radius=1.0),
    "published_cost_sensitive_bound": lambda x: theory.gamma(x, 0.1),
    "cost_sensitive_bound": lambda x: theory.cost_sensitive_bound(x, 0.1, members=3),
    "published_top_k_bound": lambda x: theory.top_k_bound(x, 0.1, n=3, k=2, published=True),
    "top_k_bound": lambda x: theory.rate(x, n=3, k=1),
}


@pytest.mark.parametrize("fact", NEEDS_FACT)
@pytest.mark.parametrize("loss", ["own_focal", "own_cubic"])
def test_an_unknown_fact_raises_an_error_that_names_fact_and_loss(loss, fact) -> None:
    with pytest.raises(UnknownFactError, match=f"'{fact}' of the loss '{loss}' is not known"):
        NEEDS_FACT[fact](loss)
    assert not get_loss(loss).knows(fact)


def test_theorems_use_the_facts_that_the_record_has() -> None:
    register_loss(
        dataclasses.replace(
            FOCAL,
            name="quartic",
            psi=lambda t, n: t**4 / n,
            infimum=lambda w: float(w.min()),
            lipschitz=lambda n, largest: 3.0,
            top_k_bound=Bound.power("(m R)^(1/4)", lambda n, m: m**0.25, lambda n: 0.25),
            cost_sensitive_bound=Bound.power("3 R", lambda n, m: 3.0, lambda n: 1.0),
        )
    )
    for regret in (1e-200, 1e-30, 1e-3, 0.1):
        t = theory.psi_inverse("quartic", regret, n=5)
        assert t == pytest.approx((5 * regret) ** 0.25, rel=1e-9, abs=0)
    assert theory.psi_inverse("quartic", 0.3, n=5) == 1
    assert theory.surrogate_infimum("quartic", [0.7, 0.3]) == 0.3
    assert theory.lipschitz("quartic", n=4) == 3
    assert theory.top_k_bound("quartic", 1e-8, n=9, k=4) == pytest.approx(4e-8**0.25)
    assert theory.top_k_bound("quartic", 1e-8, n=9, k=1) == pytest.approx(0.01)
    assert theory.rate("quartic", n=9, k=4) == (pytest.approx(math.sqrt(2)), 0.25)
    assert theory.cost_sensitive_bound("quartic", 0.1, members=5) == pytest.approx(0.3)
    with pytest.raises(UnknownFactError, match="'published_cost_sensitive_bound' of the loss"):
        theory.cost_sensitive_bound("quartic", 0.1, members=5, published=True)


def test_a_psi_that_cancels_is_not_inverted() -> None:
    register_loss(dataclasses.replace(FOCAL, name="cancels", psi=lambda t, n: math.cosh(t) - 1))
    with pytest.raises(ValueError, match=r"psi\(1e-09, 5\) = 0 is not precise.*math.expm1"):
        theory.psi_inverse("cancels", 0.1, n=5)


def test_its_bounds_are_among_the_statements_that_verify_tests() -> None:
    log = get_loss("log")
    register_loss(dataclasses.replace(log, name="my_log", label="my log"))
    names = {(s.theorem, s.form) for s in theory.statements.statements() if s.loss == "my_log"}
    assert names == {
        ("top-k", "published"),
        ("top-k", "corrected"),
        ("cost-sensitive", "published"),
    }
    assert not [s for s in theory.statements.statements() if s.loss == "own_focal"]


def test_a_sharper_bound_is_a_statement_of_its_own() -> None:
    one = Bound.power("R", lambda n, m: 1.0, lambda n: 1.0)
    register_loss(dataclasses.replace(get_loss("log"), name="my_log", cost_sensitive_bound=one))
    forms = {
        (s.form, s.bound)
        for s in theory.statements.statements()
        if s.loss == "my_log" and s.theorem == "cost-sensitive"
    }
    assert forms == {("published", "2 sqrt(R)"), ("sharper", "R")}


# The registry


def test_a_name_can_be_registered_once_unless_replaced() -> None:
    with pytest.raises(ValueError, match="loss 'own_focal' is registered"):
        register_loss(FOCAL)
    register_loss(dataclasses.replace(FOCAL, bounded_gradient=False), replace=True)
    assert not get_loss("own_focal").bounded_gradient
    unregister_loss("own_focal")
    with pytest.raises(ValueError, match=r"loss must be one of 'log'.*got 'own_focal'"):
        sl.losses.CompSumLoss("own_focal")
    with pytest.raises(ValueError, match="got 'own_focal'"):
        unregister_loss("own_focal")


def test_registered_losses_are_listed_with_their_family() -> None:
    assert loss_names("comp_sum")[-1] == "own_focal"
    assert loss_names("constrained")[-2:] == ("own_cubic", "own_power")
    assert set(loss_names()) == {*loss_names("comp_sum"), *loss_names("constrained")}
    with pytest.raises(ValueError, match="family must be one of"):
        loss_names("max")


@pytest.mark.parametrize(
    ("loss", "parameter", "error"),
    [
        (torch.exp, None, TypeError),
        ("own_focal", None, TypeError),
        (FOCAL, Parameter("q", 0, 1), TypeError),
        (power_margin, Parameter("q", 0, 4), ValueError),
    ],
)
def test_invalid_losses_are_rejected(loss, parameter, error) -> None:
    with pytest.raises(error, match=r"SurrogateLoss|parameter"):
        register_loss(loss, parameter=parameter)


@pytest.mark.parametrize("arguments", [("q", 0, 0.5), ("rho", 1.0, 2.0), ("tau", 0, 1)])
def test_a_parameter_needs_a_family_name_and_an_interval_with_its_default(arguments) -> None:
    with pytest.raises(ValueError, match=arguments[0]):
        Parameter(*arguments)


@pytest.mark.parametrize("change", [{"name": ""}, {"name": 3}, {"family": "max"}])
def test_invalid_records_are_rejected(change) -> None:
    with pytest.raises(ValueError, match=next(iter(change))):
        dataclasses.replace(FOCAL, **change)
