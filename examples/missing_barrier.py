"""Run PTX that cutegen did not write on the CPU executor, which counts its accesses and detects a missing barrier.

The kernel reverses 64 integers through shared memory: each of its two warps reads what the other warp wrote.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np

from cutegen.errors import PtxFault
from cutegen.ptx import Program

REVERSE = Path(__file__).with_name("reverse.ptx").read_text()

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
