"""Models as ONNX graphs, from scores (and features) to prediction sets, for any runtime."""

from shortlist.onnx.classifier import export_classifier
from shortlist.onnx.export import export_onnx, threshold_for
from shortlist.onnx.graph import Value
from shortlist.onnx.model_graph import ModelGraph
from shortlist.onnx.operating_points import OperatingPoint
from shortlist.onnx.rows import ScoreRows
from shortlist.onnx.sets import GraphSets

__all__ = [
    "export_onnx",
    "export_classifier",
    "threshold_for",
    "ScoreRows",
    "ModelGraph",
    "OperatingPoint",
    "GraphSets",
    "Value",
]
