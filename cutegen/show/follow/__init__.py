"""Where one element is, from global memory to the accumulators: what the text, the page and tests read alike."""

from __future__ import annotations

from cutegen.show.follow.operands import OperandFollower
from cutegen.show.follow.places import Element, OperandWay, ResultWay
from cutegen.show.follow.results import ResultFollower
from cutegen.show.follow.way import Follower, follow

__all__ = ["Element", "Follower", "OperandFollower", "OperandWay", "ResultFollower", "ResultWay", "follow"]
