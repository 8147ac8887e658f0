"""One measurement in a process of its own: a task as JSON comes in, a result as JSON goes out.

    python worker.py '{"measure": "conformal", "library": "shortlist", "score": "lac", …}'

`run.py` starts it with the interpreter that has the library.
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
HOMES = {
    "shortlist": "ours.Shortlist",
    "mapie": "peers.Mapie",
    "torchcp": "peers.TorchCP",
    "puncc": "peers.Puncc",
    "crepes": "peers.Crepes",
}
WARM_ROWS = 40


def conformal(
    library: str,
    score: str,
    kind: str,
    levels: list[float],
    folder: str,
    rows: int,
    new_rows: int,
    penalty: float,
    k_reg: int,
) -> Result:
    """Calibrate on some rows, predict the sets of others at all levels."""
    from drawn import read
    from meter import metered

    module, name = HOMES[library].split(".")
    method = getattr(importlib.import_module(module), name)
    (p, y), (q, z) = (
        read(Path(folder), name, kind, m) for name, m in (("old", rows), ("new", new_rows))
    )
    warm_up(method(score, kind, penalty, k_reg), levels)
    made = method(score, kind, penalty, k_reg)

    def both() -> tuple[Any, float]:
        begun = time.perf_counter()
        made.calibrate(p, y)
        calibrated = time.perf_counter() - begun
        return made.predict(q, levels), calibrated

    (sets, calibrated), spent = metered(both)
    judged = [made.sizes_and_hits(one, z) for one in sets]
    return {
        **spent,
        "calibrate": calibrated,
        "predict": spent["seconds"] - calibrated,
        "mean_size": float(sum(sizes.mean() for sizes, _ in judged)) / len(judged),
        "coverage": float(sum(hits.mean() for _, hits in judged)) / len(judged),
        "version": method.version,
    }


def warm_up(method: Any, levels: list[float]) -> None:
    """Nobody pays for what is loaded at the first use. Every class is there, twice and more."""
    import numpy as np

    y = np.arange(10).repeat(WARM_ROWS)
    p = np.random.default_rng(0).dirichlet(np.ones(10), size=len(y)).astype(np.float32)
    method.calibrate(p, y)
    method.predict(p, levels)


def predicting(method: str, rows: int, classes: int) -> Result:
    """`predict_set` for many rows, by a model that few rows have calibrated."""
    from drawn import draw
    from meter import metered

    import shortlist as sl

    few = draw(500, classes, seed=1)
    if method == "shortlister":
        model = sl.Shortlister(max_epochs=2, progress=False)
    else:
        model = sl.SplitConformal(method, temperature=None)
    model.fit(*few)
    model.predict_set(few[0], accuracy=0.9)
    p, _ = draw(rows, classes)
    sets, spent = metered(lambda: model.predict_set(p, accuracy=0.9))
    return {**spent, "mean_size": sets.mean_size}


def selecting(members: int, rows: int, classes: int) -> Result:
    """The paper's selector over |K| = `members` sets: one epoch, and its sets for the same rows."""
    import numpy as np
    from drawn import draw
    from meter import metered

    import shortlist as sl

    p, y = draw(rows, classes)
    x = np.random.default_rng(0).standard_normal((rows, 32), dtype=np.float32)
    family = sl.TopK(range(1, members + 1))
    model = sl.CardinalitySelector(family, max_epochs=1, validation_fraction=0)
    model.fit(p[:500], y[:500], x[:500])
    _, spent = metered(lambda: model.fit(p, y, x).predict_set(p, x))
    return dict(spent)


def importing(code: str) -> Result:
    """What an import takes after Python has started, and which heavy modules it brings."""
    begun = time.perf_counter()
    exec(code, {})
    seconds = time.perf_counter() - begun
    return {"seconds": seconds, "loaded": [m for m in ("torch", "sklearn") if m in sys.modules]}


MEASURES: dict[str, Callable[..., Result]] = {
    function.__name__: function for function in (conformal, predicting, selecting, importing)
}

if __name__ == "__main__":
    warnings.simplefilter("ignore")
    asked = json.loads(sys.argv[1])
    print(json.dumps(MEASURES[asked.pop("measure")](**asked)))
