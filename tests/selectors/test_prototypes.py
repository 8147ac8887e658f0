"""Class means: cosines without a row's own label. Mixtures: distributions, fitted to labels."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from torch import Tensor

from shortlist.networks import Standardize
from shortlist.selectors._prototypes import Mixture, Prototypes

Floats = NDArray[np.float64]
Rows = tuple[Tensor, Tensor, Tensor]
ALONE = Mixture(0.0, 1.0, 1.0)
"""The networks without a second opinion."""


def rows(n: int = 60, n_classes: int = 5, width: int = 3, members: int = 3, seed: int = 0) -> Rows:
    """Features round their class's own place, labels, and folds."""
    rng = np.random.default_rng(seed)
    y = rng.integers(n_classes, size=n)
    x = 2 * rng.normal(size=(n_classes, width))[y] + rng.normal(size=(n, width))
    x = x * rng.uniform(0.1, 50, size=width) + rng.normal(scale=20, size=width)
    folds = torch.from_numpy(rng.permutation(n) % members)
    return torch.from_numpy(x), torch.from_numpy(y), folds


def prototypes(x: Tensor, y: Tensor, folds: Tensor, n_classes: int = 5) -> Prototypes:
    return Prototypes.of(Standardize.of(x), x, y, n_classes, folds)


def directions(x: Floats, of: Floats) -> Floats:
    deviation = of.std(axis=0)
    z = (x - of.mean(axis=0)) / np.where(deviation > 0, deviation, 1)
    length = np.linalg.norm(z, axis=1, keepdims=True)
    return z / np.where(length > 0, length, 1)


def one_by_one(new: Floats, x: Floats, y: NDArray[np.int64], used: Floats, n: int) -> Floats:
    """Cosines of new rows to each class's mean over the rows that are used; 0 if there are none."""
    found = np.zeros((len(new), n))
    for k in range(n):
        members = directions(x, x)[(y == k) & used]
        if len(members):
            mean = members.mean(axis=0)
            length = np.linalg.norm(mean)
            found[:, k] = directions(new, x) @ mean / (length if length > 0 else 1)
    return found


# Cosines


@pytest.mark.parametrize("seed", range(6))
def test_cosines_are_those_of_class_means_taken_one_by_one(seed: int) -> None:
    n_classes, width, members = 3 + seed, 1 + seed % 4, 2 + seed % 3
    x, y, folds = rows(12 * n_classes, n_classes, width, members, seed)
    model = prototypes(x, y, folds, n_classes)
    given = x.numpy(), y.numpy()
    new = rows(20, n_classes, width, seed=seed + 50)[0]
    everyone = np.ones(len(y), dtype=bool)
    found = model.cosines(new)
    assert found.dtype == torch.float32
    expected = one_by_one(new.numpy(), *given, everyone, n_classes)
    np.testing.assert_allclose(found, expected, atol=1e-5)
    found = model.cosines(x, folds)
    for fold in range(members):
        own = (folds == fold).numpy()
        expected = one_by_one(x.numpy()[own], *given, ~own, n_classes)
        np.testing.assert_allclose(found[torch.from_numpy(own)], expected, atol=1e-5)
    assert not np.allclose(found, model.cosines(x), atol=1e-3)


def test_a_fold_may_come_in_parts_and_alone() -> None:
    x, y, folds = rows()
    model = prototypes(x, y, folds)
    found = model.cosines(x, folds)
    for part in (slice(0, 7), slice(7, 60), slice(3, 4)):
        torch.testing.assert_close(model.cosines(x[part], folds[part]), found[part])


def test_a_label_has_no_influence_on_its_own_fold() -> None:
    x, y, folds = rows(300)
    before = prototypes(x, y, folds).cosines(x, folds)
    for fold in range(3):
        own = folds == fold
        lies = torch.where(own, (y + 1) % 5, y)
        after = prototypes(x, lies, folds).cosines(x, folds)
        assert torch.equal(before[own], after[own])
        assert not torch.isclose(before[~own], after[~own], atol=1e-3).any(dim=1).all()


def test_a_label_does_not_come_back_by_rounding_where_the_others_cancel() -> None:
    """Two opposite rows of other folds have no mean direction, whatever the own fold holds."""
    for seed in range(10):
        few = torch.from_numpy(np.random.default_rng(seed).normal(size=(5, 3)))
        x, folds = torch.cat([few, -few]), torch.tensor([1, 0, 0, 0, 0, 2, 0, 0, 0, 0])
        y = torch.tensor([0, 0, 0, 1, 1, 0, 1, 1, 0, 0])
        found = prototypes(x, y, folds, n_classes=2).cosines(x, folds)[folds == 0]
        assert torch.equal(found[:, 0], torch.zeros(8))


def test_classes_without_rows_elsewhere_are_at_right_angles_to_everything() -> None:
    x, y, folds = rows(n_classes=4)
    y = torch.where((y == 3) & (folds != 1), 0, y)  # class 3 in fold 1 only, class 4 nowhere
    assert (y == 3).any()
    model = prototypes(x, y, folds)
    apart, together = model.cosines(x, folds), model.cosines(x)
    own = folds == 1
    assert torch.equal(apart[own, 3], torch.zeros(int(own.sum())))
    assert (apart[~own, 3] != 0).all()
    assert (together[:, 3] != 0).all()
    for found in (apart, together):
        assert torch.equal(found[:, 4], torch.zeros(60))
        assert torch.isfinite(found).all()
        assert (found[:, :3] != 0).all()


def test_units_of_the_features_are_of_no_concern() -> None:
    x, y, folds = rows()
    there = x * torch.tensor([1e-3, -2.0, 1e4]) + torch.tensor([5.0, 0, -1e3])
    for given in (None, folds):
        mine, theirs = (prototypes(v, y, folds).cosines(v, given) for v in (x, there))
        torch.testing.assert_close(mine, theirs, rtol=0, atol=1e-5)
    stretched = x * x.new_tensor([1.0, 1.0, 9.0])  # but not to features of other units than fit's
    model = prototypes(x, y, folds)
    assert not torch.allclose(model.cosines(stretched), model.cosines(x), atol=0.1)


def test_the_order_of_rows_classes_and_features_is_of_no_concern() -> None:
    x, y, folds = rows()
    generator = torch.Generator().manual_seed(1)
    order = torch.randperm(60, generator=generator)
    names = torch.randperm(5, generator=generator)
    columns = torch.tensor([2, 0, 1])
    moved, where = x[order][:, columns], folds[order]
    model, other = prototypes(x, y, folds), prototypes(moved, names[y][order], where)
    for mine, theirs in (
        (model.cosines(x, folds), other.cosines(moved, where)),
        (model.cosines(x), other.cosines(moved)),
    ):
        torch.testing.assert_close(theirs[:, names], mine[order], rtol=0, atol=1e-5)
        assert not torch.allclose(theirs, mine[order], atol=0.1)


# Mixtures


def opinions(n: int, n_classes: int, seed: int = 0) -> tuple[Tensor, Tensor]:
    """Log-probabilities and cosines that have nothing to do with one another."""
    rng = np.random.default_rng(seed)
    log_p = torch.log_softmax(torch.from_numpy(3 * rng.normal(size=(n, n_classes))), dim=1)
    return log_p.float(), torch.from_numpy(rng.uniform(-1, 1, size=(n, n_classes))).float()


def lists(log_p: Tensor, depth: int, *, ragged: bool = True) -> tuple[Tensor, Tensor]:
    """The best few of each row and all others, and which class each column is."""
    n, n_classes = log_p.shape
    best, labels = (v[:, :depth] for v in log_p.sort(dim=1, descending=True))
    length = 1 + torch.arange(n) % depth if ragged else torch.full((n,), depth)
    ended = torch.arange(depth) >= length[:, None]
    outside = 1 - best.exp().masked_fill(ended, 0).sum(dim=1, keepdim=True)
    columns = torch.cat([labels.masked_fill(ended, n_classes), torch.full((n, 1), n_classes)], 1)
    return torch.cat([best.masked_fill(ended, -1e4), outside.log()], dim=1), columns


def target_in(columns: Tensor, y: Tensor) -> Tensor:
    """The column of each label; the last, if it is not listed."""
    found = columns == y[:, None]
    return torch.where(found.any(dim=1), found.int().argmax(dim=1), columns.shape[1] - 1)


def likelihood(mixture: Mixture, log_p: Tensor, cosines: Tensor, *rest: Tensor | None) -> float:
    columns, target = rest
    assert target is not None
    return float(mixture(log_p, cosines, columns).double().gather(1, target[:, None]).mean())


SOME = [Mixture(0.3, 0.7, 6.0), Mixture(0.05, 2.0, 0.5), Mixture(0.9, 1.0, 40.0)]


@pytest.mark.parametrize("mixture", SOME)
def test_a_mixture_is_the_two_distributions_by_weight(mixture: Mixture) -> None:
    log_p, cosines = opinions(50, 7)
    found = mixture(log_p, cosines, None)
    ours, theirs = (
        np.exp(mixture.scale * log_p.numpy()),
        np.exp(mixture.sharpness * cosines.numpy()),
    )
    ours /= ours.sum(axis=1, keepdims=True)
    theirs /= theirs.sum(axis=1, keepdims=True)
    expected = (1 - mixture.weight) * ours + mixture.weight * theirs
    np.testing.assert_allclose(found.exp(), expected, rtol=1e-4, atol=1e-7)
    np.testing.assert_allclose(found.exp().sum(dim=1), 1, atol=1e-5)
    assert found.dtype == torch.float32


@pytest.mark.parametrize("ragged", [False, True])
@pytest.mark.parametrize("mixture", [*SOME, Mixture(0.2, 1e-6, 3.0), Mixture(0.2, 1e6, 3.0)])
def test_lists_get_each_labels_share_and_the_rest_that_of_all_others(
    mixture: Mixture, ragged: bool
) -> None:
    every, cosines = opinions(40, 9)
    log_p, columns = lists(every, 4, ragged=ragged)
    found = mixture(log_p, cosines, columns).double().exp()
    for i in range(40):
        listed = [k for k in columns[i].tolist()[:-1] if k < 9]
        scaled = mixture.scale * log_p[i, [*range(len(listed)), 4]].double().numpy()
        ours = np.exp(scaled - scaled.max())
        ours /= ours.sum()
        theirs = np.exp(mixture.sharpness * cosines[i].double().numpy())
        theirs /= theirs.sum()
        for place, k in enumerate(listed):
            expected = (1 - mixture.weight) * ours[place] + mixture.weight * theirs[k]
            assert float(found[i, place]) == pytest.approx(expected, rel=1e-4, abs=1e-6)
        others = sum(theirs[k] for k in range(9) if k not in listed)
        expected = (1 - mixture.weight) * ours[-1] + mixture.weight * others
        assert float(found[i, -1]) == pytest.approx(expected, rel=1e-4, abs=1e-6)
        assert (found[i, len(listed) : -1] == 0).all()
        assert float(found[i].sum()) == pytest.approx(1, abs=1e-5)


def test_lists_of_all_classes_are_the_dense_mixture() -> None:
    every, cosines = opinions(40, 6)
    labels = every.sort(dim=1, descending=True).indices
    log_p = torch.cat([every.gather(1, labels), torch.full((40, 1), -30.0)], dim=1)
    columns = torch.cat([labels, torch.full((40, 1), 6)], dim=1)
    found = SOME[0](log_p, cosines, columns).exp()
    expected = SOME[0](every, cosines, None).exp().gather(1, labels)
    torch.testing.assert_close(found[:, :-1], expected, rtol=1e-4, atol=1e-6)
    assert float(found[:, -1].max()) < 1e-6


@pytest.mark.parametrize("listed", [False, True])
def test_no_weight_is_the_networks_opinion_and_all_weight_that_of_the_means(listed: bool) -> None:
    log_p, cosines = opinions(40, 9)
    columns = None
    theirs = torch.softmax(4 * cosines, dim=1)
    if listed:
        log_p, columns = lists(log_p, 4, ragged=False)
        theirs = theirs.gather(1, columns[:, :-1])
        theirs = torch.cat([theirs, 1 - theirs.sum(dim=1, keepdim=True)], dim=1)
    torch.testing.assert_close(ALONE(log_p, cosines, columns).exp(), log_p.exp())
    scaled = torch.softmax(0.5 * log_p, dim=1)
    torch.testing.assert_close(Mixture(0.0, 0.5, 4.0)(log_p, cosines, columns).exp(), scaled)
    found = Mixture(1.0, 0.5, 4.0)(log_p, cosines, columns).exp()
    torch.testing.assert_close(found, theirs, rtol=1e-4, atol=1e-6)


def test_classes_never_seen_keep_what_the_networks_give_them() -> None:
    x, y, folds = rows(n_classes=4)
    cosines = prototypes(x, y, folds).cosines(x)
    log_p, _ = opinions(60, 5)
    mixture = Mixture(0.4, 1.0, 8.0)
    found = mixture(log_p, cosines, None).exp()[:, 4]
    second = 1 / (8.0 * cosines).exp().sum(dim=1)  # of a cosine of 0
    torch.testing.assert_close(found, 0.6 * log_p[:, 4].exp() + 0.4 * second, rtol=1e-4, atol=1e-7)
    assert (found > 0.6 * log_p[:, 4].exp()).all()


# Fits


def drawn(mixture: Mixture, n: int, listed: bool) -> tuple[Tensor, Tensor, Tensor | None, Tensor]:
    """Opinions, and labels that follow the mixture of them."""
    log_p, cosines = opinions(n, 10)
    columns = None
    if listed:
        log_p, columns = lists(log_p, 5)
    p = mixture(log_p, cosines, columns).exp()
    return log_p, cosines, columns, torch.multinomial(p, 1, generator=torch.Generator())[:, 0]


@pytest.mark.parametrize("listed", [False, True])
@pytest.mark.parametrize("truth", [Mixture(0.3, 0.7, 6.0), Mixture(0.1, 1.5, 20.0)])
def test_a_fit_finds_the_mixture_that_labels_follow(truth: Mixture, listed: bool) -> None:
    found = Mixture.fit(*drawn(truth, 20_000, listed))
    assert found.weight == pytest.approx(truth.weight, abs=0.03)
    assert found.scale == pytest.approx(truth.scale, rel=0.1)
    assert found.sharpness == pytest.approx(truth.sharpness, rel=0.15)


@pytest.mark.parametrize("listed", [False, True])
@pytest.mark.parametrize("labels", ["first", "last", "nearest", "any", "one"])
def test_a_fit_is_at_least_as_likely_as_no_second_opinion_and_others(
    labels: str, listed: bool
) -> None:
    every, cosines = opinions(200, 6)
    y = {
        "first": every.argmax(dim=1),
        "last": every.argmin(dim=1),
        "nearest": cosines.argmax(dim=1),
        "any": torch.arange(200) % 6,
        "one": torch.full((200,), 2),
    }[labels]
    log_p, columns = lists(every, 3) if listed else (every, None)
    given = log_p, cosines, columns, y if columns is None else target_in(columns, y)
    found = Mixture.fit(*given)
    assert np.isfinite([found.weight, found.scale, found.sharpness]).all()
    assert 0 <= found.weight <= 1
    assert torch.isfinite(found(*given[:3]).gather(1, given[3][:, None])).all()
    mine = likelihood(found, *given)
    assert mine >= likelihood(ALONE, *given) - 1e-5
    for weight in (0.0, 0.1, 0.5, 1.0):
        for scale in (0.1, 1.0, 5.0):
            for sharpness in (0.1, 5.0, 50.0):
                other = Mixture(weight, scale, sharpness)
                assert mine >= likelihood(other, *given) - 1e-3


def test_an_opinion_that_knows_nothing_gets_no_weight() -> None:
    log_p, cosines, _, y = drawn(ALONE, 5000, listed=False)
    found = Mixture.fit(log_p, cosines, None, y)
    assert found.weight < 0.02
    assert found.scale == pytest.approx(1, abs=0.1)
    found = Mixture.fit(
        log_p, cosines, None, Mixture(1.0, 1.0, 60.0)(log_p, cosines, None).argmax(1)
    )
    assert found.weight > 0.98


def test_what_cannot_be_fitted_leaves_the_networks_alone() -> None:
    log_p, cosines = opinions(20, 4)
    found = Mixture.fit(log_p, cosines * torch.nan, None, torch.zeros(20, dtype=torch.int64))
    assert (found.weight, found.scale, found.sharpness) == (0.0, 1.0, 1.0)


@pytest.mark.parametrize("far", [-1e3, 1e3])
def test_a_search_that_runs_away_is_held_back(far: float, monkeypatch: pytest.MonkeyPatch) -> None:
    def run_away(optimizer: torch.optim.Optimizer, loss: object) -> None:
        optimizer.param_groups[0]["params"][0].data.fill_(far)

    monkeypatch.setattr(torch.optim.LBFGS, "step", run_away)
    log_p, cosines = opinions(20, 4)
    found = Mixture.fit(log_p, cosines, None, torch.zeros(20, dtype=torch.int64))
    assert 0 <= found.weight <= 1
    assert 1e-9 < found.scale < 1e9
    assert 1e-9 < found.sharpness < 1e9
    p = found(log_p, cosines, None).exp()
    torch.testing.assert_close(p.sum(dim=1), torch.ones(20))


@pytest.mark.parametrize("sure", [False, True])
@pytest.mark.parametrize("case", ["separable", "one class", "constant", "one row each", "copies"])
def test_extreme_rows_give_finite_numbers(case: str, sure: bool) -> None:
    x, y, folds = rows(60, 5, width=8)
    match case:
        case "separable":
            x = torch.eye(8, dtype=x.dtype)[y] * 1e6
        case "one class":
            y = torch.zeros_like(y)
        case "constant":
            x = torch.full_like(x, 7.0)
        case "one row each":
            x, y, folds = x[:5], torch.arange(5), folds[:5]
        case "copies":
            x = x[:1].expand(60, -1).clone()
            x[0] += 1e-3
    cosines = prototypes(x, y, folds).cosines(x, folds)
    assert torch.isfinite(cosines).all()
    assert float(cosines.abs().max()) <= 1 + 1e-5
    if case == "constant":
        assert not cosines.any()
    log_p = torch.log_softmax((1e3 if sure else 0.0) * torch.eye(5)[y], dim=1)
    found = Mixture.fit(log_p, cosines, None, y)
    p = found(log_p, cosines, None)
    assert not p.isnan().any()
    torch.testing.assert_close(p.logsumexp(dim=1), torch.zeros(len(y)), rtol=0, atol=1e-5)
    assert (
        likelihood(found, log_p, cosines, None, y)
        >= likelihood(ALONE, log_p, cosines, None, y) - 1e-5
    )
    again = found(log_p, prototypes(x, y, folds).cosines(x), None)
    assert not again.isnan().any()
