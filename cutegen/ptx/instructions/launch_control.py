"""`clusterlaunchcontrol`: requests to cancel a cluster that has not started, and queries of their responses.

Source: PTX ISA, `clusterlaunchcontrol.try_cancel`, `clusterlaunchcontrol.query_cancel`.
"""

from collections.abc import Callable

import numpy as np
import numpy.typing as npt

from cutegen.ptx.machine.frame import POISON_BYTE
from cutegen.ptx.machine.launch_control import read_responses, response
from cutegen.ptx.machine.lowering import Lowering, Step
from cutegen.ptx.machine.rows import Row
from cutegen.ptx.machine.spaces import to_shared
from cutegen.ptx.machine.warp import LANES, Warp
from cutegen.ptx.text.syntax import Instruction, Sink, scalar_type
from cutegen.ptx.watch.actor import Agent, Proxy
from cutegen.ptx.watch.violations import ViolationKind

_POISON = POISON_BYTE * 0x01010101
_B128, _B32, _PRED = scalar_type("b128"), scalar_type("b32"), scalar_type("pred")


def _lower_request(context: Lowering, instruction: Instruction) -> Step:
    """`clusterlaunchcontrol.try_cancel.async{.shared::cta}.mbarrier::complete_tx::bytes{.multicast::cluster::all}.b128`."""
    modifiers = context.modifiers(instruction, 2)
    modifiers.need("try_cancel")
    modifiers.need("async")
    modifiers.flag("shared::cta")
    modifiers.need("mbarrier::complete_tx::bytes")
    everywhere = modifiers.flag("multicast::cluster::all")
    modifiers.need("b128")
    modifiers.finish()
    places = [context.address(instruction, operand) for operand in instruction.operands]
    site = context.access(instruction, "shared", 16)

    def step(warp: Warp) -> None:
        addresses = [to_shared(warp.addresses(*place)).tolist() for place in places]
        for lane, to, barrier in zip(warp.lanes().tolist(), *addresses, strict=True):
            with warp.narrowed(np.equal(LANES, lane)):
                _request(warp, site, (to, barrier), everywhere=everywhere)

    return step


def _request(warp: Warp, site: int, addresses: tuple[int, int], *, everywhere: bool) -> None:
    cluster, thread = warp.cta.cluster, int(warp.threads()[0])
    wrong = "after a response of a request that was refused" if cluster.has_seen_refusal else ""
    if any(cta.has_ended for cta in cluster.ctas):
        wrong = "although a CTA of the cluster has exited"
    if wrong:
        message = f"a request to cancel a cluster {wrong}"
        warp.cta.fault(ViolationKind.LAUNCH_CONTROL, site, thread, message, always=True)
    number = cluster.machine.queue.cancel()
    octets = response(None if number is None else cluster.machine.shape.grid.place(number, 0))
    warp.cta.bulk.respond(warp, site, addresses, octets, (1 << len(cluster.ctas)) - 1 if everywhere else None)


def _lower_query(context: Lowering, instruction: Instruction) -> Step:
    """`clusterlaunchcontrol.query_cancel.is_canceled.pred.b128 p, h` and `.get_first_ctaid{::x}{.v4}.b32.b128 d, h`."""
    modifiers = context.modifiers(instruction, 2)
    modifiers.need("query_cancel")
    what = modifiers.need("is_canceled", "get_first_ctaid", *_AXES)
    if what == "is_canceled":
        modifiers.need("pred")
    else:
        modifiers.need("b32")
    is_vector = what == "get_first_ctaid"
    if is_vector:
        modifiers.need("v4")
    modifiers.need("b128")
    modifiers.finish()
    handle = context.source(instruction, instruction.operands[1], _B128)
    read = _reader(handle, context.site)
    if what == "is_canceled":
        target = context.target(instruction, instruction.operands[0], _PRED)

        def ask(warp: Warp) -> None:
            are_cancelled, _ = read(warp)
            warp.cta.cluster.has_seen_refusal |= not are_cancelled.all()
            warp.put_active(target, are_cancelled)

        return ask
    items = context.vector(instruction, instruction.operands[0], 4) if is_vector else (instruction.operands[0],)
    axes = range(3) if is_vector else (_AXES.index(what),)
    pairs = zip(items, axes, strict=False)  # the fourth item of a vector is not written
    targets = [(axis, context.target(instruction, item, _B32)) for item, axis in pairs if not isinstance(item, Sink)]
    site = context.site

    def place(warp: Warp) -> None:
        are_cancelled, first = read(warp)
        if not are_cancelled.all():
            thread = int(warp.threads()[np.argmin(are_cancelled)])
            message = "the request was refused: there is no first CTA, and the result is undefined"
            warp.cta.fault(ViolationKind.CONVENTION, site, thread, message)
            first = np.where(are_cancelled[:, None], first, np.uint32(_POISON))
        for axis, cell in targets:
            warp.put_active(cell, first[:, axis])

    return place


_AXES = ("get_first_ctaid::x", "get_first_ctaid::y", "get_first_ctaid::z")
_Read = Callable[[Warp], tuple[npt.NDArray[np.bool_], npt.NDArray[np.uint32]]]


def _reader(handle: int, site: int) -> _Read:
    """The function that reads the responses of the active lanes: which are cancelled, and their first CTAs."""

    def read(warp: Warp) -> tuple[npt.NDArray[np.bool_], npt.NDArray[np.uint32]]:
        are_responses, are_cancelled, first = read_responses(warp.cells[handle][warp.mask])
        if not are_responses.all():
            thread = int(warp.threads()[np.argmin(are_responses)])
            message = "the operand is not the response of a clusterlaunchcontrol.try_cancel"
            warp.cta.fault(ViolationKind.LAUNCH_CONTROL, site, thread, message)
        return are_cancelled, first

    return read


ROWS = {
    "clusterlaunchcontrol": Row(step=_lower_query),
    "clusterlaunchcontrol.try_cancel": Row(
        step=_lower_request, agent=Agent(noun="clusterlaunchcontrol.try_cancel", proxy=Proxy.ASYNC)
    ),
}
