"""Writes softmax.ptx and softmax.toml: a row softmax that Triton compiled. Needs Triton, torch and a GPU.

    python tests/ptx/make_triton_ptx.py FOLDER

Rows of 4,096 among 8 warps, so that the maximum and the sum go through shared memory and a barrier.
"""

from __future__ import annotations

import re
import sys
from pathlib import Path

import torch
import triton
import triton.language as tl

ROWS, COLUMNS, WARPS = 3, 4096, 8


@triton.jit
def softmax(x, y, stride, COLUMNS: tl.constexpr):
    row = tl.program_id(0)
    place = row * stride + tl.arange(0, COLUMNS)
    values = tl.load(x + place)
    powers = tl.exp(values - tl.max(values, 0))
    tl.store(y + place, powers / tl.sum(powers, 0))


def main(folder: Path) -> None:
    """Compiles for the present GPU; the launch file says how many parameters this Triton gives a kernel."""
    x = torch.randn(ROWS, COLUMNS, device="cuda")
    y = torch.empty_like(x)
    compiled = softmax[(ROWS,)](x, y, x.stride(0), COLUMNS, num_warps=WARPS)
    text = compiled.asm["ptx"]
    parameters = re.findall(r"\.param \.(\w+)", text[text.index(".entry") : text.index("{", text.index(".entry"))])
    given = ["array", "array", "number", *["scratch"] * (len(parameters) - 3)]
    rows = {
        "array": f'[[argument]]\narray = "f32"\nshape = [{ROWS}, {COLUMNS}]\nfill = "random"\n',
        "number": f'[[argument]]\nnumber = {COLUMNS}\ntype = "i32"\n',
        "scratch": '[[argument]]\narray = "u8"\nshape = [256]\nfill = "zeros"\n',
    }
    head = f"grid = {ROWS}\nblock = {32 * WARPS}\nsmem_bytes = {compiled.metadata.shared}\n"
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "softmax.ptx").write_text(f"// Made by make_triton_ptx.py with Triton {triton.__version__}.\n{text}")
    (folder / "softmax.toml").write_text("\n".join([head, *(rows[name] for name in given)]))


if __name__ == "__main__":
    main(Path(sys.argv[1]))
