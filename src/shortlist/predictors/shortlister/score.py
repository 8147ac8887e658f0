"""The score of the Shortlister: re-scoring, then the distribution of the right label's rank."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Self

import numpy as np
import torch
from torch import Tensor

from shortlist._utils.arrays import as_features
from shortlist._utils.blocks import RANKED_ELEMENTS
from shortlist._utils.out_of_core import (
    LazyMatrix,
    Matrix,
    as_lazy,
    gather_columns,
    is_large_matrix,
)
from shortlist._utils.progress import Show
from shortlist._utils.validation import check_count
from shortlist._utils.warnings import warn
from shortlist.conformal.calibration import SOURCES
from shortlist.conformal.envelope import cost_steps, slopes
from shortlist.conformal.levels import ColumnLevels, Levels, NestedLevels
from shortlist.conformal.scores import ConformityScore
from shortlist.costs import Cost, cost_table
from shortlist.learning.process_group import current_group
from shortlist.learning.settings import (
    MIN_STEPS_PER_EPOCH,
    TrainingSettings,
    resolve_device,
    resolve_seed,
)
from shortlist.predictors.row_tables import exceeds_memory
from shortlist.predictors.shortlister.log_probabilities import (
    all_log_proba,
    label_log_proba,
    leave_mass,
    log_proba,
    positive_proba,
)
from shortlist.predictors.shortlister.rank_model import Buckets, RankModel, size_grid
from shortlist.predictors.shortlister.rescoring import ROUNDING, Rescorer
from shortlist.ranking import Ranking

MAX_MEAN = 2.0**13
"""If a feature's mean exceeds its deviation by this factor, float32 keeps less than a thousandth
of a deviation, and the features are kept in float64."""
MIN_ROWS = 200
"""With fewer rows to learn from, no stage is learned."""
BATCH = 1024
BATCH_VALUES = 1 << 22
"""Maximum number of values in the widest layer of all members, for data larger than memory."""
STANDARD_ERRORS = 1.0
"""A stage is kept if it helps by this many standard errors on rows that it did not learn from.
Each row is judged by one network, and the mean of several is better, so one is enough."""


class ShortlisterScore(ConformityScore):
    """The conformity score of the Shortlister, learned in two stages.

    The first stage re-ranks the labels by the features. The second estimates how the right
    label's rank is distributed. The level of a label is the largest lambda at which the set with
    the smallest ``miss + lambda cost(size)`` contains it.

    The parameters are those of :class:`shortlist.Shortlister`.
    """

    name = "shortlister"
    levels_are_cost_weights = True
    rescorer_: Rescorer | None
    rank_model_: RankModel | None

    def __init__(
        self,
        cost: Cost = "linear",
        *,
        rescore: bool | str = "auto",
        learn_sizes: bool | str = "auto",
        folds: int = 5,
        width: int = 512,
        rank_width: int = 64,
        learning_rate: float = 5e-4,
        batch_size: int | None = None,
        weight_decay: float = 1e-2,
        max_epochs: int = 50,
        patience: int = 5,
        score_depth: int = 50,
        device: str = "auto",
        progress: Show = "auto",
        random_state: object = 0,
    ) -> None:
        self.cost = cost
        self.rescore = rescore
        self.learn_sizes = learn_sizes
        self.folds = folds
        self.width = width
        self.rank_width = rank_width
        self.learning_rate = learning_rate
        self.batch_size = batch_size
        self.weight_decay = weight_decay
        self.max_epochs = max_epochs
        self.patience = patience
        self.score_depth = score_depth
        self.device = device
        self.progress = progress
        self.random_state = random_state

    def check_parameters(self) -> None:
        """Raise if a parameter has an invalid value."""
        for name in ("rescore", "learn_sizes"):
            _requested(getattr(self, name), name)
        check_count(self.folds, "folds", minimum=2)
        check_count(self.width, "width")
        check_count(self.rank_width, "rank_width")
        check_count(self.score_depth, "score_depth")
        self._training_settings(rows=1)

    def _training_settings(self, rows: int, max_batch: int = 8 * BATCH) -> TrainingSettings:
        largest = min(max(BATCH, rows // 128), max_batch)
        batch = min(max(64, rows // 8), max(512, rows // MIN_STEPS_PER_EPOCH), largest)
        batch = batch if self.batch_size is None else check_count(self.batch_size, "batch_size")
        return TrainingSettings(
            # Adam's steps may grow with the square root of the batch.
            learning_rate=self.learning_rate * max(1.0, batch / BATCH) ** 0.5,
            batch_size=batch,
            weight_decay=self.weight_decay,
            max_epochs=self.max_epochs,
            patience=self.patience,
            min_steps_per_epoch=MIN_STEPS_PER_EPOCH,
            decoupled_weight_decay=True,
            # An average over about 125 steps of 1,024 rows, or 250 of fewer.
            ema_decay=1 - min(0.5, 0.008 * max(batch, 512) / BATCH),
            seed=resolve_seed(self.random_state),
        )

    # Fitting

    def fit(self, ranking: Ranking, y: Tensor, features: Matrix | None = None) -> Self:
        """Learn both stages; each is kept only if it helps on rows that it did not learn from.

        Parameters
        ----------
        ranking : Ranking
            Rows to learn from, with the type and temperature of their scores.
        y : Tensor of shape (n_rows,)
            Label indices.
        features : matrix of shape (n_rows, n_features), optional
            Features of the rows.

        Returns
        -------
        self
        """
        cost_table(self.cost, range(1, ranking.depth + 1))
        plan = self._plan(ranking, y, features)
        history: dict[str, object] = {}
        ranked, rescorer = self._fit_rescorer(plan, y, history)
        buckets = Buckets(
            size_grid(ranking.depth),
            outside=not ranking.is_dense or ranking.depth < ranking.n_classes,
        )
        model = self._fit_rank_model(plan, ranked, y, buckets, history)
        self.history_, self.rescorer_, self.rank_model_ = history, rescorer, model
        self.buckets_, self.dense_ = buckets, ranking.is_dense
        self.outside_ = plan.outside if rescorer or model else 0.0
        self.n_features_ = None if features is None else features.shape[1]
        self.wide_features_ = features is not None and self._needs_float64(features)
        return self

    def _plan(self, ranking: Ranking, y: Tensor, features: Matrix | None) -> _Plan:
        """Decide which stages to learn, with which settings and where."""
        rows = current_group().sum(len(ranking))
        rescore, learn_sizes = (_requested(getattr(self, n), n) for n in ("rescore", "learn_sizes"))
        if rescore and features is None:
            raise ValueError("rescore=True needs features: fit(scores, y, features=X)")
        enough = rows >= MIN_ROWS
        first = features is not None and (enough if rescore is None else rescore)
        second = enough if learn_sizes is None else learn_sizes
        if (first or second) and len(ranking) < self.folds:
            raise ValueError(
                f"folds = {self.folds} is more than the {len(ranking)} rows to learn from"
            )
        device = resolve_device(self.device, y if features is None else features)
        max_batch = 8 * BATCH
        large = exceeds_memory(ranking) or (features is not None and is_large_matrix(features))
        if device.type == "cpu" and current_group().max(int(large)):
            # Beside large scores, features are not copied either.
            features = None if features is None else as_lazy(features)
            widest = self.folds * max(ranking.n_classes, self.width)
            max_batch = max(BATCH, min(max_batch, BATCH_VALUES // widest))
        # Logits of candidates say nothing about labels that are not listed; their share is known.
        silent = ranking.score_type == "logits" and not ranking.is_dense
        unlisted = int(torch.isinf(ranking.rank_of(y)).sum()) if silent else 0
        outside = current_group().sum(unlisted) / (rows + 1)
        return _Plan(
            ranking=leave_mass(ranking, outside) if outside else ranking,
            features=features,
            settings=self._training_settings(rows, max_batch),
            device=device,
            outside=outside,
            rescore=first,
            force_rescore=bool(rescore),
            learn_sizes=second,
            force_sizes=bool(learn_sizes),
        )

    def _fit_rescorer(
        self, plan: _Plan, y: Tensor, history: dict[str, object]
    ) -> tuple[Ranking, Rescorer | None]:
        """Fit stage 1; return the rows as the next stage sees them, out of fold."""
        if not plan.rescore or plan.features is None:
            return plan.ranking, None
        rescorer, out_of_fold = Rescorer.fit(
            plan.ranking,
            y,
            plan.features,
            plan.settings,
            members=self.folds,
            width=self.width,
            device=plan.device,
            progress=self.progress,
        )
        history["re-scoring"] = rescorer.history
        before, after = label_log_proba(plan.ranking, y), label_log_proba(out_of_fold, y)
        if plan.force_rescore or _helps(before, after):
            return out_of_fold, rescorer
        return plan.ranking, None

    def _fit_rank_model(
        self,
        plan: _Plan,
        ranked: Ranking,
        y: Tensor,
        buckets: Buckets,
        history: dict[str, object],
    ) -> RankModel | None:
        """Fit stage 2."""
        if not plan.learn_sizes:
            return None
        log_p, rank = all_log_proba(ranked), ranked.rank_of(y)
        model, masses = RankModel.fit(
            log_p,
            rank,
            buckets,
            plan.features,
            plan.settings,
            members=self.folds,
            width=self.rank_width,
            depth=min(self.score_depth, ranked.depth),
            device=plan.device,
            progress=self.progress,
        )
        history["sizes"] = model.history
        own = buckets.of_rank(rank)
        before = gather_columns(_bucket_table(buckets, log_p), own)
        after = gather_columns(masses, own.to(masses.device)).to(own.device)
        return model if plan.force_sizes or _helps(before.log(), after.log()) else None

    def _needs_float64(self, features: Matrix) -> bool:
        """Return whether float32 cannot tell the values of a column apart."""
        learned = self.rescorer_ or self.rank_model_
        if learned is None or features.dtype != torch.float64:
            return False
        known = learned.network.standardize
        mean, scale = (t[: features.shape[1]].abs() for t in (known.mean, known.scale))
        return bool((mean > MAX_MEAN * scale).any())

    # Levels

    @property
    def is_learned(self) -> bool:
        """Whether a stage was kept."""
        return self.rescorer_ is not None or self.rank_model_ is not None

    @property
    def rounding(self) -> float:  # type: ignore[override]
        """Bound on the relative difference between two computations of a level."""
        return ROUNDING if self.is_learned else ConformityScore.rounding

    def lower(self, levels: Tensor, rounding: float) -> Tensor:
        """Return levels that no other computation of the same levels falls below."""
        return levels * (1 - rounding)

    @property
    def block_elements(self) -> int:
        """Number of scores whose levels are computed at a time on a CPU."""
        return RANKED_ELEMENTS // 4 if self.is_learned else RANKED_ELEMENTS

    def rerank(self, ranking: Ranking, features: Tensor | None = None) -> Ranking:
        """Return the rows after stage 1."""
        x = self._check_features(features)
        start = self.start(ranking)
        if self.rescorer_ is None:
            return start
        assert x is not None
        return self.rescorer_(start, x)

    def start(self, ranking: Ranking) -> Ranking:
        """Return the rows before stage 1."""
        if self.is_learned and ranking.is_dense != self.dense_:
            raise ValueError(
                f"fit learned from rows with {SOURCES[self.dense_]}, but these have "
                f"{SOURCES[ranking.is_dense]}; fit with rows such as these"
            )
        return leave_mass(ranking, self.outside_) if self.outside_ else ranking

    def levels(self, ranking: Ranking, features: Tensor | None = None) -> Tensor:
        """Return the level of each label of a ranking that `rerank` returned.

        Parameters
        ----------
        ranking : Ranking
            Rows after `rerank`.
        features : Tensor of shape (n_rows, n_features), optional
            Features of the rows.

        Returns
        -------
        Tensor of shape (n_rows, depth)
            Levels, non-increasing along each row.
        """
        return self.nested_levels(ranking, features).by_rank(ranking.depth)

    def nested_levels(self, ranking: Ranking, features: Tensor | None = None) -> NestedLevels:
        """Return the levels as an object that finds sets; see `ConformityScore.nested_levels`."""
        linear = isinstance(self.cost, str) and self.cost == "linear"
        largest = self.buckets_.sizes[-1]
        if (
            self.rank_model_ is None
            and linear
            and ranking.is_whole
            and largest == ranking.n_classes
        ):
            # The level of a label is its probability: nothing has to be sorted.
            return ColumnLevels(*positive_proba(ranking))
        log_p = log_proba(ranking, largest)
        every = torch.arange(1, log_p.shape[1], device=ranking.device)
        if self.rank_model_ is None:
            gains = log_p[:, :-1].to(torch.float64).exp()
            return Levels(slopes(gains, cost_steps(self.cost, every)), every)
        sizes = torch.tensor(self.buckets_.sizes, device=ranking.device)
        x = self._check_features(features, quiet=True)
        gains = self.rank_model_(log_p, x)[:, : len(sizes)]
        values = slopes(gains, cost_steps(self.cost, sizes))
        return Levels(self.buckets_.spread(values, log_p), every)

    def _check_features(self, features: Tensor | None, *, quiet: bool = False) -> Tensor | None:
        """Return features as fit saw them; None if they are not used."""
        if self.n_features_ is None:
            if features is not None:
                raise ValueError(
                    "features were given, but fit saw none; leave them out, or fit with "
                    "features=..."
                )
            return None
        if features is None:
            if not self.is_learned:
                return None
            raise ValueError(
                f"features are missing: fit saw {self.n_features_} of them; give features=... "
                "here too"
            )
        checked = as_features(features, columns=self.n_features_)
        if not self.is_learned:
            return None
        if self.wide_features_ and checked.dtype != torch.float64 and not quiet:
            warn(
                f"fit saw float64 features that {checked.dtype} cannot tell apart: the guaranteed "
                "accuracy may not be kept; give float64 features, or scale them first"
            )
        # One type and one memory order, so that the same features are the same numbers.
        dtype = torch.float64 if self.wide_features_ else torch.float32
        return checked.to(dtype).contiguous()

    # The ONNX graph

    def onnx_rerank(self, rows: Any) -> Any:
        """Return the rows after stage 1 in a graph; see `ConformityScore.onnx_rerank`."""
        rows = rows.leave_mass(self.outside_) if self.outside_ else rows
        if self.rescorer_ is None:
            return rows
        return rows.rescored(self.rescorer_, self._onnx_features(rows))

    def onnx_nested_levels(self, rows: Any) -> tuple[Any, Any]:
        """Return levels and sizes in a graph; see `ConformityScore.onnx_nested_levels`."""
        depth = self.buckets_.sizes[-1]
        sizes, log_p = np.arange(1, depth + 1), rows.log_proba(depth)
        if self.rank_model_ is None:
            p = log_p[:, :-1].to(torch.float64).exp()
            return rows.proba_slopes(p, self.cost, sizes, depth, depth), sizes
        x = self._onnx_features(rows)
        return rows.rank_model_levels(self.rank_model_, log_p, x, self.cost), sizes

    def _onnx_features(self, rows: Any) -> Any:
        """Return the features in a graph, in the type that fit saw; None if there are none."""
        if self.n_features_ is None:
            return None
        features = rows.features(self.n_features_)
        return features if self.wide_features_ else features.to(torch.float32)


@dataclass(frozen=True)
class _Plan:
    """What a fit does."""

    ranking: Ranking
    features: Matrix | None
    settings: TrainingSettings
    device: torch.device
    outside: float
    rescore: bool
    force_rescore: bool
    learn_sizes: bool
    force_sizes: bool


def _bucket_table(buckets: Buckets, log_p: Matrix) -> Matrix:
    """Return the masses of buckets in all rows."""
    if isinstance(log_p, Tensor):
        return buckets.masses(log_p)
    return LazyMatrix(
        len(log_p), lambda rows: buckets.masses(log_p[rows]), work_width=log_p.work_width
    )


def _requested(value: object, name: str) -> bool | None:
    """Return whether a stage is requested; None if it is learned where it helps."""
    if isinstance(value, bool | np.bool_):
        return bool(value)
    if not isinstance(value, str) or value != "auto":
        raise ValueError(f'{name} must be "auto", True or False; got {value!r}')
    return None


def _helps(before: Tensor, after: Tensor) -> bool:
    """Return whether log-likelihoods of the same rows increased by more than chance."""
    gain = (after - before).to(torch.float64)
    group = current_group()
    rows = group.sum(len(gain))
    mean = group.sum(gain.sum()) / rows
    error = (group.sum((gain - mean).square().sum()) / (rows - 1) / rows) ** 0.5
    return bool(mean > STANDARD_ERRORS * error)
