"""Levels of labels, in the forms in which they are computed."""

from shortlist.conformal.levels.blocks import LevelBlocks
from shortlist.conformal.levels.column_levels import ColumnLevels
from shortlist.conformal.levels.protocol import Block, Nested, NestedLevels, Sets
from shortlist.conformal.levels.sorted_levels import Levels
from shortlist.conformal.levels.unsorted_levels import UnsortedLevels

__all__ = [
    "NestedLevels",
    "Levels",
    "ColumnLevels",
    "UnsortedLevels",
    "Sets",
    "Nested",
    "Block",
    "LevelBlocks",
]
