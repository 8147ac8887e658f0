"""Cross-fitted ensembles: members in threads, compared with members that are trained together."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch
from torch import Tensor

from shortlist._utils import out_of_core
from shortlist._utils.threads import VARIABLE, single_threaded
from shortlist.learning.ensembles import EnsembleFit, train_ensembles
from shortlist.learning.gram import gram_matrix
from shortlist.learning.networks import Ensemble, Stack, Standardize, perceptron
from shortlist.learning.process_group import SingleProcess, use_process_group
from shortlist.learning.settings import TrainingSettings, build_with_seed
from shortlist.learning.training import History, train
from shortlist.predictors.shortlister.folds import cross_entropy

ROWS, MEMBERS = 300, 3
SETTINGS = TrainingSettings(learning_rate=0.01, batch_size=32, max_epochs=3, ema_decay=0.9, seed=5)
OVERFITTING = replace(SETTINGS, learning_rate=0.05, max_epochs=60, patience=3, ema_decay=0.0)


def data() -> tuple[Tensor, Tensor, Tensor]:
    """Features, labels and folds, of which a fourth of the rows has none."""
    generator = torch.Generator().manual_seed(1)
    x = torch.randn(ROWS, 4, generator=generator)
    y = (x[:, 0] + torch.randn(ROWS, generator=generator) > 0.4).long()
    folds = torch.randperm(ROWS, generator=generator) % (MEMBERS + 1)
    return x, y, folds


def ensemble(x: Tensor, width: int = 16, dropout: float = 0.3) -> Ensemble:
    def build() -> Stack:
        return Stack([perceptron(4, 2, width, dropout=dropout) for _ in range(MEMBERS)])

    return Ensemble(Standardize.from_data(x), build_with_seed(build, 0))


def cross_fit(
    x: Tensor, y: Tensor, folds: Tensor, name: str = "network", **options: object
) -> EnsembleFit:
    return EnsembleFit(name, name, ensemble(x, **options), [x], y, folds)  # type: ignore[arg-type]


def fit(
    *fits: EnsembleFit, settings: TrainingSettings = SETTINGS
) -> tuple[list[list[Tensor]], list[History]]:
    """Return the weights of each ensemble, and the histories."""
    histories = train_ensembles(fits, cross_entropy, settings, False)
    return [[p.detach() for p in one.network.parameters()] for one in fits], histories


def are_equal(a: list[Tensor], b: list[Tensor]) -> bool:
    return all(torch.equal(p, q) for p, q in zip(a, b, strict=True))


@pytest.mark.parametrize("member", range(MEMBERS))
def test_a_member_does_not_depend_on_the_rows_of_its_fold(member: int) -> None:
    once = replace(SETTINGS, max_epochs=1, min_steps_per_epoch=20)
    x, y, folds = data()
    own = folds == member
    changed = cross_fit(torch.where(own[:, None], -7 * x, x), torch.where(own, 1 - y, y), folds)
    changed = replace(changed, network=ensemble(x))  # The same standardization.
    (before,), _ = fit(cross_fit(x, y, folds), settings=once)
    (after,), _ = fit(changed, settings=once)
    start = list(ensemble(x).parameters())
    for j in range(MEMBERS):
        assert all(torch.equal(p[j], q[j]) for p, q in zip(before, after, strict=True)) == (
            j == member
        )
        assert not any(torch.equal(p[j], q[j]) for p, q in zip(before, start, strict=True))


def test_the_result_does_not_depend_on_threads_or_other_ensembles(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    x, y, folds = data()
    expected = [fit(cross_fit(x, y, folds, width=w))[0][0] for w in (8, 32)]
    for threads in (1, 2, 5):
        monkeypatch.setenv(VARIABLE, str(threads))
        torch.manual_seed(threads)  # The global random state has no effect.
        fits = [cross_fit(x, y, folds, str(w), width=w) for w in (8, 32)]
        weights, _ = fit(*fits)
        assert all(map(are_equal, weights, expected))
    with single_threaded():
        assert are_equal(fit(cross_fit(x, y, folds, width=8))[0][0], expected[0])


def test_the_settings_and_random_states_of_the_caller_do_not_change() -> None:
    x, y, folds = data()
    before = torch.get_rng_state(), torch.get_num_threads()
    one = cross_fit(x, y, folds)
    fit(one)
    assert torch.equal(torch.get_rng_state(), before[0])
    assert torch.get_num_threads() == before[1]
    assert not one.network.training  # Dropout is for training alone.


def test_with_one_batch_members_equal_those_that_are_trained_together() -> None:
    """Without dropout and batches, nothing is random."""
    settings = replace(OVERFITTING, batch_size=ROWS)
    x, y, folds = data()
    apart, together = (cross_fit(x, y, folds, dropout=0.0) for _ in range(2))
    _, (history,) = fit(apart, settings=settings)
    expected = train(
        together.network,
        [x],
        [y],
        cross_entropy,
        settings,
        members=together.members,
        folds=folds,
    )
    assert history.best_epoch == expected.best_epoch
    assert len(set(history.best_epoch)) > 1
    assert len(history) == len(expected) == len(history.validation_loss)
    for p, q in zip(apart.network.parameters(), together.network.parameters(), strict=True):
        torch.testing.assert_close(p, q, rtol=1e-3, atol=1e-4)
    for j, best in enumerate(history.best_epoch):
        until = best + 1 + settings.patience
        for name in ("loss", "validation_loss"):
            own, other = ([row[j] for row in getattr(h, name)] for h in (history, expected))
            assert own[:until] == pytest.approx(other[:until], rel=1e-3)
            assert set(own[until:]) <= {own[until - 1]}  # It repeats its last loss.


def test_every_epoch_takes_as_many_steps_as_with_the_rows_of_all_folds() -> None:
    x, y, folds = data()
    n_rows: list[int] = []

    def recorded(outputs: Tensor, target: Tensor) -> Tensor:
        if torch.is_grad_enabled():
            n_rows.append(outputs.shape[1])
        return cross_entropy(outputs, target)

    train_ensembles(
        [cross_fit(x, y, folds)], recorded, replace(SETTINGS, max_epochs=1), progress=False
    )
    assert len(n_rows) == MEMBERS * -(-ROWS // SETTINGS.batch_size)
    assert sum(n_rows) == sum(int((folds != j).sum()) for j in range(MEMBERS))


def test_a_loss_that_is_not_finite_names_the_member_and_stops_the_others() -> None:
    x, y, folds = data()
    diverging = replace(SETTINGS, learning_rate=1e30, max_epochs=10_000)
    with pytest.raises(FloatingPointError, match=r"of the network [0-2] became"):
        fit(cross_fit(x, y, folds), settings=diverging)


@pytest.mark.parametrize("empty", range(MEMBERS))
def test_every_member_needs_a_fold(empty: int) -> None:
    x, y, folds = data()
    folds = torch.where(folds == empty, MEMBERS, folds)
    with pytest.raises(ValueError, match="3 members need rows in each of the folds 0 to 2"):
        fit(cross_fit(x, y, folds))


class OneOfTwo(SingleProcess):
    """A process of two, the other of which has no rows."""

    world_size = 2


@pytest.mark.parametrize("case", ["process group", "larger than memory"])
def test_otherwise_members_are_trained_together(case: str, monkeypatch: pytest.MonkeyPatch) -> None:
    x, y, folds = data()
    apart = fit(cross_fit(x, y, folds))[0][0]
    expected = cross_fit(x, y, folds)
    group = OneOfTwo() if case == "process group" else SingleProcess()
    if case == "larger than memory":
        monkeypatch.setattr(out_of_core, "MAX_BYTES_IN_MEMORY", 100)
    with use_process_group(group), single_threaded():
        train(
            expected.network,
            [x],
            [y],
            cross_entropy,
            SETTINGS,
            members=expected.members,
            folds=folds,
        )
        (actual,), _ = fit(cross_fit(x, y, folds))
    assert are_equal(actual, [p.detach() for p in expected.network.parameters()])
    assert not are_equal(actual, apart)


@pytest.mark.parametrize("shape", [(50, 7), (300, 300), (1, 200), (0, 3)])
def test_gram_matrices_do_not_depend_on_the_number_of_threads(
    shape: tuple[int, int], monkeypatch: pytest.MonkeyPatch
) -> None:
    x = torch.randn(shape, generator=torch.Generator().manual_seed(0))
    results = []
    for threads in ("1", "2", "3"):
        monkeypatch.setenv(VARIABLE, threads)
        results.append(gram_matrix(x))
    torch.testing.assert_close(results[0].double(), x.double().T @ x.double(), rtol=0, atol=1e-3)
    assert torch.equal(results[0], results[0].T)
    assert all(torch.equal(result, results[0]) for result in results)
