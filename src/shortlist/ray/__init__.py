"""Tables of any length on a Ray cluster: the same models, sets and guarantees.

`shortlist.ray.fit`, `calibrate`, `predict_set` and `compare` take paths of Parquet files. Needs
`pip install 'shortlist[ray]'`. Ray is found, or started on this machine, when it is first used.
"""

from __future__ import annotations

from shortlist.ray.calibration import calibrate
from shortlist.ray.comparison import compare
from shortlist.ray.fitting import fit
from shortlist.ray.prediction import Predicted, predict_set

__all__ = ["Predicted", "calibrate", "compare", "fit", "predict_set"]
