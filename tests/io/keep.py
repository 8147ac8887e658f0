"""Write the models that must always load: `python tests/io/keep.py`.

It is run once for each version of the format. Models that exist already are not changed.
"""

from __future__ import annotations

import json
import warnings
from pathlib import Path

from zoo import FIXTURES, ZOO

from shortlist.io.persistence import FORMAT_VERSION

folder = Path(__file__).parent / "models" / f"v{FORMAT_VERSION}"
for name in FIXTURES:
    if (folder / name).exists():
        continue
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        model = ZOO[name].fit_model()
    model.save(folder / name)  # type: ignore[attr-defined]
    predictions = json.dumps(ZOO[name].predict(model), default=lambda a: a.tolist())
    (folder / f"{name}.json").write_text(predictions)
    print(name)
