"""Barriers of a CTA, of a cluster and of a warp: `bar`, `barrier`, `barrier.cluster`, `bar.warp.sync`.

Source: PTX ISA, `bar`/`barrier`, `barrier.cluster`, `bar.warp.sync`.
"""

import numpy as np

from cutegen.ptx.instructions.collective import for_members
from cutegen.ptx.machine.blocks import Arrival, Deliver, End, executing
from cutegen.ptx.machine.cluster_barrier import ClusterBarrier
from cutegen.ptx.machine.convergence import check_converged
from cutegen.ptx.machine.lowering import Lowering, Modifiers, Predicate, Step
from cutegen.ptx.machine.rows import Row, Ways
from cutegen.ptx.machine.warp import Path, Warp
from cutegen.ptx.text.flow import Ends
from cutegen.ptx.text.syntax import WARP_LANES, Instruction, Operand, scalar_type
from cutegen.ptx.watch.violations import ViolationKind

_U32, _PRED = scalar_type("u32"), scalar_type("pred")


def _barrier(context: Lowering, instruction: Instruction, predicate: Predicate | None, ways: Ways) -> End:
    """The end of a block with `bar.sync`, `bar.arrive`, `bar.red` and their `barrier` forms.

    A predicate must be the same in all lanes of the warp: either they all arrive or none does.
    """
    modifiers = Modifiers(instruction)
    modifiers.flag("cta", "aligned")
    mode = modifiers.need("sync", "arrive", "red")
    operands = list(instruction.operands)
    deliver, vote = None, None
    if mode == "red":
        deliver, vote, operands = _reduction(context, instruction, modifiers)
    modifiers.finish()
    if len(operands) not in (1, 2) or (mode == "arrive" and len(operands) != 2):
        raise instruction.error("expected a barrier and, for .arrive, the number of threads")
    cells = [context.source(instruction, operand, _U32) for operand in operands]
    site = context.site

    def end(warp: Warp, path: Path) -> Arrival | None:
        path.block = ways.following
        if predicate is not None and not _all_arrive(warp, site, predicate):
            return None
        check_converged(warp, site)
        number = int(warp.cells[cells[0]][warp.lanes()[0]])
        threads = int(warp.cells[cells[1]][warp.lanes()[0]]) if len(cells) == 2 else None
        _check_barrier(warp, site, number, threads)
        votes = 0 if vote is None else int(np.count_nonzero(executing(warp, vote)))
        return Arrival(
            barrier=number,
            threads=threads,
            waits=mode != "arrive",
            votes=votes,
            against=0 if vote is None else warp.count - votes,
            site=site,
            deliver=deliver,
        )

    return end


def _cluster_wait(context: Lowering, instruction: Instruction, predicate: Predicate | None, ways: Ways) -> End:
    """The end of a block with `barrier.cluster.wait{.acquire}{.aligned}`."""
    modifiers = Modifiers(instruction)
    modifiers.flag("cluster", "wait")
    modifiers.flag("acquire")
    aligned = modifiers.flag("aligned")
    modifiers.finish()
    if instruction.operands:
        raise instruction.error("expected no operands")
    site = context.site

    def end(warp: Warp, path: Path) -> ClusterBarrier | None:
        barrier = warp.cta.cluster.barrier
        with warp.narrowed(executing(warp, predicate)):
            if warp.count and aligned:
                check_converged(warp, site)
            if warp.count and not barrier.wait(warp, site):
                return barrier
        path.block = ways.following
        return None

    return end


def _lower_cluster_arrival(context: Lowering, instruction: Instruction) -> Step:
    """`barrier.cluster.arrive{.release|.relaxed}{.aligned}`, at which a warp does not block."""
    modifiers = context.modifiers(instruction, 0)
    modifiers.need("cluster")
    modifiers.need("arrive")
    relaxed = modifiers.one_of("relaxed", "release") == "relaxed"
    aligned, site = modifiers.flag("aligned"), context.site
    modifiers.finish()

    def step(warp: Warp) -> None:
        if aligned:
            check_converged(warp, site)
        warp.cta.cluster.barrier.arrive(warp, site, relaxed=relaxed)

    return step


def _lower_warp_barrier(context: Lowering, instruction: Instruction) -> Step:
    """`bar.warp.sync members`: orders the memory accesses of the warp's lanes."""
    modifiers = Modifiers(instruction)
    modifiers.need("warp")
    modifiers.need("sync")
    modifiers.finish()
    if len(instruction.operands) != 1:
        raise instruction.error("expected a member mask")

    def act(warp: Warp) -> None:
        warp.cta.ordering.warp_sync(warp)

    return for_members(context, instruction, instruction.operands[0], act)


def _all_arrive(warp: Warp, site: int, predicate: Predicate) -> bool:
    arrives = executing(warp, predicate)
    count = int(np.count_nonzero(arrives))
    if count not in (0, warp.count):
        lane = int(np.argmin(arrives))
        message = "the predicate of a barrier differs between the lanes of a warp"
        warp.cta.fault(ViolationKind.DIVERGENCE, site, warp.thread0 + lane, message)
    return count > 0


def _check_barrier(warp: Warp, site: int, number: int, threads: int | None) -> None:
    wrong = "" if number < 16 else f"barrier {number} does not exist; there are 16"
    if threads is not None and (threads == 0 or threads % WARP_LANES):
        wrong = f"the barrier waits for {threads} threads; expected a multiple of {WARP_LANES}"
    if wrong:
        warp.cta.fault(ViolationKind.BARRIER, site, int(warp.threads()[0]), wrong)


def _reduction(
    context: Lowering, instruction: Instruction, modifiers: Modifiers
) -> tuple[Deliver, Predicate, list[Operand]]:
    """Return what a `bar.red` delivers to each warp, the predicate it counts, and the operands of the barrier."""
    name = modifiers.need("popc", "and", "or")
    kind = modifiers.type("u32") if name == "popc" else modifiers.type("pred")
    if len(instruction.operands) not in (3, 4):
        raise instruction.error("expected a destination, a barrier and a predicate")
    target = context.target(instruction, instruction.operands[0], kind)
    vote = context.predicate(instruction, instruction.operands[-1])

    def deliver(warp: Warp, votes: int, against: int) -> None:
        value = {"popc": votes, "and": against == 0, "or": votes > 0}[name]
        warp.put(target, np.full(WARP_LANES, value).astype(kind.dtype))

    return deliver, vote, list(instruction.operands[1:-1])


_OF_CTA = Row(end=_barrier, ends=Ends.BARRIER, sources_only=True)
ROWS = {
    "bar": _OF_CTA,
    "barrier": _OF_CTA,
    **dict.fromkeys(("bar.red", "bar.cta.red", "barrier.red", "barrier.cta.red"), Row(end=_barrier, ends=Ends.BARRIER)),
    **dict.fromkeys(("bar.warp", "barrier.warp"), Row(step=_lower_warp_barrier, sources_only=True)),
    "barrier.cluster": Row(step=_lower_cluster_arrival, passes_seen=True),
    "barrier.cluster.wait": Row(end=_cluster_wait, ends=Ends.WAIT, passes_seen=True),
}
