"""The first use of a kernel whose instruction no hardware is known to have run: its result is held against float64.

The reference is computed by torch, on the device and the operands of the call. The bound is that of the kernel's
arithmetic for any operands. A kernel that differs serves no call again in this process, which a warning says once.
"""

from __future__ import annotations

import logging
import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from cutegen.contract.launch import FACTORS, WRITTEN
from cutegen.dispatch.families import is_tried, sums_of
from cutegen.dispatch.prepared_call import ServedCall, prepare_call
from cutegen.dispatch.providers import providers
from cutegen.dispatch.resolve import Resolved
from cutegen.errors import RequestError
from cutegen.run import Kernel
from cutegen.run.call.storage import call_tensor

if TYPE_CHECKING:
    from cutegen.verify import Bounded, Comparison

_LOG = logging.getLogger("cutegen.matmul")
_right: dict[str, bool] = {}
"""True if the first result of a kernel was right, by the key of its artifact."""


@dataclass(frozen=True, slots=True)
class Launch:
    """The tensors of a launch by the names of the call, its numbers and its stream."""

    tensors: Mapping[str, Tensor]
    scalars: Mapping[str, float]
    stream: int

    def __call__(self, ready: ServedCall) -> None:
        """Launch a kernel. Raises OperandError, DeviceError, PtxFault."""
        ready({name: tensor.data_ptr() for name, tensor in self.tensors.items()}, self.scalars, self.stream)


def is_due(resolved: Resolved, ready: ServedCall) -> bool:
    """Return whether a kernel is about to run on a GPU for the first time, and none like it is known to have.

    One that differed is due as well, for requests that it has not served yet.
    """
    if resolved.request.device is None:
        return False
    artifact = ready.served.kernel.artifact
    return not (_right.get(artifact.key, False) or is_tried(artifact))


def launched(launch: Launch, resolved: Resolved, ready: ServedCall, *, capturing: bool) -> ServedCall | None:
    """Launch a kernel that `is_due`, or another one if its result is wrong; return the one whose result is there.

    None if no other kernel may serve the call: then its tensors are as they were.
    Raises RequestError while a CUDA graph is captured, which cannot wait for the result, and the errors of
    `prepare_call`.
    """
    kernel = ready.served.kernel
    if capturing:
        raise RequestError(
            f"matmul: found a CUDA graph's capture at the first use of {resolved.request.name}, whose kernel has never "
            "run on hardware; expected a call before, which is compared with float64; or "
            'cutegen.matmul_settings(family="tried")'
        )
    difference = ""
    if kernel.artifact.key not in _right:
        difference = _difference(launch, resolved, ready)
        _right[kernel.artifact.key] = not difference
        if not difference:
            return ready
    providers.mistrust(resolved.request)
    by_torch = providers.leaves_to_torch(resolved.request)
    if difference:
        _LOG.warning(
            "matmul: %s: found %s; %s. `cutegen report --machine --out FILE.json` writes what to send",
            resolved.request.name,
            difference,
            "torch computes such calls instead, in f32: no family that has run on hardware has a kernel for them"
            if by_torch
            else "calls use a kernel of a family that has run on hardware instead",
        )
    if by_torch:
        return None
    other = prepare_call(resolved)
    launch(other)
    return other


def _difference(launch: Launch, resolved: Resolved, ready: ServedCall) -> str:
    """Launch a kernel; return how its result differs from float64, if it does, and leave the memory as it was then.

    A kernel that cannot be compared, for lack of memory, differs.
    """
    from cutegen.verify import compare  # takes long to import, and only such a kernel needs it

    kernel = ready.served.kernel
    names = dict(zip((x.name for x in kernel.contract.passed), ready.names, strict=True))
    if lost := sorted(launch.tensors.keys() - {*ready.names}):
        return f"a kernel that takes no {', '.join(lost)}"
    written = {role: launch.tensors[names[role]] for role in WRITTEN if role in names}
    before = {role: tensor.clone() for role, tensor in written.items()}
    seen = {name: _placed(tensor, resolved, name) for name, tensor in launch.tensors.items()}
    try:
        expected = _expected(kernel, names, seen, launch.scalars)
        launch(ready)
        differences = [
            f"{names[role]} {said}"
            for role, bounded in expected.items()
            if (said := _said(compare(seen[names[role]], bounded, dtype=kernel.contract.tensor(role).dtype)))
        ]
    except torch.OutOfMemoryError:
        differences = ["too little memory to compare its first result with float64"]
    if not differences:
        return ""
    for role, tensor in written.items():
        tensor.copy_(before[role])
    return "; ".join(differences)


def _placed(tensor: Tensor, resolved: Resolved, name: str) -> Tensor:
    """Return a tensor as the kernel sees it: a batch is one mode, or more rows."""
    form = resolved.placements[name].form
    return tensor.as_strided(form.shape, form.strides)


def _expected(
    kernel: Kernel, names: Mapping[str, str], seen: Mapping[str, Tensor], scalars: Mapping[str, float]
) -> dict[str, Bounded]:
    """Return what a launch must write, by the kernel's names, from its operands as they are before it."""
    from cutegen.verify import expected_outcome

    contract = kernel.contract
    given: dict[str, Any] = {
        # Factors are those of the call's operands, whatever the kernel is passed.
        call_tensor(x, contract.groups).name: seen[x.name if x.name in FACTORS else names[x.name]]
        for x in contract.passed
        if x.name not in WRITTEN
    }
    accumulator = sums_of(kernel.artifact)
    a, b = given.pop("a"), given.pop("b")
    outcome = expected_outcome(contract, a, b, given | dict(scalars), accumulator=accumulator, independent=False)
    outcomes = zip(WRITTEN, (outcome.result, outcome.aux, outcome.factors), strict=True)
    return {role: _of_any(bounded) for role, bounded in outcomes if bounded is not None}


def _of_any(bounded: Bounded) -> Bounded:
    """Return what is expected of operands with NaN: elements that depend on one may be anything."""
    unknown = (bounded.value != bounded.value) | (bounded.error != bounded.error)
    return replace(bounded, error=bounded.error.masked_fill(unknown, math.inf))


def _said(comparison: Comparison) -> str:
    """Return the first wrong element and how many there are; nothing if all are right."""
    first = comparison.first_wrong
    if first is None:
        return ""
    place = ", ".join(str(x) for x in (first.batch, first.row, first.column) if x is not None)
    value = f"{first.found:.6g} at [{place}] where {first.expected:.6g} is expected, within {first.allowed_error:.2g}"
    return f"{value} ({comparison.wrong:,} elements differ)"
