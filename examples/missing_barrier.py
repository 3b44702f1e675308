"""The CPU executor on PTX that cutegen did not write: it runs it, counts what it did, and sees a missing barrier.

The kernel reverses 64 integers through shared memory: each of its two warps reads what the other one wrote.
"""

from __future__ import annotations

import numpy as np

from cutegen.errors import PtxFault
from cutegen.ptx import Program

REVERSE = """
.version 8.0
.target sm_80
.address_size 64
.visible .entry reverse(.param .u64 data)
{
    .reg .b32 %r<6>;
    .reg .b64 %rd<4>;
    .shared .align 4 .b8 tile[256];
    ld.param.u64 %rd1, [data];
    mov.u32 %r1, %tid.x;
    mul.wide.u32 %rd2, %r1, 4;
    add.s64 %rd3, %rd1, %rd2;
    ld.global.u32 %r2, [%rd3];
    shl.b32 %r3, %r1, 2;
    mov.u32 %r4, tile;
    add.u32 %r5, %r4, %r3;
    st.shared.u32 [%r5], %r2;
    bar.sync 0;
    sub.u32 %r5, %r4, %r3;
    ld.shared.u32 %r2, [%r5+252];
    st.global.u32 [%rd3], %r2;
    ret;
}
"""

data = np.arange(64, dtype=np.uint32)
report = Program.parse(REVERSE).launch("reverse", grid=1, block=64, args=[data])
print(f"reversed: {data[:4].tolist()} ... {data[-4:].tolist()}")
for i in report.instructions:
    if i.shared_requests or i.global_requests:
        print(f"  {i.text:<30} {i.executed} warps, {i.wavefronts} shared wavefronts, {i.sectors} global sectors")
if data.tolist() != list(range(63, -1, -1)):
    raise SystemExit("wrong result")

try:
    Program.parse(REVERSE.replace("bar.sync 0;", "")).launch("reverse", grid=1, block=64, args=[data])
except PtxFault as fault:
    print(f"without bar.sync: {fault}")
else:
    raise SystemExit("the missing barrier was not noticed")
