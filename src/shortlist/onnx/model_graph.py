"""The graph of a model, and the methods that a model builds it with."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
from torch import nn

from shortlist.conformal.scores import ConformityScore
from shortlist.families import Family
from shortlist.guarantee import Guarantee
from shortlist.onnx.graph import F32, F64, INT, DType, Graph, Value
from shortlist.onnx.levels import GraphLevels
from shortlist.onnx.member_sizes import member_sizes
from shortlist.onnx.networks import Member, network_outputs
from shortlist.onnx.operating_points import OperatingPoint, resolve
from shortlist.onnx.rankings import Ranked
from shortlist.onnx.rows import ScoreRows
from shortlist.onnx.sets import GraphSets, nested_sets, prefixes, sets_at
from shortlist.predictors import ConformalPredictor
from shortlist.predictors.cardinality.inputs import SelectorInputs
from shortlist.ranking.score_types import ScoreType

F32_MAX = float(np.finfo(np.float32).max)


class ModelGraph:
    """The graph of a model, from scores to sets.

    `SetPredictor.onnx_sets` is called with a `ModelGraph`, and returns the result of one of its
    methods that return sets.

    Parameters
    ----------
    n_classes : int
        Number of classes.
    depth : int
        Number of labels to rank in each row.
    candidates : int or None
        Largest number of candidates of a row; None if every class has a score.
    dtype : numpy.dtype
        Type of the inputs `scores` and `features`.

    Attributes
    ----------
    graph : Graph
        Operations and inputs so far.
    """

    def __init__(self, n_classes: int, depth: int, candidates: int | None, dtype: DType) -> None:
        self.n_classes, self.depth, self.candidates = n_classes, depth, candidates
        self.dtype, self.graph = dtype, Graph()
        width = n_classes if candidates is None else candidates
        if candidates is not None:
            self._labels = self.graph.input("candidates", INT, ["rows", width])
        self._scores = self.graph.input("scores", dtype, ["rows", width])

    def rows(
        self,
        score_type: ScoreType,
        scale: float = 1.0,
        *,
        depth: int | None = None,
        single_precision: bool = False,
    ) -> ScoreRows:
        """Return the rows of the graph, with labels in decreasing order of their scores.

        Parameters
        ----------
        score_type : {"logits", "proba", "log_proba"}
            What the scores are.
        scale : float, default=1.0
            Inverse temperature.
        depth : int, optional
            Number of labels to rank. The default is that of the model. All candidates are always
            ranked.
        single_precision : bool, default=False
            Whether to round scores to float32 first, as conformal predictors do.

        Returns
        -------
        ScoreRows
        """
        scores, graph = self._scores, self.graph
        if single_precision and scores.dtype == F64:
            scores = scores.clamp(-F32_MAX, F32_MAX).to(F32)
        if self.candidates is None:
            ranked = Ranked.from_scores(graph, scores, self.n_classes, depth or self.depth)
        else:
            ranked = Ranked.from_candidates(
                graph, self._labels, scores, self.n_classes, self.candidates
            )
        return ScoreRows(ranked, score_type, scale, self.dtype)

    def conformal_sets(
        self,
        model: ConformalPredictor,
        score: ConformityScore,
        scale: float,
        point: OperatingPoint,
    ) -> GraphSets:
        """Return the sets of a conformal predictor.

        Parameters
        ----------
        model : ConformalPredictor
            Model that has the thresholds.
        score : ConformityScore
            Its fitted score.
        scale : float
            Inverse temperature.
        point : OperatingPoint
            Operating point. If nothing is given, the threshold is an input.

        Returns
        -------
        GraphSets
        """
        resolved = resolve(model, point)
        rows = self.rows(model.score_type_, scale, single_precision=True)
        levels = GraphLevels.from_score(score, rows)
        if not model.allow_empty:
            levels = levels.never_empty()
        if resolved.thresholds is None:
            sets = nested_sets(levels, self.graph.input("threshold", F64, []), may_be_all=True)
        else:
            sets = sets_at(levels, resolved.thresholds)
        return replace(sets, guarantee=resolved.guarantee, metadata=resolved.metadata)

    def member_sets(
        self,
        family: Family,
        member: Value | int,
        score_type: ScoreType,
        guarantee: Guarantee,
        metadata: dict[str, object],
        rows: ScoreRows | None = None,
    ) -> GraphSets:
        """Return the sets of one member of a family.

        Parameters
        ----------
        family : Family
            A family that implements `onnx_sizes`.
        member : Value of shape (n_rows, 1), or int
            Index of the member, for each row or for all.
        score_type : {"logits", "proba", "log_proba"}
            What the scores are.
        guarantee : Guarantee
            What the sets guarantee.
        metadata : dict
            What the file says about the operating point.
        rows : ScoreRows, optional
            The rows, if `member` was computed from them.

        Returns
        -------
        GraphSets
        """
        width = family.max_size(self.depth)
        rows = self.rows(score_type, depth=width) if rows is None else rows
        index = rows.ranked.labels[:, :1] * 0 + member if isinstance(member, int) else member
        chosen = member_sizes(self.graph, rows.sizes_of(family)).of(index)
        sets = prefixes(rows.ranked, chosen, index, width)
        return replace(sets, guarantee=guarantee, metadata=metadata)

    def network_sets(
        self,
        family: Family,
        network: nn.Module,
        inputs: SelectorInputs,
        free: Sequence[bool],
        member: int | None,
        guarantee: Guarantee,
        metadata: dict[str, object],
    ) -> GraphSets:
        """Return the sets that a selector's network chooses from a family.

        Parameters
        ----------
        family : Family
            A family that implements `onnx_sizes`.
        network : nn.Module
            Network whose outputs are the scores of the members, or the networks of a path.
        inputs : SelectorInputs
            Inputs of the network.
        free : sequence of bool
            Whether each network of the path always chooses the largest set, since it costs nothing.
        member : int or None
            Index of the network in the path. None if it is the input `member`.
        guarantee : Guarantee
            What the sets guarantee.
        metadata : dict
            What the file says about the operating point.

        Returns
        -------
        GraphSets
        """
        sees_scores = inputs.inputs != "features"
        width = family.max_size(self.depth)
        depth = max(width, inputs.score_depth) if sees_scores else width
        rows = self.rows(inputs.score_type, depth=depth)
        chosen: Member = self.graph.input("member", INT, []) if member is None else member
        parts = [] if inputs.n_features is None else [rows.features(inputs.n_features)]
        n_in = inputs.n_features or 0
        if sees_scores:
            parts.append(rows.log_proba(inputs.score_depth))
            n_in += inputs.score_depth + 1
        outputs = network_outputs(network, self.graph.concat(parts), n_in, chosen)
        # Among equal outputs, the last one is chosen: the largest set.
        index = self.graph.op("ArgMax", outputs, dtype=INT, axis=1, select_last_index=1)
        last = index * 0 + (len(family) - 1)
        if member is not None:
            index = last if free[member] else index
        elif any(free):
            is_free = self.graph.constant(np.array(free)).take(chosen, axis=0)
            index = self.graph.where(is_free, last, index)
        return self.member_sets(family, index, inputs.score_type, guarantee, metadata, rows)
