"""Guarantees: what is known about the accuracy of prediction sets, and on what grounds."""

from __future__ import annotations

from dataclasses import dataclass, replace
from fractions import Fraction
from typing import Literal, TypeAlias

from shortlist._utils.html import card, facts, paragraph

GuaranteeKind: TypeAlias = Literal["none", "marginal", "confidence", "certified"]


@dataclass(frozen=True)
class Guarantee:
    """A finite-sample statement about the accuracy of prediction sets.

    It prints as a sentence, and it is false in a boolean context if no accuracy is guaranteed.
    All statements are about new rows that are exchangeable with the calibration rows.

    Parameters
    ----------
    kind : {"none", "marginal", "confidence", "certified"}
        Type of the statement:

        - ``"none"``: nothing is guaranteed.
        - ``"marginal"``: the probability that a set contains the label is at least `accuracy`,
          over the draw of the calibration rows and of the new row.
        - ``"confidence"``: with probability ``1 - delta`` over the draw of the calibration rows,
          the accuracy on new rows is at least `accuracy`.
        - ``"certified"``: as ``"confidence"``, where `accuracy` was measured on calibration rows
          after the sets had been chosen by another goal, such as their mean size.
    accuracy : float, optional
        The guaranteed accuracy ("coverage" in the literature on conformal prediction).
    delta : float, optional
        Probability, over the draw of the calibration rows, that the statement fails.
    n_calibration : int, default=0
        Number of calibration rows behind the statement.
    conditional_on : {"class", "group"}, optional
        Whether the statement holds for each class or for each group separately.
    operating_point : str, default=""
        What was asked for in place of an accuracy, such as ``"cost_weight = 0.1"``.
    notes : tuple of str, default=()
        Exceptions and conditions, each as a clause.

    Examples
    --------
    >>> guarantee = Guarantee("marginal", accuracy=0.9, n_calibration=500)
    >>> print(guarantee)
    accuracy >= 0.9 guaranteed by 500 calibration rows
    >>> print(Guarantee("none", operating_point="cost_weight = 0.1"))
    cost_weight = 0.1; no accuracy is guaranteed
    >>> bool(guarantee), bool(NO_GUARANTEE)
    (True, False)
    """

    kind: GuaranteeKind
    accuracy: float | None = None
    delta: float | None = None
    n_calibration: int = 0
    conditional_on: str | None = None
    operating_point: str = ""
    notes: tuple[str, ...] = ()

    def __bool__(self) -> bool:
        """Return whether an accuracy is guaranteed."""
        return self.kind != "none"

    def __str__(self) -> str:
        """Return the guarantee as a sentence."""
        if self.kind == "none":
            clauses = [self.operating_point, "no accuracy is guaranteed", *self.notes]
        else:
            verb = "certified" if self.kind == "certified" else "guaranteed"
            sure = "" if self.delta is None else f" with probability {complement(self.delta):g}"
            whom = "" if self.conditional_on is None else f" for each {self.conditional_on}"
            rows = count_rows(self.n_calibration)
            first = f"accuracy >= {self.accuracy} {verb}{sure}{whom} by {rows}"
            clauses = [first, self.operating_point, *self.notes]
        return "; ".join(clause for clause in clauses if clause)

    def _repr_html_(self) -> str:
        """Return the guarantee as HTML, for notebooks."""
        values = {
            "accuracy": "" if self.accuracy is None else f"at least {self.accuracy}",
            "for each": self.conditional_on or "",
            "probability": "" if self.delta is None else f"{complement(self.delta):g}",
            "calibration rows": f"{self.n_calibration:,}" if self.n_calibration else "",
            "operating point": self.operating_point,
            "notes": "; ".join(self.notes),
        }
        known = facts({name: value for name, value in values.items() if value})
        return card("Guarantee", paragraph(str(self)), known)

    def with_note(self, note: str) -> Guarantee:
        """Return the same guarantee with one more note.

        Parameters
        ----------
        note : str
            Exception or condition, as a clause. An empty one is ignored.

        Returns
        -------
        Guarantee
        """
        return replace(self, notes=(*self.notes, note)) if note else self


NO_GUARANTEE = Guarantee("none")
"""Nothing is stated about the accuracy."""


def complement(probability: float) -> float:
    """Return one minus a probability, computed in decimal so that 1 - 0.9 is 0.1.

    Parameters
    ----------
    probability : float
        Number between 0 and 1.

    Returns
    -------
    float

    Examples
    --------
    >>> complement(0.9), 1 - 0.9
    (0.1, 0.09999999999999998)
    """
    return float(1 - Fraction(repr(float(probability))))


def count_rows(rows: int) -> str:
    """Return a number of calibration rows as text.

    Parameters
    ----------
    rows : int
        Number of rows.

    Returns
    -------
    str

    Examples
    --------
    >>> count_rows(1), count_rows(1000)
    ('1 calibration row', '1,000 calibration rows')
    """
    return f"{rows:,} calibration row{'' if rows == 1 else 's'}"
