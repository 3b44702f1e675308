"""The complete path of an element of A, B or C, for a problem."""

from __future__ import annotations

from dataclasses import replace

from cutegen.contract.launch import OPERANDS
from cutegen.contract.problem import ProblemShape
from cutegen.plan import GemmPlan
from cutegen.plan.kernel.scheduler import k_tiles_of, slice_of
from cutegen.show.follow.locations import (
    Element,
    ElementPath,
    GlobalLocation,
    OperandElementPath,
    ResultElementPath,
    global_location,
)
from cutegen.show.follow.operands import OperandFollower
from cutegen.show.follow.results import ResultFollower
from cutegen.show.follow.vectors import Surroundings

_EXCHANGED = {"a": "b", "b": "a"}


class Follower:
    """A plan's tables, computed once for any number of elements; coordinates are those of complete matrices.

    If A and B are swapped, `elements` have the names of the call, and `read_as` is the kernel's name.
    """

    def __init__(self, plan: GemmPlan, problem: ProblemShape) -> None:
        self.plan, self.problem = plan, problem
        self.operands = {name: OperandFollower(plan, name) for name in OPERANDS}
        self.result = ResultFollower(plan)

    def path_of(self, element: Element) -> ElementPath:
        """Return the path of `element`. Raises RequestError if the problem has no such element."""
        return self._of_result(element) if element.operand == "c" else self._of_operand(element)

    def _of_operand(self, element: Element) -> OperandElementPath:
        name = _EXCHANGED[element.operand] if self.plan.swapped else element.operand
        follower = self.operands[name]
        x = follower.operand
        extents = (getattr(self.problem, element.modes[0]), self.problem.k)
        major = "k" if x.major == "k" else element.modes[0]
        source = global_location(
            element, extents, major=major, align_bytes=x.align_bytes, element_bytes=x.dtype.bytes, tile=x.tile
        )
        tile_k = source.tile[1]
        slices, k_tiles = self.plan.slices, -(-self.problem.k // x.tile[1])
        slice_ = slice_of(tile_k, slices, k_tiles)
        stage = k_tiles_of(slice_, slices, k_tiles).index(tile_k) % self.plan.stages
        return OperandElementPath(
            element=element,
            read_as=name,
            dtype=x.dtype.name,
            source=source,
            k_tile=tile_k,
            slice=slice_,
            slices=slices,
            copy=follower.copy(source.within, _around(element, source)),
            shared=follower.shared(source.within, stage),
            loads=follower.loads(source.within, stage),
            reads=follower.reads(source.within, stage),
            meets=follower.meets(source.within),
        )

    def _of_result(self, element: Element) -> ResultElementPath:
        c, tile = self.plan.epilogue, self.plan.cta_tile[:2]
        major = c.major
        if self.plan.swapped:
            tile, major = (tile[1], tile[0]), "mn"[major == "m"]
        extents = self.problem.m, self.problem.n
        target = global_location(
            element, extents, major=major, align_bytes=c.align_bytes, element_bytes=c.dtype.bytes, tile=tile
        )
        within, around = target.within, _around(element, target)
        if self.plan.swapped:
            within, around = within[::-1], replace(around, left=around.left[::-1])
        return ResultElementPath(
            element=element,
            dtype=c.dtype.name,
            read_as="c, transposed" if self.plan.swapped else "c",
            held=self.result.held(within),
            staged=self.result.staged(within),
            store=self.result.store(within, around),
            target=target,
            slices=self.plan.slices,
        )


def follow(plan: GemmPlan, element: Element, problem: ProblemShape) -> ElementPath:
    """Follow one element. Raises RequestError if the problem has no such element."""
    return Follower(plan, problem).path_of(element)


def _around(element: Element, place: GlobalLocation) -> Surroundings:
    """Return the matrix around the element, with its modes in the call's order."""
    (x, y), (extent_x, extent_y) = element.coordinate, place.extents
    return Surroundings(byte=place.byte, leading_elems=place.leading_elems, left=(extent_x - x, extent_y - y))
