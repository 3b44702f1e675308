"""Torch's switches, and their effect on a call.

- tf32: f32 operands are multiplied as tf32 only if torch's own matmul may. Otherwise by f32 multiply-adds.
- Reduced precision, and sums in f16: sums are f32 here in any case.
- Determinism: every kernel adds in a fixed order, so there is nothing to switch.
"""

import torch

from cutegen.dispatch.resolve import CallTarget
from cutegen.dispatch.settings import settings
from cutegen.errors import DeviceError
from cutegen.hardware import TARGETS, Instruction
from cutegen.hardware.targeting import choose_target


def tf32_allowed() -> bool:
    """Return whether torch's matmul may read f32 as tf32."""
    return bool(torch.backends.cuda.matmul.fp32_precision == "tf32")


def call_target(
    device: torch.device, *, least: str = "sm_80", arch: str | None = None, needs: Instruction | None = None
) -> CallTarget:
    """Return where calls with tensors on `device` compute: on its GPU, or the target `arch`, else `least` that can.

    Off a GPU it is `least` as well if the machine's GPU lacks an instruction that the call `needs`.

    Raises RequestError for an unknown target, DeviceError for a GPU without a target.
    """
    tf32, batch_invariant, family = tf32_allowed(), settings.batch_invariant, settings.asked_family
    if device.type != "cuda" or arch is not None:
        found = choose_target(arch, least=least)
        lacks = arch is None and needs is not None and not found.has(needs)
        return CallTarget(least if lacks else found.name, None, tf32, batch_invariant, family)
    ordinal = torch.cuda.current_device() if device.index is None else device.index
    if ordinal not in _GPUS:
        _GPUS[ordinal] = _target(torch.cuda.get_device_capability(ordinal)), torch.cuda.get_device_name(ordinal)
    return CallTarget(*_GPUS[ordinal], tf32, batch_invariant, family)


_GPUS: dict[int, tuple[str, str]] = {}


def _target(capability: tuple[int, int]) -> str:
    for row in TARGETS.values():
        if row.compute_capability == capability:
            return row.name
    raise DeviceError(
        f"matmul: found a GPU of compute capability {capability[0]}.{capability[1]}; expected one of "
        + ", ".join(f"{row.compute_capability[0]}.{row.compute_capability[1]}" for row in TARGETS.values())
    )
