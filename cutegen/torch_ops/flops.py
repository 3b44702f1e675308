"""Counts the operations of calls for torch's FlopCounterMode, as for torch.matmul: 2 M N K per matrix of the batch.

For groups, whose sizes the device has, those of tensors without rows that no group has.
"""

import sys
from collections.abc import Sequence
from math import prod
from typing import Any

import torch

_COUNTER = "torch.utils.flop_counter"
_NAMES = ("matmul", "matmul_aux", "matmul_out")
_OF_GROUPS = ("grouped_mm", "grouped_mm_aux", "grouped_mm_out")


def register_flops(*, of_groups: bool = False) -> None:
    """Register the ops with FlopCounterMode, if it has been imported: importing it takes 0.8 s if there is Triton."""
    if _COUNTER not in sys.modules:
        return
    from torch.utils._python_dispatch import _get_current_dispatch_mode_stack
    from torch.utils.flop_counter import flop_registry, register_flop_formula

    ops = [getattr(torch.ops.cutegen, name) for name in (_OF_GROUPS if of_groups else _NAMES)]
    if ops[0] in flop_registry:
        return
    register_flop_formula(ops)(_flops_of_groups if of_groups else _flops)
    for mode in _get_current_dispatch_mode_stack():  # one that counts already has its own copy
        if (counter := getattr(mode, "counter", None)) is not None:
            counter.flop_registry |= {op: flop_registry[op] for op in ops}


def _flops(a: Sequence[int], b: Sequence[int], *others: Any, **more: Any) -> int:
    """Return the operations of a product of these shapes; its other terms are not counted."""
    batch: Sequence[int] = torch.broadcast_shapes(a[:-2], b[:-2])
    rows, columns = prod(a[-2:-1]), prod(b[1:][-1:])  # 1 for a vector
    return 2 * prod(batch) * rows * columns * a[-1]


def _flops_of_groups(a: Sequence[int], b: Sequence[int], *others: Any, **more: Any) -> int:
    """Return the operations of all groups together: parts of one mode, unless each group has room for all of it."""
    groups = a[0] if len(a) == len(b) == 3 else 1
    return 2 * groups * a[-2] * a[-1] * b[-1]
