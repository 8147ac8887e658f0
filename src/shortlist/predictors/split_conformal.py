"""Split conformal prediction by the name of its score."""

from __future__ import annotations

from inspect import Parameter, signature

from shortlist._utils.validation import check_choice
from shortlist.conformal.scores import ConformityScore, score_class
from shortlist.predictors.conformal import ConformalPredictor


class SplitConformal(ConformalPredictor):
    """Split conformal prediction: a short way to write a `ConformalPredictor`.

    ``SplitConformal("aps")`` is ``ConformalPredictor(APS(), Marginal())``.

    Parameters
    ----------
    score : str, default="lac"
        Name of a registered score: "lac", "aps", "raps", "saps", "topk", "margin", or your own
        (:func:`shortlist.conformal.register_score`). LAC, a threshold on the probabilities, gives
        the shortest sets. APS gives easy and hard rows more similar accuracies, at the price of
        longer sets. RAPS and SAPS are variants of APS with shorter sets.
    accuracy : float, default=0.95
        Accuracy that `predict_set` guarantees unless it is given another one.
    randomized : bool, default=False
        Randomize APS, RAPS, SAPS and top-k, which makes sets shorter. The random number of a row
        depends on its scores and on `random_state` alone, so results do not depend on the batch.
    temperature : "auto", "size", None or float, default="auto"
        Temperature of the probabilities. "auto" takes the one with the largest likelihood, and
        "size" the one with the shortest sets at `accuracy`, which shortens those of APS, RAPS and
        SAPS; both on rows that are not used for calibration. None leaves scores unchanged.
    penalty, k_reg : "auto" or number, default="auto"
        Parameters of RAPS (both) and SAPS (penalty). "auto" is the default of the score: RAPS and
        SAPS take the values with the shortest sets at `accuracy`, on rows that are not used for
        calibration.
    calibration : float or None, default=0.75
        Fraction of the rows of `fit` that is held out for calibration. Temperature and penalties
        are fitted on the others. If there is nothing to fit, all rows are used for calibration.
        With None, no rows are held out, and `calibrate` must be called.
    by : str or None, default=None
        Name of a registered calibrator: "class" or "group" guarantees the accuracy for each class
        or each group, "marginal" (or None) on average over all rows.
    allow_empty : bool, default=False
        Whether a set may be empty. If not, each set contains at least its row's first label. The
        calibration takes this into account: a true label that is ranked first is in the set at
        every threshold. Sets are then shorter than those of the textbook rule, which allows empty
        sets.
    on_unreachable : {"raise", "all"}, default="raise"
        What to do about an accuracy that cannot be guaranteed: raise an error, or return every
        label.
    score_type : {"auto", "logits", "proba", "log_proba"}, default="auto"
        Type of the scores. "auto" decides at fit; see `score_type_`.
    random_state : int, RandomState instance or None, default=0
        Seed of the split and of the random numbers.

    Attributes
    ----------
    score_ : ConformityScore
        The fitted score.
    temperature_ : float
        Temperature in use.
    classes_ : array
        Classes, in the order of the score columns.
    score_type_ : str
        Type of the scores.

    Examples
    --------
    >>> import shortlist as sl
    >>> data = sl.datasets.gaussian(6000)
    >>> select, test = data.split(4000)
    >>> model = sl.SplitConformal("lac").fit(select.posterior, select.y)
    >>> sets = model.predict_set(test.posterior, accuracy=0.9)
    >>> bool(0.87 < sets.accuracy(test.y) < 0.93), str(sets.guarantee)
    (True, 'accuracy >= 0.9 guaranteed by 3,000 calibration rows')
    """

    def __init__(
        self,
        score: str = "lac",
        *,
        accuracy: float = 0.95,
        randomized: bool = False,
        temperature: float | str | None = "auto",
        penalty: float | str = "auto",
        k_reg: int | str = "auto",
        calibration: float | None = 0.75,
        by: str | None = None,
        allow_empty: bool = False,
        on_unreachable: str = "raise",
        score_type: str = "auto",
        random_state: object = 0,
    ) -> None:
        self.score = score  # type: ignore[assignment]
        self.accuracy = accuracy
        self.randomized = randomized
        self.temperature = temperature
        self.penalty = penalty
        self.k_reg = k_reg
        self.calibration = calibration
        self.by = by
        self.allow_empty = allow_empty
        self.on_unreachable = on_unreachable
        self.score_type = score_type
        self.random_state = random_state

    def _make_score(self) -> ConformityScore:
        """Return the score named by `score`, with the parameters that it takes."""
        cls = score_class(self.score)
        known = cls._get_param_names()
        if self.randomized and "randomized" not in known:
            raise ValueError(
                f"score = {self.score!r} cannot be randomized; leave randomized=True out"
            )
        names = ("randomized", "penalty", "k_reg", "accuracy", "random_state")
        values = {name: getattr(self, name) for name in names if name in known}
        values = {name: value for name, value in values.items() if value != "auto"}
        defaults = {name: p.default for name, p in signature(cls).parameters.items()}
        required = [n for n in known if defaults[n] is Parameter.empty and n not in values]
        if required:
            arguments = ", ".join(f"{name}=..." for name in required)
            raise ValueError(
                f"score = {self.score!r} needs {', '.join(required)}, without a default; write "
                f"ConformalPredictor({cls.__name__}({arguments}))"
            )
        return cls(**values)

    def _check_parameters(self) -> None:
        """Raise if a parameter has an invalid value."""
        super()._check_parameters()
        score_class(self.score)
        for name in ("penalty", "k_reg"):
            if isinstance(getattr(self, name), str):
                check_choice(getattr(self, name), name, ("auto",))
