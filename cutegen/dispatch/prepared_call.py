"""A call with its kernel: prepared once for the forms of its tensors, launched on their addresses."""

from collections.abc import Mapping
from dataclasses import dataclass

from cutegen.build.record import count
from cutegen.contract.launch import RESULT, SCALES, SOURCE
from cutegen.dispatch.provider import Served
from cutegen.dispatch.providers import providers
from cutegen.dispatch.resolve import Resolved
from cutegen.run.kernel import PreparedCall
from cutegen.support.environment import record_file

_CALLED = {RESULT: "out", SOURCE: "c", "scale_m": "scale_a", "scale_n": "scale_b"}


@dataclass(frozen=True, slots=True)
class ServedCall:
    """`names` are the call's names of the tensors whose addresses a launch takes, in order.

    It belongs to the thread that made it.
    """

    served: Served
    prepared: PreparedCall
    names: tuple[str, ...]

    def __call__(self, addresses: Mapping[str, int], scalars: Mapping[str, float], stream: int) -> None:
        """Launch on the addresses, by the names of the call. Raises OperandError, DeviceError, PtxFault."""
        pointers = tuple(addresses[name] for name in self.names)
        self.prepared.check_addresses(pointers)
        if self.prepared.launch is not None:
            self.prepared.launch(pointers, ordered_scalars(scalars), stream)


def ordered_scalars(scalars: Mapping[str, float]) -> tuple[float, ...]:
    """Return the given numbers, in a kernel's order."""
    return tuple(scalars[name] for name in ("alpha", "beta") if name in scalars)


def count_calls(resolved: Resolved, calls: int = 1) -> None:
    """Count calls in the list of CUTEGEN_RECORD, if there is one: without it they are remembered, and come once.

    Calls without products, with a K of 0, are not counted, and those of groups are not either: sizes are on the device.
    """
    called = resolved.called
    if record_file() is not None and called.k and called.groups is None:
        count({"request": resolved.request.as_json()}, (called.m, called.n, called.k, called.batch), calls)


def prepare_call(resolved: Resolved, *, compiling: bool = True) -> ServedCall:
    """Find the kernel of a call that is not empty, and prepare it. Raises the errors of `Providers.kernel_for`."""
    served = providers.kernel_for(resolved.request, compiling=compiling)
    count_calls(resolved)
    beside = {name for name in SCALES if name in resolved.placements}  # those beside factors of blocks
    names = tuple(
        each.name if each.name in beside else _CALLED.get(each.name, each.name)
        for each in served.kernel.contract.passed
    )
    prepared = served.kernel.prepare(*[resolved.placements[name].form for name in names], clears=resolved.clears)
    return ServedCall(served, prepared, names)
