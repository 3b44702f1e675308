"""Integer mma at the ends of s32: clamped with .satfinite, wrapped without, for all signs of the 8-bit operands."""

from __future__ import annotations

import numpy as np
import pytest

from cutegen.ptx import Program

KERNEL = """\
.version 7.0
.target sm_80
.address_size 64

.visible .entry multiply(.param .u64 sums, .param .u32 left, .param .u32 right)
{{
    .reg .b32 %lane, %a, %b, %c<4>;
    .reg .b64 %address;
    mov.u32 %lane, %tid.x;
    ld.param.u32 %a, [left];
    ld.param.u32 %b, [right];
    ld.param.u64 %address, [sums];
    mad.wide.u32 %address, %lane, 16, %address;
    ld.global.v4.u32 {{%c0, %c1, %c2, %c3}}, [%address];
    mma.sync.aligned.m16n8k32.row.col{saturate}.s32.{a}.{b}.s32 {{%c0, %c1, %c2, %c3}}, {{%a, %a, %a, %a}}, {{%b, %b}},
        {{%c0, %c1, %c2, %c3}};
    st.global.v4.u32 [%address], {{%c0, %c1, %c2, %c3}};
    ret;
}}
"""
HIGHEST, LOWEST = 2**31 - 1, -(2**31)


@pytest.mark.parametrize("saturate", [True, False])
@pytest.mark.parametrize("a", ["s8", "u8"])
@pytest.mark.parametrize("b", ["s8", "u8"])
def test_sums_that_leave_s32(a: str, b: str, saturate: bool) -> None:
    program = Program.parse(KERNEL.format(a=a, b=b, saturate=".satfinite" if saturate else ""))
    codes = {"s8": (-128, 127), "u8": (255, 1)}
    for left in codes[a]:
        for right in codes[b]:
            start = np.array([HIGHEST, HIGHEST - 10, LOWEST, 5], np.int32)
            sums = np.tile(start, 32)
            words = [np.uint32(value % 256 * 0x01010101) for value in (left, right)]
            program.launch("multiply", grid=(1,), block=(32,), args=[sums, *words])
            exact = start.astype(np.int64) + 32 * left * right
            expected = exact.clip(LOWEST, HIGHEST) if saturate else (exact + 2**31) % 2**32 - 2**31
            assert sums.reshape(32, 4).tolist() == 32 * [expected.tolist()]
