"""Properties of all losses: shapes, dtypes, reductions, modules, names and error messages."""

from __future__ import annotations

import copy
import pickle
import re

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from shortlist import losses
from shortlist.losses import LossModule, from_name, get_loss, loss_names
from shortlist.losses.registry import loss_entry

LABEL_FUNCTIONS = {"comp_sum": losses.comp_sum, "constrained": losses.constrained}
COST_FUNCTIONS = {
    "comp_sum": losses.cost_sensitive_comp_sum,
    "constrained": losses.cost_sensitive_constrained,
}
FAMILIES = ("comp_sum", "constrained")
NAMES = loss_names()

both_targets = pytest.mark.parametrize("cost_sensitive", [False, True], ids=["labels", "costs"])
every_name = pytest.mark.parametrize("name", NAMES)
every_family = pytest.mark.parametrize("family", FAMILIES)


def example(shape: tuple[int, ...], cost_sensitive: bool) -> tuple[Tensor, Tensor]:
    torch.manual_seed(0)
    scores = 2 * torch.randn(shape)
    return scores, torch.rand(shape) if cost_sensitive else torch.randint(shape[-1], shape[:-1])


def regex(*parts: str) -> str:
    """Return a regular expression that matches the parts in this order."""
    return ".*".join(map(re.escape, parts))


# Shapes, dtypes and reductions


@both_targets
@every_name
@pytest.mark.parametrize("lead", [(), (5,), (3, 5), (2, 3, 4)])
def test_leading_axes_are_independent(name, cost_sensitive, lead):
    scores, target = example((*lead, 4), cost_sensitive)
    loss = from_name(name, cost_sensitive=cost_sensitive, reduction="none")
    actual = loss(scores, target)
    assert actual.shape == lead
    by_row = [
        loss(row, t)
        for row, t in zip(
            scores.reshape(-1, 4),
            target.reshape(-1, 4) if cost_sensitive else target.reshape(-1),
            strict=True,
        )
    ]
    torch.testing.assert_close(actual.reshape(-1), torch.stack(by_row))
    assert actual.min() >= 0
    assert actual.max() > 0


@both_targets
@every_name
def test_reductions(name, cost_sensitive):
    scores, target = example((3, 5, 4), cost_sensitive)
    each, mean, total = (
        from_name(name, cost_sensitive=cost_sensitive, reduction=reduction)(scores, target)
        for reduction in ("none", "mean", "sum")
    )
    torch.testing.assert_close(mean, each.sum() / 15)
    torch.testing.assert_close(total, each.sum())
    assert each.unique().numel() > 1


@both_targets
@every_name
@pytest.mark.parametrize("half", [torch.float16, torch.bfloat16])
def test_half_precision_is_computed_in_float32(name, cost_sensitive, half):
    scores, target = example((5, 4), cost_sensitive)
    scores = scores.to(half).requires_grad_()
    loss = from_name(name, cost_sensitive=cost_sensitive)
    actual = loss(scores, target)
    assert actual.dtype == torch.float32
    assert actual == loss(scores.detach().float(), target)
    actual.backward()
    assert scores.grad.dtype == half
    assert scores.grad.abs().max() > 0


@every_name
def test_half_precision_costs(name):
    scores, costs = example((5, 4), True)
    loss = from_name(name, cost_sensitive=True)
    assert loss(scores, costs.half()) == loss(scores, costs.half().float())


@both_targets
@every_name
def test_dtype_follows_the_scores(name, cost_sensitive):
    scores, target = example((5, 4), cost_sensitive)
    loss = from_name(name, cost_sensitive=cost_sensitive)
    assert loss(scores.double(), target).dtype == torch.float64
    if cost_sensitive:
        assert loss(scores, target.double()).dtype == torch.float32


@every_family
@pytest.mark.parametrize("dtype", [torch.int8, torch.int16, torch.int32, torch.uint8])
def test_any_integer_labels(family, dtype):
    scores, labels = example((5, 4), False)
    loss = LABEL_FUNCTIONS[family]
    assert loss(scores, labels.to(dtype)) == loss(scores, labels)


@every_name
def test_costs_receive_no_gradient(name):
    scores, costs = example((5, 4), True)
    scores.requires_grad_()
    costs.requires_grad_()
    from_name(name, cost_sensitive=True)(scores, costs).backward()
    assert costs.grad is None
    assert scores.grad.abs().max() > 0


@both_targets
@every_name
def test_inputs_are_not_changed(name, cost_sensitive):
    scores, target = example((5, 4), cost_sensitive)
    before = scores.clone(), target.clone()
    from_name(name, cost_sensitive=cost_sensitive)(scores, target)
    assert torch.equal(scores, before[0])
    assert torch.equal(target, before[1])


@both_targets
@every_name
def test_without_validation_nothing_waits_for_the_device(name, cost_sensitive):
    """A meta tensor has no values, so that any access to a value raises an error."""
    scores, target = example((5, 4), cost_sensitive)
    scores, target = scores.to("meta").requires_grad_(), target.to("meta")
    loss = from_name(name, cost_sensitive=cost_sensitive, validate=False)(scores, target)
    loss.backward()
    assert loss.shape == ()
    assert scores.grad.shape == (5, 4)
    with pytest.raises((RuntimeError, NotImplementedError), match="meta"):
        from_name(name, cost_sensitive=cost_sensitive)(scores, target)


@both_targets
@every_name
def test_validation_does_not_change_the_value(name, cost_sensitive):
    scores, target = example((5, 4), cost_sensitive)
    unchecked = from_name(name, cost_sensitive=cost_sensitive, validate=False)
    assert unchecked(scores, target) == from_name(name, cost_sensitive=cost_sensitive)(
        scores, target
    )


@every_name
def test_an_unchecked_nan_cost_gives_a_nan_loss(name):
    scores, costs = example((5, 4), True)
    costs[2, 3] = torch.nan
    loss = from_name(name, cost_sensitive=True, reduction="none", validate=False)(scores, costs)
    assert loss.isnan().tolist() == [False, False, True, False, False]


@both_targets
@every_name
def test_a_nan_score_gives_a_nan_loss(name, cost_sensitive):
    scores, target = example((5, 4), cost_sensitive)
    scores[2, 3] = torch.nan
    loss = from_name(name, cost_sensitive=cost_sensitive, reduction="none")(scores, target)
    assert loss.isnan().tolist() == [False, False, True, False, False]


# Properties of both families


@every_name
def test_a_label_equals_a_cost_of_one_for_all_others(name):
    torch.manual_seed(0)
    scores = 3 * torch.randn(50, 6, dtype=torch.float64)
    labels = torch.randint(6, (50,))
    costs = 1 - torch.nn.functional.one_hot(labels, 6)  # Costs can be integers.
    label_loss, cost_loss = (
        from_name(name, cost_sensitive=cost_sensitive, reduction="none")
        for cost_sensitive in (False, True)
    )
    expected = label_loss(scores, labels)
    assert expected.min() > 0
    rtol = {"comp_sum": 1e-15, "constrained": 0}[get_loss(name).family]
    torch.testing.assert_close(cost_loss(scores, costs), expected, rtol=rtol, atol=0)


@both_targets
@every_name
def test_a_common_shift_does_not_change_the_loss(name, cost_sensitive):
    scores, target = example((7, 5), cost_sensitive)
    scores = scores.double() / 2
    shift = torch.randint(-(2**10), 2**10, (7, 1)).double()
    loss = from_name(name, cost_sensitive=cost_sensitive, reduction="none")
    before = loss(scores, target)
    assert before.min() > 0
    # The shifted scores are rounded to 2e-13.
    tolerance = {
        "comp_sum": {"rtol": 2e-12, "atol": 0},
        "constrained": {"rtol": 0, "atol": 1e-11},
    }[get_loss(name).family]
    torch.testing.assert_close(loss(scores + shift, target), before, **tolerance)


@both_targets
@every_name
def test_permuting_the_classes_permutes_the_gradient(name, cost_sensitive):
    scores, target = example((7, 5), cost_sensitive)
    order = torch.randperm(5)
    position = order.argsort()  # New position of each class.
    permuted_target = target[:, order] if cost_sensitive else position[target]
    scores = scores.double() / 2
    original, permuted = scores.clone().requires_grad_(), scores[:, order].requires_grad_()
    loss = from_name(name, cost_sensitive=cost_sensitive)
    value, permuted_value = loss(original, target), loss(permuted, permuted_target)
    torch.testing.assert_close(permuted_value, value)
    value.backward()
    permuted_value.backward()
    gradient = original.grad.abs()
    is_comp_sum = get_loss(name).family == "comp_sum"
    assert (gradient.min() if is_comp_sum else gradient.max()) > 0
    torch.testing.assert_close(permuted.grad, original.grad[:, order])
    # A loss that does not depend on a common shift has a gradient with sum zero.
    torch.testing.assert_close(original.grad.sum(-1), torch.zeros(7).double(), rtol=0, atol=1e-12)


# Modules and names


@both_targets
@every_name
def test_module_computes_the_function(name, cost_sensitive):
    family = get_loss(name).family
    scores, target = example((5, 4), cost_sensitive)
    function = (COST_FUNCTIONS if cost_sensitive else LABEL_FUNCTIONS)[family]
    module = {
        ("comp_sum", False): losses.CompSumLoss,
        ("comp_sum", True): losses.CostSensitiveCompSumLoss,
        ("constrained", False): losses.ConstrainedLoss,
        ("constrained", True): losses.CostSensitiveConstrainedLoss,
    }[family, cost_sensitive]
    parameter = {"q": 0.3} if family == "comp_sum" else {"rho": 2.5}
    expected = function(scores, target, name, **parameter, reduction="none")
    assert torch.equal(module(name, **parameter, reduction="none")(scores, target), expected)
    by_name = from_name(name, q=0.3, rho=2.5, cost_sensitive=cost_sensitive, reduction="sum")
    assert type(by_name) is module
    assert isinstance(by_name, LossModule)
    assert isinstance(by_name, nn.Module)
    assert by_name(scores, target) == function(scores, target, name, **parameter, reduction="sum")
    if loss_entry(name).parameter is not None:  # The parameter has an effect.
        assert not torch.equal(function(scores, target, name, reduction="none"), expected)


@both_targets
@every_name
def test_pickle_and_copy(name, cost_sensitive):
    scores, target = example((5, 4), cost_sensitive)
    loss = from_name(
        name, q=0.3, rho=2.5, cost_sensitive=cost_sensitive, reduction="sum", validate=False
    )
    for copied in (pickle.loads(pickle.dumps(loss)), copy.deepcopy(loss)):
        assert repr(copied) == repr(loss)
        assert copied(scores, target) == loss(scores, target)
        assert copied.validate is False


def test_repr():
    assert repr(losses.CompSumLoss()) == "CompSumLoss('log', reduction='mean')"
    assert repr(losses.CostSensitiveCompSumLoss("gce", q=0.25, reduction="none")) == (
        "CostSensitiveCompSumLoss('gce', q=0.25, reduction='none')"
    )
    assert repr(losses.ConstrainedLoss(validate=False)) == (
        "ConstrainedLoss('constrained_exp', reduction='mean', validate=False)"
    )
    assert repr(losses.CostSensitiveConstrainedLoss("margin", rho=3.0)) == (
        "CostSensitiveConstrainedLoss('margin', rho=3.0, reduction='mean')"
    )


def test_names_of_the_paper_come_first():
    assert loss_names("comp_sum")[:4] == ("log", "exp", "gce", "mae")
    constrained = ("constrained_exp", "squared_hinge", "hinge", "margin")
    assert loss_names("constrained")[:4] == constrained


@both_targets
@every_name
def test_bounded_gradient_agrees_with_the_gradient(name, cost_sensitive):
    loss = from_name(name, cost_sensitive=cost_sensitive, reduction="sum")
    target = torch.tensor([[1.0, 0.0]]) if cost_sensitive else torch.tensor([1])
    slopes = []
    for gap in (10.0, 40.0):
        scores = torch.tensor([[gap, -gap]], requires_grad=True)
        loss(scores, target).backward()
        slopes.append(scores.grad.abs().max().item())
    assert loss.bounded_gradient == (slopes[1] <= 2 * slopes[0])


# Error messages


@every_family
def test_the_error_for_an_unknown_loss_lists_the_family(family):
    scores, labels = example((5, 4), False)
    known = loss_names(family)
    message = regex("loss must be", repr(known[0]), repr(known[-1]), f"got '{known[1]}s'", "mean")
    for call in (
        lambda: LABEL_FUNCTIONS[family](scores, labels, f"{known[1]}s"),
        lambda: COST_FUNCTIONS[family](scores, scores.sigmoid(), loss=f"{known[1]}s"),
    ):
        with pytest.raises(ValueError, match=message):
            call()


@pytest.mark.parametrize(
    ("module", "arguments", "message"),
    [
        (losses.CompSumLoss, {"loss": "hinge"}, regex("loss must be", "'gce'", "got 'hinge'")),
        (losses.ConstrainedLoss, {"loss": "gce"}, regex("loss must be", "'margin'", "got 'gce'")),
        (losses.CostSensitiveCompSumLoss, {"q": 1.0}, regex("q=1.0", "between 0 and 1")),
        (losses.CompSumLoss, {"q": 0}, regex("q=0", "between 0 and 1")),
        (losses.CompSumLoss, {"q": float("nan")}, regex("q=nan", "between 0 and 1")),
        (losses.ConstrainedLoss, {"rho": 0.0}, regex("rho=0.0", "above 0")),
        (losses.CostSensitiveConstrainedLoss, {"rho": -2}, regex("rho=-2", "above 0")),
        (losses.ConstrainedLoss, {"rho": float("inf")}, regex("rho=inf", "finite")),
        (
            losses.ConstrainedLoss,
            {"reduction": "avg"},
            regex("reduction must be", "'mean'", "got 'avg'"),
        ),
        (losses.CompSumLoss, {"reduction": "means"}, regex("'means'", "did you mean 'mean'?")),
    ],
)
def test_modules_check_their_arguments_at_construction(module, arguments, message):
    with pytest.raises(ValueError, match=message):
        module(**arguments)


def test_functions_check_their_parameters():
    scores, labels = example((5, 4), False)
    with pytest.raises(ValueError, match=regex("q=1.5")):
        losses.comp_sum(scores, labels, q=1.5)
    with pytest.raises(ValueError, match=regex("rho=-1.0")):
        losses.constrained(scores, labels, rho=-1.0)
    with pytest.raises(TypeError, match=regex("q='0.7'", "str")):
        losses.comp_sum(scores, labels, q="0.7")
    assert losses.comp_sum(scores, labels, "gce", q=np.float64(0.7)) > 0


def test_the_error_for_an_unknown_name_lists_all_names_and_suggests_one():
    with pytest.raises(
        ValueError, match=regex("got 'squared-hinge'", "mean 'squared_hinge'?")
    ) as e:
        from_name("squared-hinge", cost_sensitive=True)
    assert all(repr(name) in str(e.value) for name in NAMES)
    with pytest.raises(ValueError, match=regex("'log'", "got 7")):
        from_name(7, cost_sensitive=False)


@every_family
def test_arrays_are_rejected(family):
    scores, labels = example((5, 4), False)
    with pytest.raises(
        TypeError, match=regex("scores is a numpy.ndarray", "torch.as_tensor(scores)")
    ):
        LABEL_FUNCTIONS[family](scores.numpy(), labels)
    with pytest.raises(TypeError, match=regex("labels is a list", "torch.as_tensor(labels)")):
        LABEL_FUNCTIONS[family](scores, labels.tolist())
    with pytest.raises(
        TypeError, match=regex("costs is a numpy.ndarray", "torch.as_tensor(costs)")
    ):
        COST_FUNCTIONS[family](scores, scores.numpy())


@every_family
@pytest.mark.parametrize("validate", [False, True])
def test_dtypes_are_checked(family, validate):
    scores, labels = example((5, 4), False)
    options = {"validate": validate}
    with pytest.raises(TypeError, match=regex("scores are torch.int64", "scores.float()")):
        LABEL_FUNCTIONS[family](scores.long(), labels, **options)
    for wrong in (labels.float(), labels.bool()):
        with pytest.raises(TypeError, match=regex(f"labels are {wrong.dtype}", "labels.long()")):
            LABEL_FUNCTIONS[family](scores, wrong, **options)
    with pytest.raises(TypeError, match=regex("costs are torch.complex64", "real")):
        COST_FUNCTIONS[family](scores, scores + 0j, **options)


@every_family
@pytest.mark.parametrize("validate", [False, True])
def test_shapes_are_checked(family, validate):
    scores, labels = example((5, 4), False)
    options = {"validate": validate}
    with pytest.raises(ValueError, match=regex("labels", "(3,)", "(5, 4)", "must have shape (5,)")):
        LABEL_FUNCTIONS[family](scores, labels[:3], **options)
    with pytest.raises(ValueError, match=regex("costs", "(5, 3)", "(5, 4)")):
        COST_FUNCTIONS[family](scores, scores[:, :3], **options)
    with pytest.raises(ValueError, match=regex("shape ()", "at least 2")):
        LABEL_FUNCTIONS[family](torch.tensor(1.0), torch.tensor(0), **options)
    with pytest.raises(ValueError, match=regex("shape (5, 1)", "at least 2")):
        LABEL_FUNCTIONS[family](scores[:, :1], torch.zeros(5).long(), **options)
    with pytest.raises(ValueError, match=regex("shape (5, 0)", "at least 1")):
        COST_FUNCTIONS[family](scores[:, :0], scores[:, :0], **options)
    with pytest.raises(ValueError, match=regex("labels are on meta", "cpu")):
        LABEL_FUNCTIONS[family](scores, labels.to("meta"), **options)


@every_family
@pytest.mark.parametrize("wrong", [-1, 4, 100])
def test_labels_out_of_range(family, wrong):
    scores, labels = example((2, 5, 4), False)
    labels[1, 3] = wrong
    with pytest.raises(ValueError, match=regex(f"labels[1, 3] = {wrong} ", "from 0 to 3")):
        LABEL_FUNCTIONS[family](scores, labels)
    with pytest.raises(ValueError, match=regex(f"labels = {wrong} ", "from 0 to 3")):
        LABEL_FUNCTIONS[family](scores[1, 3], labels[1, 3])


@every_family
@pytest.mark.parametrize("wrong", [-0.25, 1.5, float("nan"), float("inf")])
def test_costs_out_of_range(family, wrong):
    scores, costs = example((5, 4), True)
    costs[3, 2] = wrong
    message = regex(
        f"costs[3, 2] = {wrong} ", "[0, 1]", "divide by 1 + cost_weight * cost(largest size)"
    )
    with pytest.raises(ValueError, match=message):
        COST_FUNCTIONS[family](scores, costs)
