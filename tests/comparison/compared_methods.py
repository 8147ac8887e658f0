"""A comparison with everything that is needed to repeat it without `compare`."""

from __future__ import annotations

from dataclasses import dataclass, field

from small_methods import Part

import shortlist as sl


@dataclass(frozen=True)
class ComparedMethods:
    """A comparison, its methods, and its rows for each purpose."""

    comparison: sl.Comparison
    methods: dict[str, sl.SetPredictor]
    train: Part
    calibration: Part
    test: Part
    _refitted: dict[tuple[str, float | None], sl.SetPredictor] = field(default_factory=dict)

    def fit_by_hand(self, name: str, accuracy: float | None = None) -> sl.SetPredictor:
        """Return one of the methods, fitted and calibrated without `compare`.

        RAPS and SAPS are tuned for the accuracy.
        """
        tuned_for = accuracy if name in ("RAPS", "SAPS") else None
        if (name, tuned_for) not in self._refitted:
            parameters = self.methods[name].get_params()
            if "calibration" in parameters:
                parameters["calibration"] = None
            if tuned_for is not None:
                parameters["accuracy"] = tuned_for
            model = type(self.methods[name])(**parameters).fit(*self.train)
            if hasattr(model, "calibrate"):
                model.calibrate(*self.calibration)
            self._refitted[name, tuned_for] = model
        return self._refitted[name, tuned_for]
