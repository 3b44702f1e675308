"""Small PTX kernels for tests, and the CUDA C++ ones."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from cutegen.ptx import LaunchReport, Program

CUDA_DIR = Path(__file__).parent / "cuda"


def kernel(body: str, *, before: str = "", shared_bytes: int = 0, parameters: str = ".param .u64 out") -> str:
    """An entry `k` around `body`; `%tid` is in %r0, thread i's place in `out` in %rd1, and %r3 is stored there."""
    shared = f".shared .align 16 .b8 smem[{shared_bytes}];" if shared_bytes else ""
    return f"""
.version 8.0
.target sm_80
.address_size 64
{before}
.visible .entry k({parameters})
{{
    {shared}
    .reg .pred %p<8>;
    .reg .b16 %h<8>;
    .reg .b32 %r<32>;
    .reg .f32 %f<8>;
    .reg .b64 %rd<8>;
    ld.param.u64 %rd0, [out];
    mov.u32 %r0, %tid.x;
    mul.wide.u32 %rd1, %r0, 4;
    add.s64 %rd1, %rd0, %rd1; // body
    {body}
    st.global.b32 [%rd1], %r3;
    ret;
}}
"""


def run_elements(text: str, dtype: Any, *, block: int = 32, **options: Any) -> np.ndarray:
    """What `kernel` stores for each thread."""
    out = np.zeros(block, dtype)
    Program.parse(text).launch("k", grid=1, block=block, args=[out], **options)
    return out


def run_report(text: str, *, block: int = 32, **options: Any) -> LaunchReport:
    """The report of a launch of `kernel`."""
    return Program.parse(text).launch("k", grid=1, block=block, args=[np.zeros(block, np.uint32)], **options)


def cuda_program(name: str) -> Program:
    """A CUDA C++ kernel that nvcc compiled."""
    return Program.parse((CUDA_DIR / f"{name}.ptx").read_text())
