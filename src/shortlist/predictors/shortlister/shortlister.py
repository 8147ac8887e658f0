"""The Shortlister: one fit, every operating point, an exact guarantee."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from shortlist._utils.arrays import (
    RANKED_ELEMENTS,
    ArrayLike,
    as_features,
    check_count,
    check_weight,
)
from shortlist._utils.lazy import LazyMatrix, Matrix, as_lazy, gather_columns, is_large_matrix
from shortlist._utils.progress import Show
from shortlist._utils.warnings import warn
from shortlist.conformal.envelope import slopes
from shortlist.conformal.levels import AnyLevels, Levels, OwnScores
from shortlist.costs import Cost, cost_table
from shortlist.learning.large_tables import log_proba_of, widely_ranked
from shortlist.learning.process_group import current_group
from shortlist.learning.settings import FEWEST_STEPS, Training, device_of, seed_of
from shortlist.learning.temperature import fit_scale
from shortlist.predictors.cost_weighted import PricedSelector
from shortlist.predictors.nested import UNLEARNED
from shortlist.predictors.shortlister.rank_model import Buckets, RankModel, size_grid
from shortlist.predictors.shortlister.rescoring import ROUNDING, Rescorer
from shortlist.ranking import Ranking
from shortlist.ranking.probabilities import (
    LEAST_LOG_PROBA,
    ScoreType,
    every_proba,
    sorted_log_proba,
)

WELL_SCALED = 2.0**13
"""Of features whose mean is more than so many deviations, float32 keeps less than a thousandth of a
deviation: they are kept in float64."""
FEWEST_ROWS = 200
"""With fewer rows to learn from, nothing but a temperature is learned."""
BATCH = 1024
BATCH_VALUES = 1 << 22
"""What the members have in their widest layer, of a batch, if data are larger than memory."""
SURE = 1.0
"""A stage is kept if it helps by this many standard errors on rows that it did not learn from.
Each row is judged by one network, and the mean of several is better: more would be timid."""


class Shortlister(PricedSelector):
    """The shortest sets for an accuracy, learned from scores and features, with a guarantee.

    Two stages learn from rows that the classifier did not train on. The first re-scores: a
    residual on the classifier's logits, learned from the features, and the labels of near rows
    give a better order and better probabilities. (It keeps the features of up to 50,000 rows as
    neighbours of new ones.) The second estimates how the right label's rank is distributed in
    each row, so that for every size the chance of a miss is known. For any lambda the set is the
    one with the smallest `miss + lambda cost(size)`; sets are nested in lambda, and rows held out
    from both stages turn lambda into an exact guarantee of accuracy.

    A stage is kept only if it helps on rows that it did not learn from. With few rows, no
    features or no signal, what remains is the classifier with one temperature: the plug-in rule.

    Parameters
    ----------
    cost : "linear", "log", a table by size, or a function of the size
        "linear" keeps the mean size small.
    accuracy : float
        What `predict_set` guarantees unless it is told otherwise.
    cost_weight : float, optional
        If given, what `predict_set` uses instead: the paper's lambda, without a guarantee.
    rescore : "auto", True or False
        Stage 1. "auto": if there are features and it helps.
    learn_sizes : "auto", True or False
        Stage 2. "auto": if it helps.
    calibration : float or None
        Share of the rows of `fit` that are kept for the guarantee. None: all rows are learned from,
        and `calibrate` will follow.
    by : None, "class" or "group"
        Whether the guarantee holds over all rows, for each class, or for each group of rows.
    allow_empty : bool
        Whether a set may be empty. If not, each holds at least its row's first label.
    on_unreachable : "raise" or "all"
        What to do about a guarantee that the calibration rows are too few for: an error, or every
        label.
    folds : int
        Networks of each stage; each learns without its own fold of the rows.
    width, rank_width : int
        Hidden units of the two stages' networks.
    learning_rate, batch_size, weight_decay, max_epochs, patience
        Of the training of both stages (AdamW, averaged weights, early stopping). By default a
        batch is 512 rows, or an eighth of them where they are few, or up to 1,024 where many, and
        8,192 of a million; the learning rate grows with the root of a batch above 1,024.
    score_type : "auto", "logits", "proba" or "log_proba"
        What the scores are. "auto" decides at fit; see `score_type_`.
    score_depth : int
        How many of the best labels' log-probabilities stage 2 sees.
    device : str
        Where to train. "auto": where the features (or scores) are.
    progress : bool or "auto"
    random_state : int, RandomState or None

    Attributes
    ----------
    classes_, score_type_
    temperature_ : float
        Of the classifier's scores, as fitted.
    rescored_, learned_sizes_ : bool
        Which stages were kept.
    history_ : dict
        What happened in the training of each stage.

    Examples
    --------
    >>> import shortlist as sl
    >>> data = sl.datasets.digits()
    >>> fit, select, test = data.split(100, 1100)
    >>> h = sl.LinearClassifier(max_epochs=5, validation_fraction=0).fit(fit.x, fit.y)
    >>> model = sl.Shortlister(max_epochs=5)
    >>> model = model.fit(h.decision_function(select.x), select.y, features=select.x)
    >>> sets = model.predict_set(h.decision_function(test.x), features=test.x, accuracy=0.95)
    >>> sets.guarantee
    'accuracy >= 0.95 guaranteed by 275 calibration rows'
    """

    temperature_: float
    rescored_: bool
    learned_sizes_: bool
    history_: dict[str, object]

    def __init__(
        self,
        cost: Cost = "linear",
        *,
        accuracy: float = 0.95,
        cost_weight: float | None = None,
        rescore: bool | str = "auto",
        learn_sizes: bool | str = "auto",
        calibration: float | None = 0.25,
        by: str | None = None,
        allow_empty: bool = False,
        on_unreachable: str = "raise",
        folds: int = 5,
        width: int = 512,
        rank_width: int = 64,
        learning_rate: float = 5e-4,
        batch_size: int | None = None,
        weight_decay: float = 1e-2,
        max_epochs: int = 50,
        patience: int = 5,
        score_type: str = "auto",
        score_depth: int = 50,
        device: str = "auto",
        progress: Show = "auto",
        random_state: object = 0,
    ) -> None:
        self.cost = cost
        self.accuracy = accuracy
        self.cost_weight = cost_weight
        self.rescore = rescore
        self.learn_sizes = learn_sizes
        self.calibration = calibration
        self.by = by
        self.allow_empty = allow_empty
        self.on_unreachable = on_unreachable
        self.folds = folds
        self.width = width
        self.rank_width = rank_width
        self.learning_rate = learning_rate
        self.batch_size = batch_size
        self.weight_decay = weight_decay
        self.max_epochs = max_epochs
        self.patience = patience
        self.score_type = score_type
        self.score_depth = score_depth
        self.device = device
        self.progress = progress
        self.random_state = random_state

    def _check(self) -> None:
        super()._check()
        if self.cost_weight is not None:
            check_weight(self.cost_weight)
        for name in ("rescore", "learn_sizes"):
            _asked(getattr(self, name), name)
        check_count(self.folds, "folds", least=2)
        check_count(self.width, "width")
        check_count(self.rank_width, "rank_width")
        check_count(self.score_depth, "score_depth")
        self._training(rows=1)

    def _training(self, rows: int, most: int = 8 * BATCH) -> Training:
        largest = min(max(BATCH, rows // 128), most)
        batch = min(max(64, rows // 8), max(512, rows // FEWEST_STEPS), largest)
        batch = batch if self.batch_size is None else check_count(self.batch_size, "batch_size")
        return Training(
            # Of a batch that is larger than usual, steps are longer too, as for Adam they may be.
            learning_rate=self.learning_rate * max(1.0, batch / BATCH) ** 0.5,
            batch_size=batch,
            weight_decay=self.weight_decay,
            max_epochs=self.max_epochs,
            patience=self.patience,
            fewest_steps=FEWEST_STEPS,
            decoupled=True,
            # An average over about 125 steps of 1,024 rows, or 250 of fewer.
            averaging=1 - min(0.5, 0.008 * max(batch, 512) / BATCH),
            seed=seed_of(self.random_state),
        )

    def _learn(
        self, ranking: Ranking, index: Tensor, kind: ScoreType, features: Matrix | None
    ) -> None:
        rows = current_group().sum(len(ranking))
        enough = rows >= FEWEST_ROWS
        rescore, learn_sizes = (_asked(getattr(self, n), n) for n in ("rescore", "learn_sizes"))
        if rescore and features is None:
            raise ValueError("rescore=True needs features: fit(scores, y, features=X)")
        first = features is not None and (enough if rescore is None else rescore)
        second = enough if learn_sizes is None else learn_sizes
        if (first or second) and len(ranking) < self.folds:
            raise ValueError(
                f"folds = {self.folds} is more than the {len(ranking)} rows to learn from"
            )
        sizes = size_grid(ranking.depth)
        cost_table(self.cost, range(1, ranking.depth + 1))
        device = device_of(self.device, index if features is None else features)
        most = 8 * BATCH
        much = widely_ranked(ranking) or (features is not None and is_large_matrix(features))
        if device.type == "cpu" and current_group().max(int(much)):
            # Beside large scores no copies are made of features either, which follow all the same.
            features = None if features is None else as_lazy(features)
            widest = self.folds * max(ranking.n_classes, self.width)
            most = max(BATCH, min(most, BATCH_VALUES // widest))
        settings = self._training(rows, most)
        scale = fit_scale(ranking, index, kind)
        # Logits of candidates say nothing of the labels that are not listed; how many are is known.
        says_nothing = kind == "logits" and not ranking.is_dense
        unlisted = int(torch.isinf(ranking.rank_of(index)).sum()) if says_nothing else 0
        outside = current_group().sum(unlisted) / (rows + 1)
        start = _Scored(ranking, kind, scale)
        start = start.leaving(outside) if outside else start
        rescorer, ranked = None, start
        history: dict[str, object] = {}
        if first and features is not None:
            rescorer, out_of_fold = Rescorer.fit(
                start.ranking,
                index,
                start.kind,
                features,
                start.scale,
                settings,
                members=self.folds,
                width=self.width,
                device=device,
                progress=self.progress,
            )
            history["re-scoring"] = rescorer.history
            better = _Scored(out_of_fold, "log_proba", 1.0)
            if rescore or _helps(ranked.label_log_proba(index), better.label_log_proba(index)):
                ranked = better
            else:
                rescorer = None
        buckets = Buckets(sizes, outside=not ranking.is_dense or ranking.depth < ranking.n_classes)
        model = None
        if second:
            log_p = ranked.every_log_proba()
            rank = ranked.ranking.rank_of(index)
            model, masses = RankModel.fit(
                log_p,
                rank,
                buckets,
                features,
                settings,
                members=self.folds,
                width=self.rank_width,
                depth=min(self.score_depth, ranking.depth),
                device=device,
                progress=self.progress,
            )
            history["sizes"] = model.history
            own = buckets.of_rank(rank)
            before, after = (
                gather_columns(_masses(buckets, log_p), own),
                gather_columns(masses, own.to(masses.device)).to(own.device),
            )
            if not learn_sizes and not _helps(before.log(), after.log()):
                model = None
        self.temperature_, self.history_ = 1 / scale, history
        self.rescored_, self.learned_sizes_ = rescorer is not None, model is not None
        self._rescorer, self._rank_model, self._buckets = rescorer, model, buckets
        self._kind, self._scale, self._dense = kind, scale, ranking.is_dense
        self._outside = outside if rescorer or model else 0.0
        self._n_features = None if features is None else features.shape[1]
        self._wide_features = False if features is None else self._need_float64(features)

    def _need_float64(self, features: Matrix) -> bool:
        """Whether a column varies by too little, for its size, for float32 to tell values apart."""
        learned = self._rescorer or self._rank_model
        if learned is None or features.dtype != torch.float64:
            return False
        known = learned.network.standardize
        mean, scale = (t[: features.shape[1]].abs() for t in (known.mean, known.scale))
        return bool((mean > WELL_SCALED * scale).any())

    def _ranked(self, ranking: Ranking, features: Tensor | None) -> _Scored:
        """The rows after stage 1."""
        start = self._start(ranking)
        if self._rescorer is None:
            return start
        assert features is not None
        return _Scored(self._rescorer(start.ranking, features), "log_proba", 1.0)

    def _start(self, ranking: Ranking) -> _Scored:
        """The rows before it."""
        learned = self._rescorer is not None or self._rank_model is not None
        if learned and ranking.is_dense != self._dense:
            kinds = {True: "a score for every class", False: "lists of candidates"}
            raise ValueError(
                f"fit learned from rows with {kinds[self._dense]}, but these have "
                f"{kinds[ranking.is_dense]}; fit with rows such as these"
            )
        start = _Scored(ranking, self._kind, self._scale)
        return start.leaving(self._outside) if self._outside else start

    def _levels(self, ranking: Ranking, features: Tensor | None) -> tuple[Ranking, AnyLevels]:
        features = self._known(features)
        ranked = self._ranked(ranking, features)
        every_label = ranked.ranking.is_whole and self._buckets.sizes[-1] == ranking.n_classes
        if self._rank_model is None and self._costs_are_sizes and every_label:
            # What a label is worth is its own probability: nothing has to be sorted.
            return ranked.ranking, OwnScores(*ranked.by_column())
        log_p = ranked.log_proba(self._buckets.sizes[-1])
        every = torch.arange(1, log_p.shape[1], device=ranking.device)
        if self._rank_model is None:
            gains = log_p[:, :-1].to(torch.float64).exp()
            return ranked.ranking, Levels(slopes(gains, self._prices(every)), every)
        sizes = torch.tensor(self._buckets.sizes, device=ranking.device)
        gains = self._rank_model(log_p, features)[:, : len(sizes)]
        levels = slopes(gains, self._prices(sizes))
        return ranked.ranking, Levels(self._buckets.spread(levels, log_p), every)

    @property
    def _tolerance(self) -> float:
        learned = self._rescorer is not None or self._rank_model is not None
        return ROUNDING if learned else UNLEARNED

    @property
    def _block_elements(self) -> int:
        learned = self._rescorer is not None or self._rank_model is not None
        return RANKED_ELEMENTS // 4 if learned else RANKED_ELEMENTS

    def _known(self, features: Tensor | None) -> Tensor | None:
        """Features as fit saw them; none where they are not used."""
        if self._n_features is None:
            if features is not None:
                raise ValueError(
                    "features came, but fit saw none; leave them out, or fit with features=..."
                )
            return None
        unused = self._rescorer is None and self._rank_model is None
        if features is None:
            if unused:
                return None
            raise ValueError(
                f"features are missing: fit saw {self._n_features} of them; give features=... "
                "here too"
            )
        checked = as_features(features, columns=self._n_features)
        if unused:
            return None
        if self._wide_features and checked.dtype != torch.float64:
            warn(
                f"fit saw float64 features that {checked.dtype} cannot tell apart: the accuracy "
                "guaranteed may not be kept; give float64 features, or scale them first"
            )
        # One type and one order in memory, so that the same features are the same numbers.
        dtype = torch.float64 if self._wide_features else torch.float32
        return checked.to(dtype).contiguous()

    def rescored(self, scores: ArrayLike | Ranking, features: ArrayLike | None = None) -> Ranking:
        """The ranking that the sets are prefixes of, with log-probabilities as scores."""
        ranking, x = self._rows(scores, features)
        return self._ranked(ranking.with_precision("float32"), self._known(x)).normalised()

    def out_of_fold(
        self, scores: ArrayLike | Ranking, features: ArrayLike | None = None
    ) -> Ranking:
        """`rescored` for the very rows that were learned from, in the same order, each without
        the help of its own label. Needs `calibration=None`, so that these are all rows of `fit`."""
        ranking, x = self._rows(scores, features)
        known = self._known(x)
        if self._rescorer is None:
            return self._ranked(ranking, known).normalised()
        assert known is not None
        if len(ranking) != len(self._rescorer.folds):
            raise ValueError(
                f"{len(ranking)} rows came, but {len(self._rescorer.folds)} were learned from; "
                "out_of_fold takes the same rows in the same order"
            )
        return self._rescorer.out_of_fold(self._start(ranking).ranking, known)

    def _name(self) -> str:
        return "Shortlister"


@dataclass(frozen=True)
class _Scored:
    """A ranking, what its scores are, and their inverse temperature."""

    ranking: Ranking
    kind: ScoreType
    scale: float

    def log_proba(self, depth: int) -> Tensor:
        """Sorted log-probabilities, with the mass of all others last."""
        return sorted_log_proba(self.ranking, self.kind, depth, self.scale)

    def by_column(self) -> tuple[Tensor, Tensor | float | None]:
        """Probabilities of all labels, unsorted, where every one is listed; none is zero. And the
        sum of each row, if it is known."""
        p, sums = every_proba(self.ranking, self.kind, self.scale)
        plain = self.kind == "proba" and self.scale == 1
        return p.clamp(min=math.exp(LEAST_LOG_PROBA)) if plain else p, sums

    def every_log_proba(self) -> Matrix:
        """The same to the ranking's depth; of many rows, only when they are looked at."""
        return log_proba_of(self.ranking, self.kind, self.ranking.depth, self.scale)

    def leaving(self, outside: float) -> _Scored:
        """The same candidates, with a share of the mass left for labels that are not listed."""
        same = self.ranking
        labels, _ = same.top(same.depth)
        log_p = self.log_proba(same.depth)[:, :-1] + math.log1p(-outside)
        listed = (labels, torch.where(labels >= 0, log_p, 0))
        ranking = Ranking(classes=same.classes, depth=same.depth, kind=same.kind, listed=listed)
        return _Scored(ranking, "log_proba", 1.0)

    def normalised(self) -> Ranking:
        """The ranking by its log-probabilities."""
        same = self.ranking
        if self.kind == "log_proba" and self.scale == 1:
            return same
        if not same.is_dense:
            return self.leaving(0.0).ranking
        log_p = torch.cat(
            [torch.log_softmax(self.scale * self._logs(rows), dim=1) for rows in same.blocks()]
        )
        return Ranking(classes=same.classes, depth=same.depth, kind=same.kind, dense=log_p)

    def _logs(self, rows: slice) -> Tensor:
        """Logarithms of dense scores, in float64 and with a floor that falls by next to nothing,
        so that labels which differ still do."""
        scores = self.ranking.scores_of(rows).to(torch.float64)
        if self.kind == "logits":
            return scores
        if self.kind == "proba":
            scores = scores.clamp(min=torch.finfo(torch.float64).tiny).log()
        floored = scores.clamp(min=LEAST_LOG_PROBA)
        return floored + 1e-6 * (scores - floored)

    def label_log_proba(self, index: Tensor) -> Tensor:
        """The log-probability of each row's label; of one outside a list, that of all others."""
        log_p = self.every_log_proba()
        column = self.ranking.rank_of(index).clamp(max=log_p.shape[1] - 1).to(torch.int64)
        return gather_columns(log_p, column).to(torch.float64)


def _masses(buckets: Buckets, log_p: Matrix) -> Matrix:
    """The masses of buckets in all rows."""
    if isinstance(log_p, Tensor):
        return buckets.masses(log_p)
    return LazyMatrix(len(log_p), lambda rows: buckets.masses(log_p[rows]), wide=log_p.wide)


def _asked(value: object, name: str) -> bool | None:
    """Whether a stage is wanted; None: only if it helps."""
    if isinstance(value, bool | np.bool_):
        return bool(value)
    if not isinstance(value, str) or value != "auto":
        raise ValueError(f'{name} must be "auto", True or False; got {value!r}')
    return None


def _helps(before: Tensor, after: Tensor) -> bool:
    """Whether log-likelihoods of the same rows went up by more than chance."""
    gain = (after - before).to(torch.float64)
    rows = current_group().sum(len(gain))
    mean = current_group().sum(gain.sum()) / rows
    error = (current_group().sum((gain - mean).square().sum()) / (rows - 1) / rows) ** 0.5
    return bool(mean > SURE * error)
