"""All formats, by the names of the classes in model files."""

from __future__ import annotations

from collections.abc import Mapping

from shortlist.io.format import Format
from shortlist.io.formats.calibrations import CALIBRATION_FORMATS
from shortlist.io.formats.classifier import CLASSIFIER_FORMAT, COLUMN_FORMAT, ENCODER_FORMAT
from shortlist.io.formats.families import FAMILY_FORMATS
from shortlist.io.formats.models import INPUTS_FORMAT, PREDICTOR_FORMATS, ModelFormat
from shortlist.io.formats.networks import LOSS_FORMATS, NETWORK_FORMATS
from shortlist.io.formats.scores import SCORE_FORMATS
from shortlist.io.formats.shortlister import SHORTLISTER_FORMATS

MODEL_FORMATS: Mapping[type, ModelFormat] = {
    one.cls: one for one in (*PREDICTOR_FORMATS, CLASSIFIER_FORMAT)
}
"""Formats of what can be saved as a model, by class."""
FORMATS: Mapping[str, Format] = {
    one.name: one
    for one in (
        *MODEL_FORMATS.values(),
        *FAMILY_FORMATS,
        *CALIBRATION_FORMATS,
        *SCORE_FORMATS,
        INPUTS_FORMAT,
        COLUMN_FORMAT,
        ENCODER_FORMAT,
        *NETWORK_FORMATS,
        *LOSS_FORMATS,
        *SHORTLISTER_FORMATS,
    )
}
"""Formats of everything that a model file may contain, by name."""
