"""Follows one element from global memory to the accumulators: text, page and tests read the same values."""

from cutegen.show.follow.element_path import Follower, follow
from cutegen.show.follow.locations import Element, ElementPath, OperandElementPath, ResultElementPath, ResultFactorPath
from cutegen.show.follow.operands import OperandFollower
from cutegen.show.follow.results import ResultFollower

__all__ = [
    "Element",
    "ElementPath",
    "Follower",
    "OperandElementPath",
    "OperandFollower",
    "ResultElementPath",
    "ResultFactorPath",
    "ResultFollower",
    "follow",
]
