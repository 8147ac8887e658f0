"""Name the columns of scores after the classes."""

from __future__ import annotations

from shortlist._utils.arrays import ArrayLike
from shortlist._utils.frames import check_classes, classes_of_columns
from shortlist._utils.labels import Classes, label_array
from shortlist.ranking.ranking import Ranking


def name_classes(ranking: Ranking, y: ArrayLike, classes: ArrayLike | None = None) -> Ranking:
    """Return the ranking with classes as the names of its columns.

    Parameters
    ----------
    ranking : Ranking
        Rows with labels.
    y : array-like of shape (n_rows,)
        Labels.
    classes : array-like of shape (n_classes,), optional
        Classes. By default, those that the ranking has, or the names of the columns of a frame;
        labels of other rankings that are not integers are taken in sorted order.

    Returns
    -------
    Ranking

    Examples
    --------
    >>> ranking = Ranking.from_scores([[0.9, 0.1], [0.2, 0.8]])
    >>> name_classes(ranking, ["cat", "dog"]).classes
    Classes(2 classes: 'cat', 'dog')
    """
    if classes is not None:
        given = Classes(ranking.n_classes, classes)
        if ranking.columns is not None:
            check_classes(ranking.columns, given.array().tolist())
        return with_equal_classes(ranking, given)
    if ranking.classes.values is not None:
        return ranking
    columns = ranking.columns
    names = None if columns is None else classes_of_columns(columns, label_array(y))
    return ranking.with_classes(Classes.infer(y, ranking.n_classes, names))


def with_equal_classes(ranking: Ranking, classes: Classes) -> Ranking:
    """Return the ranking with these classes; raise if it has other ones itself."""
    if ranking.classes.values is not None and ranking.classes != classes:
        raise ValueError(
            f"the ranking names its columns {ranking.classes.array().tolist()}, but the "
            f"classes are {classes.array().tolist()}; give columns in one order"
        )
    return ranking.with_classes(classes)
