"""Follows one element from global memory to the accumulators: text, page and tests read the same values."""

from __future__ import annotations

from cutegen.show.follow.operands import OperandFollower
from cutegen.show.follow.places import Element, OperandWay, ResultWay
from cutegen.show.follow.results import ResultFollower
from cutegen.show.follow.way import Follower, follow

__all__ = ["Element", "Follower", "OperandFollower", "OperandWay", "ResultFollower", "ResultWay", "follow"]
