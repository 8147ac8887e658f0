"""Surrogate losses, one file each. The first eight are those of the paper."""

from __future__ import annotations

from shortlist.losses.record import RHO, Q
from shortlist.losses.records.constrained_exp import CONSTRAINED_EXP
from shortlist.losses.records.exp import EXP
from shortlist.losses.records.gce import gce
from shortlist.losses.records.hinge import HINGE
from shortlist.losses.records.log import LOG
from shortlist.losses.records.mae import MAE
from shortlist.losses.records.margin import margin
from shortlist.losses.records.squared_hinge import SQUARED_HINGE
from shortlist.losses.registry import register_loss

register_loss(LOG)
register_loss(EXP)
register_loss(gce, parameter=Q)
register_loss(MAE)
register_loss(CONSTRAINED_EXP)
register_loss(SQUARED_HINGE)
register_loss(HINGE)
register_loss(margin, parameter=RHO)
