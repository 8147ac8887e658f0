"""Run one measurement in a process of its own: the task and the result are JSON.

    python worker.py '{"measure": "conformal", "library": "shortlist", "score": "lac", …}'

`run.py` starts this script with the interpreter that has the library.
"""

from __future__ import annotations

import importlib
import json
import sys
import time
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

Result = dict[str, Any]
ADAPTERS = {
    "shortlist": "this_library.Shortlist",
    "numpy": "plain_numpy.PlainNumPy",
    "mapie": "other_libraries.Mapie",
    "torchcp": "other_libraries.TorchCP",
    "puncc": "other_libraries.Puncc",
    "crepes": "other_libraries.Crepes",
}
WARM_UP_ROWS_PER_CLASS = 40


def conformal(
    library: str,
    score: str,
    score_type: str,
    levels: list[float],
    folder: str,
    rows: int,
    new_rows: int,
    parameters: dict[str, Any],
) -> Result:
    """Measure calibration, and prediction of new rows at all levels."""
    from meter import measure
    from random_scores import read

    module, name = ADAPTERS[library].split(".")
    adapter = getattr(importlib.import_module(module), name)
    scores, y = read(Path(folder), "calibration", score_type, rows)
    new_scores, new_y = read(Path(folder), "new", score_type, new_rows)
    warm_up(adapter(score, score_type, **parameters), levels)
    method = adapter(score, score_type, **parameters)

    def calibrate_and_predict() -> tuple[Any, float]:
        start = time.perf_counter()
        method.calibrate(scores, y)
        calibration_seconds = time.perf_counter() - start
        return method.predict(new_scores, levels), calibration_seconds

    (sets_by_level, calibration_seconds), usage = measure(calibrate_and_predict)
    evaluations = [method.sizes_and_hits(sets, new_y) for sets in sets_by_level]
    return {
        **usage,
        "calibrate": calibration_seconds,
        "predict": usage["seconds"] - calibration_seconds,
        "mean_size": float(sum(sizes.mean() for sizes, _ in evaluations)) / len(evaluations),
        "coverage": float(sum(hits.mean() for _, hits in evaluations)) / len(evaluations),
        "version": adapter.version,
    }


def warm_up(method: Any, levels: list[float]) -> None:
    """Run a method on few rows, so that imports at the first use are not measured."""
    import numpy as np

    y = np.arange(10).repeat(WARM_UP_ROWS_PER_CLASS)
    scores = np.random.default_rng(0).dirichlet(np.ones(10), size=len(y)).astype(np.float32)
    method.calibrate(scores, y)
    method.predict(scores, levels)


def predict_set(method: str, rows: int, classes: int) -> Result:
    """Measure `predict_set` for many rows, with a model that was calibrated on few rows."""
    from meter import measure
    from random_scores import draw

    import shortlist as sl

    few_scores, few_y = draw(500, classes, seed=1)
    if method == "shortlister":
        model = sl.Shortlister(max_epochs=2, progress=False)
    else:
        model = sl.SplitConformal(method, temperature=None)
    model.fit(few_scores, few_y)
    model.predict_set(few_scores, accuracy=0.9)
    scores, _ = draw(rows, classes)
    sets, usage = measure(lambda: model.predict_set(scores, accuracy=0.9))
    return {**usage, "mean_size": sets.mean_size}


def selector(members: int, rows: int, classes: int) -> Result:
    """Measure the selector of the paper with |K| = `members`: one epoch, and prediction."""
    import numpy as np
    from meter import measure
    from random_scores import draw

    import shortlist as sl

    scores, y = draw(rows, classes)
    x = np.random.default_rng(0).standard_normal((rows, 32), dtype=np.float32)
    family = sl.TopK(range(1, members + 1))
    model = sl.CardinalitySelector(family, max_epochs=1, validation_fraction=0)
    model.fit(scores[:500], y[:500], x[:500])
    _, usage = measure(lambda: model.fit(scores, y, x).predict_set(scores, x))
    return dict(usage)


def import_time(code: str) -> Result:
    """Measure an import after Python has started, and list the heavy modules that it loads."""
    start = time.perf_counter()
    exec(code, {})
    seconds = time.perf_counter() - start
    return {"seconds": seconds, "loaded": [m for m in ("torch", "sklearn") if m in sys.modules]}


MEASURES: dict[str, Callable[..., Result]] = {
    function.__name__: function for function in (conformal, predict_set, selector, import_time)
}

if __name__ == "__main__":
    warnings.simplefilter("ignore")
    task = json.loads(sys.argv[1])
    print(json.dumps(MEASURES[task.pop("measure")](**task)))
