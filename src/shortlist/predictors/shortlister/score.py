"""The conformity score of the Shortlister: re-scored labels, and levels from their ranks."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Any, Self

import numpy as np
import torch
from torch import Tensor

from shortlist._utils.arrays import as_features
from shortlist._utils.blocks import RANKED_ELEMENTS
from shortlist._utils.out_of_core import Matrix, as_lazy, is_large_matrix
from shortlist._utils.progress import Show
from shortlist._utils.threads import single_threaded
from shortlist._utils.validation import check_count
from shortlist._utils.warnings import warn
from shortlist.conformal.envelope import cost_steps, slopes
from shortlist.conformal.levels import ColumnLevels, Levels, NestedLevels
from shortlist.conformal.row_schema import SOURCES
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
from shortlist.predictors.shortlister.efforts import check_effort, effort_architectures
from shortlist.predictors.shortlister.fitting import StageFit
from shortlist.predictors.shortlister.log_probabilities import (
    leave_mass,
    log_proba,
    positive_proba,
)
from shortlist.predictors.shortlister.rank_model import Buckets, RankModel, size_grid
from shortlist.predictors.shortlister.rescoring import ROUNDING, Recipe, Rescorer
from shortlist.ranking import Ranking

MAX_RELATIVE_MEAN = 2.0**13
"""If a feature's mean exceeds its standard deviation by this factor, float32 would round its values
to about a thousandth of the deviation, so the features are kept in float64."""
MIN_ROWS = 40
"""With fewer rows to learn from, no stage is learned by default."""
MIN_NETWORK_ROWS = 200
"""With fewer rows, stage 1 has no networks and stage 2 is not learned by default."""
BATCH_SIZE = 1024
"""Number of rows of a batch to which `learning_rate` applies without scaling."""
MAX_BATCH_SIZE = 8 * BATCH_SIZE
MAX_BATCH_VALUES = 1 << 22
"""Maximum number of values in the widest layer of all networks, for data larger than memory."""


class ShortlisterScore(ConformityScore):
    """The conformity score of the Shortlister, learned in two stages.

    The first stage re-ranks the labels of each row from its features. The second estimates the
    distribution of the true label's rank. The level of a label is the largest `cost_weight` at
    which the set with the smallest ``P(miss) + cost_weight * cost(size)`` contains it.

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
        effort: str = "standard",
        learners: Sequence[Any] | None = None,
        rescore: bool | str = "auto",
        learn_sizes: bool | str = "auto",
        folds: int = 5,
        width: int = 512,
        rank_width: int = 64,
        learning_rate: float = 5e-4,
        batch_size: int | None = None,
        weight_decay: float = 1e-2,
        max_epochs: int = 100,
        patience: int = 5,
        score_depth: int = 50,
        device: str = "auto",
        progress: Show = "auto",
        random_state: object = 0,
    ) -> None:
        self.cost = cost
        self.effort = effort
        self.learners = learners
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
        check_effort(self.effort)
        _check_learners(self.learners)
        check_count(self.folds, "folds", minimum=2)
        check_count(self.width, "width")
        check_count(self.rank_width, "rank_width")
        check_count(self.score_depth, "score_depth")
        self._training_settings(rows=1)

    def _training_settings(
        self, rows: int, max_batch_size: int = MAX_BATCH_SIZE
    ) -> TrainingSettings:
        """Return the settings of the training with this many rows."""
        if self.batch_size is None:
            largest = min(max(BATCH_SIZE, rows // 128), max_batch_size)
            batch_size = min(max(64, rows // 8), max(512, rows // MIN_STEPS_PER_EPOCH), largest)
        else:
            batch_size = check_count(self.batch_size, "batch_size")
        return TrainingSettings(
            # The learning rate of Adam can grow with the square root of the batch size.
            learning_rate=self.learning_rate * max(1.0, batch_size / BATCH_SIZE) ** 0.5,
            batch_size=batch_size,
            weight_decay=self.weight_decay,
            max_epochs=self.max_epochs,
            patience=self.patience,
            min_steps_per_epoch=MIN_STEPS_PER_EPOCH,
            decoupled_weight_decay=True,
            # Weights are averaged over about 125 steps of 1,024 rows, or 250 steps of 512 or fewer.
            ema_decay=1 - min(0.5, 0.008 * max(batch_size, 512) / BATCH_SIZE),
            seed=resolve_seed(self.random_state),
        )

    # Fitting

    def fit(
        self,
        ranking: Ranking,
        y: Tensor,
        features: Matrix | None = None,
        extra: tuple[Matrix, Tensor] | None = None,
    ) -> Self:
        """Learn both stages, and keep each only if it helps on rows that it did not learn from.

        Parameters
        ----------
        ranking : Ranking
            Rows to learn from, with the type and temperature of their scores.
        y : Tensor of shape (n_rows,)
            Label indices.
        features : matrix of shape (n_rows, n_features), optional
            Features of the rows.
        extra : tuple of matrix and Tensor, optional
            Features and label indices of rows without scores.

        Returns
        -------
        self
        """
        # Large work is divided among threads that take whole members or blocks of rows. The other
        # operations are too small to be worth a barrier each.
        with single_threaded():
            self._fit_stages(ranking, y, features, extra)
        return self

    def _fit_stages(
        self,
        ranking: Ranking,
        y: Tensor,
        features: Matrix | None,
        extra: tuple[Matrix, Tensor] | None,
    ) -> None:
        cost_table(self.cost, range(1, ranking.depth + 1))
        outside = _unlisted_share(ranking, y)
        marked = leave_mass(ranking, outside) if outside else ranking
        stages = self._prepare_stages(marked, y, features, extra)
        rescorer, ranked = stages.fit_rescorer(y, self._recipe(current_group().sum(len(ranking))))
        buckets = Buckets(
            size_grid(ranking.depth),
            outside=not ranking.is_dense or ranking.depth < ranking.n_classes,
        )
        model = stages.fit_rank_model(ranked, y, buckets, self.rank_width, self.score_depth)
        self.history_, self.rescorer_, self.rank_model_ = stages.history, rescorer, model
        self.buckets_, self.dense_ = buckets, ranking.is_dense
        self.outside_ = outside if rescorer or model else 0.0
        self.n_features_ = None if features is None else features.shape[1]
        self.wide_features_ = features is not None and self._needs_float64(features)

    def _recipe(self, n_rows: int) -> Recipe:
        """Return which opinions of stage 1 are fitted to this many rows."""
        few = n_rows < MIN_NETWORK_ROWS and _requested(self.rescore, "rescore") is None
        architectures = [] if few else effort_architectures(self.effort, self.width, n_rows)
        return Recipe(architectures, list(self.learners or ()))

    def _prepare_stages(
        self,
        ranking: Ranking,
        y: Tensor,
        features: Matrix | None,
        extra: tuple[Matrix, Tensor] | None,
    ) -> StageFit:
        """Decide which stages to learn, with which settings and where."""
        n_rows = current_group().sum(len(ranking))
        rescore = _requested(self.rescore, "rescore")
        learn_sizes = _requested(self.learn_sizes, "learn_sizes")
        if rescore and features is None:
            raise ValueError("rescore=True needs features: fit(scores, y, features=X)")
        enough = n_rows >= MIN_ROWS
        fit_rescorer = features is not None and (enough if rescore is None else rescore)
        wanted = n_rows >= MIN_NETWORK_ROWS and self.effort != "fast"
        fit_sizes = wanted if learn_sizes is None else learn_sizes
        if (fit_rescorer or fit_sizes) and len(ranking) < self.folds:
            raise ValueError(
                f"folds = {self.folds} is more than the {len(ranking)} rows to learn from"
            )
        device = resolve_device(self.device, y if features is None else features)
        max_batch_size = MAX_BATCH_SIZE
        is_large = exceeds_memory(ranking) or (features is not None and is_large_matrix(features))
        if device.type == "cpu" and current_group().max(int(is_large)):
            # The features that belong to large scores are not copied either.
            features = None if features is None else as_lazy(features)
            widest = self.folds * max(ranking.n_classes, 2 * self.width)
            max_batch_size = max(BATCH_SIZE, min(max_batch_size, MAX_BATCH_VALUES // widest))
        return StageFit(
            ranking=ranking,
            features=features,
            settings=self._training_settings(n_rows, max_batch_size),
            folds=self.folds,
            device=device,
            progress=self.progress,
            rescore=fit_rescorer,
            force_rescore=bool(rescore),
            learn_sizes=fit_sizes,
            force_sizes=bool(learn_sizes),
            extra=extra,
        )

    def _needs_float64(self, features: Matrix) -> bool:
        """Return whether float32 would round the values of a column too coarsely."""
        if not self.is_learned or features.dtype != torch.float64:
            return False
        learned = self.rescorer_ or self.rank_model_
        assert learned is not None
        standardize, n_features = learned.standardize, features.shape[1]
        mean, scale = standardize.mean[:n_features].abs(), standardize.scale[:n_features].abs()
        return bool((mean > MAX_RELATIVE_MEAN * scale).any())

    def describe(self) -> dict[str, str]:
        """Return which stages were learned, by topic; see `ConformityScore.describe`."""
        opinions = [] if self.rescorer_ is None else self.rescorer_.opinions
        counts = Counter(opinion.description for opinion in opinions)
        pooled = ", ".join(f"{name} ({n})" if n > 1 else name for name, n in counts.items())
        return {
            "stage 1": f"labels re-scored by {pooled}" if pooled else "not kept: the given scores",
            "stage 2": "sizes learned" if self.rank_model_ else "not kept: one threshold",
            "features": "none" if self.n_features_ is None else f"{self.n_features_:,}",
        }

    # Levels

    @property
    def is_learned(self) -> bool:
        """Whether a stage was kept."""
        return self.rescorer_ is not None or self.rank_model_ is not None

    @property
    def rounding(self) -> float:  # type: ignore[override]
        """Bound on the relative difference between two computations of a level."""
        if self.rescorer_ is not None:
            return self.rescorer_.rounding
        return ROUNDING if self.is_learned else ConformityScore.rounding

    def lower(self, levels: Tensor, rounding: float) -> Tensor:
        """Return levels that no other computation of the same levels falls below."""
        return levels * (1 - rounding)

    @property
    def block_elements(self) -> int:
        """Number of scores whose levels are computed at a time on a CPU."""
        return RANKED_ELEMENTS // 4 if self.is_learned else RANKED_ELEMENTS

    def rerank(self, ranking: Ranking, features: Tensor | None = None) -> Ranking:
        """Return new rows after stage 1.

        Parameters
        ----------
        ranking : Ranking
            Rows to re-rank.
        features : Tensor of shape (n_rows, n_features), optional
            Features of the rows, if `fit` was given features.

        Returns
        -------
        Ranking
        """
        x = self._check_features(features)
        start = self._before_stages(ranking)
        if self.rescorer_ is None:
            return start
        assert x is not None
        return self.rescorer_(start, x)

    def rerank_out_of_fold(
        self,
        ranking: Ranking,
        features: Tensor | None = None,
        extra: tuple[Matrix, Tensor] | None = None,
    ) -> Ranking:
        """Return the rows of `fit` after stage 1, each re-scored without the help of its label.

        Parameters
        ----------
        ranking : Ranking
            The rows of `fit`, in the same order.
        features : Tensor of shape (n_rows, n_features), optional
            Features of the rows, if `fit` was given features.
        extra : tuple of matrix and Tensor, optional
            Features and label indices of the extra rows of `fit`.

        Returns
        -------
        Ranking
        """
        if self.rescorer_ is None:
            return self.rerank(ranking, features)
        if len(ranking) != len(self.rescorer_.folds):
            raise ValueError(
                f"{len(ranking)} rows were given, but fit learned from "
                f"{len(self.rescorer_.folds)}; out_of_fold takes the same rows in the same order"
            )
        x = self._check_features(features)
        assert x is not None
        settings = self._training_settings(rows=len(ranking))
        return self.rescorer_.out_of_fold(self._before_stages(ranking), x, settings, extra)

    def _before_stages(self, ranking: Ranking) -> Ranking:
        """Return rows as stage 1 takes them."""
        if self.is_learned and ranking.is_dense != self.dense_:
            raise ValueError(
                f"fit learned from rows with {SOURCES[self.dense_]}, but these have "
                f"{SOURCES[ranking.is_dense]}; fit with rows of this kind"
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
        """Return the levels as an object that computes sets: see `ConformityScore`."""
        depth = self.buckets_.sizes[-1]
        has_linear_cost = isinstance(self.cost, str) and self.cost == "linear"
        is_complete = ranking.is_complete and depth == ranking.n_classes
        if self.rank_model_ is None and has_linear_cost and is_complete:
            # The level of a label is its probability, so the rows need not be sorted.
            return ColumnLevels(*positive_proba(ranking))
        log_p = log_proba(ranking, depth)
        sizes = torch.arange(1, log_p.shape[1], device=ranking.device)
        if self.rank_model_ is None:
            gains = log_p[:, :-1].to(torch.float64).exp()
            return Levels(slopes(gains, cost_steps(self.cost, sizes)), sizes)
        grid = torch.tensor(self.buckets_.sizes, device=ranking.device)
        x = self._check_features(features, quiet=True)
        gains = self.rank_model_(log_p, x)[:, : len(grid)]
        levels = slopes(gains, cost_steps(self.cost, grid))
        return Levels(self.buckets_.spread(levels, log_p), sizes)

    def _check_features(self, features: Tensor | None, *, quiet: bool = False) -> Tensor | None:
        """Return features in the type that fit was given; None if they are not used."""
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
                f"fit saw float64 features that {checked.dtype} cannot distinguish, so the "
                "guaranteed accuracy may not hold; give float64 features, or scale them first"
            )
        # A single type and memory order, so that the same features give the same results.
        dtype = torch.float64 if self.wide_features_ else torch.float32
        return checked.to(dtype).contiguous()

    # The ONNX graph

    def onnx_rerank(self, rows: Any) -> Any:
        """Return the rows after stage 1 in an ONNX graph; see `ConformityScore.onnx_rerank`."""
        rows = rows.leave_mass(self.outside_) if self.outside_ else rows
        if self.rescorer_ is None:
            return rows
        return rows.rescored(self.rescorer_, self._onnx_features(rows))

    def onnx_nested_levels(self, rows: Any) -> tuple[Any, Any]:
        """Return levels and sizes in an ONNX graph; see `ConformityScore.onnx_nested_levels`."""
        depth = self.buckets_.sizes[-1]
        sizes, log_p = np.arange(1, depth + 1), rows.log_proba(depth)
        if self.rank_model_ is None:
            p = log_p[:, :-1].to(torch.float64).exp()
            return rows.proba_slopes(p, self.cost, sizes, depth, depth), sizes
        x = self._onnx_features(rows)
        return rows.rank_model_levels(self.rank_model_, log_p, x, self.cost), sizes

    def _onnx_features(self, rows: Any) -> Any:
        """Return the features in an ONNX graph, in the type of `fit`; None if there are none."""
        if self.n_features_ is None:
            return None
        features = rows.features(self.n_features_)
        return features if self.wide_features_ else features.to(torch.float32)


def _unlisted_share(ranking: Ranking, y: Tensor) -> float:
    """Return the share of labels that are not among candidates whose logits do not tell it."""
    if ranking.score_type != "logits" or ranking.is_dense:
        return 0.0
    n_unlisted = int(torch.isinf(ranking.rank_of(y)).sum())
    return current_group().sum(n_unlisted) / (current_group().sum(len(ranking)) + 1)


def _requested(value: object, name: str) -> bool | None:
    """Return whether a stage is requested; None if it is learned where it helps."""
    if isinstance(value, bool | np.bool_):
        return bool(value)
    if not isinstance(value, str) or value != "auto":
        raise ValueError(f'{name} must be "auto", True or False; got {value!r}')
    return None


def _check_learners(learners: object) -> None:
    """Raise if an element of `learners` is not a classifier with probabilities."""
    if learners is None:
        return
    if isinstance(learners, str) or not isinstance(learners, Sequence):
        raise ValueError(f"learners must be a list of scikit-learn classifiers; got {learners!r}")
    for learner in learners:
        if isinstance(learner, type):
            raise ValueError(
                f"learners must be classifiers, not classes; write {learner.__name__}()"
            )
        if not (hasattr(learner, "fit") and hasattr(learner, "predict_proba")):
            raise ValueError(
                f"each of learners needs fit and predict_proba; {learner!r} does not have both"
            )
