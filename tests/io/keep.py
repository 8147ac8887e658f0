"""Write the models that must load for ever: `python tests/io/keep.py`, once for a version of
the format. What is there already stays as it is."""

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
        model = ZOO[name].make()
    model.save(folder / name)  # type: ignore[attr-defined]
    told = json.dumps(ZOO[name].ask(model), default=lambda a: a.tolist())
    (folder / f"{name}.json").write_text(told)
    print(name)
