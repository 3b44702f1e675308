"""Pieces of PTX for tests of mbarriers and bulk tensor copies: one CTA, its buffers in static shared memory.

`%r4` is the shared memory's first byte (a multiple of 1024), `%r0` the thread. The mbarrier that `READY` makes is at
its end, at `[%r5]`.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from kernels import kernel

from cutegen.ptx import ExecutionFault, LaunchReport, Program, TensorMap, Violation

POLICIES = ("in-order", "reversed", "random:1", "random:2", "random:3")
SMEM_BYTES = 16384
BARRIER = SMEM_BYTES - 8

PLACES = f"mov.u32 %r4, smem; add.s32 %r5, %r4, {BARRIER}; mov.b32 %r3, 0; setp.eq.u32 %p0, %r0, 0;"
READY = PLACES + "@%p0 mbarrier.init.shared.b64 [%r5], 1; @%p0 fence.mbarrier_init.release.cluster; bar.sync 0;"
"""Thread 0 makes the mbarrier for one arrival."""

MAP = "mov.b64 %rd2, map; cvta.param.u64 %rd3, %rd2;"


def expect(size_bytes: int) -> str:
    """Thread 0 arrives and expects bytes."""
    return f"@%p0 mbarrier.arrive.expect_tx.shared.b64 %rd4, [%r5], {size_bytes};"


def load(coordinates: tuple[int, ...], *, to: int = 0) -> str:
    """Thread 0 copies the box at `coordinates` to byte `to` of shared memory."""
    where = ", ".join(map(str, coordinates))
    opcode = f"cp.async.bulk.tensor.{len(coordinates)}d.shared::cta.global.tile.mbarrier::complete_tx::bytes"
    return MAP + f"@%p0 {opcode} [%r4+{to}], [%rd3, {{{where}}}], [%r5];"


def store(coordinates: tuple[int, ...], *, guard: str = "@%p0") -> str:
    """Thread 0 copies shared memory to the box at `coordinates`, and commits."""
    where = ", ".join(map(str, coordinates))
    opcode = f"cp.async.bulk.tensor.{len(coordinates)}d.global.shared::cta.tile.bulk_group"
    return MAP + f"{guard} {opcode} [%rd3, {{{where}}}], [%r4]; {guard} cp.async.bulk.commit_group;"


def wait(parity: int | str = 0, *, name: str = "W", guard: str = "") -> str:
    """Waits for the phase of `parity`, as CUTLASS does."""
    body = f"mbarrier.try_wait.parity.shared.b64 P, [%r5], {parity}; @P bra DONE; bra AGAIN; DONE:"
    skip = f"{guard} bra {name};" if guard else ""
    return f"{skip} {{ .reg .pred P; AGAIN: {body} }} {name}:"


def dump(size_bytes: int) -> str:
    """A warp writes `size_bytes` of shared memory to `out`, after the 32 words that `kernel` writes."""
    pieces = [f"ld.shared.b32 %r7, [%r6+{i}]; st.global.b32 [%rd1+{i + 128}], %r7;" for i in range(0, size_bytes, 128)]
    return "shl.b32 %r6, %r0, 2; add.s32 %r6, %r6, %r4;" + "".join(pieces)


def launch(
    body: str, tensor_map: TensorMap | None = None, *, block: int = 32, out_bytes: int = 0, **options: Any
) -> Any:
    """(what `dump` wrote, the report) of a launch of one CTA."""
    maps = ".param .align 64 .b8 map[128], " if tensor_map is not None else ""
    text = kernel(body, shared_bytes=SMEM_BYTES, parameters=maps + ".param .u64 out")
    out = np.zeros(4 * block + out_bytes, np.uint8)
    args = [out] if tensor_map is None else [tensor_map, out]
    report: LaunchReport = Program.parse(text).launch("k", grid=1, block=block, args=args, **options)
    return out[128:], report


def fault(body: str, tensor_map: TensorMap | None = None, **options: Any) -> Violation:
    """The violation that ends a launch, of one kind under every policy."""
    violations = []
    for policy in POLICIES:
        with pytest.raises(ExecutionFault) as caught:
            launch(body, tensor_map, policy=policy, **options)
        violations.append(caught.value.violation)
    assert len({violation.kind for violation in violations}) == 1, [str(v) for v in violations]
    return violations[0]
