"""`%clock` advances whenever a warp reads it: a loop that waits for it ends, and later reads are later."""

from __future__ import annotations

import numpy as np
import pytest
from kernels import kernel, run_elements

from cutegen.errors import PtxSyntaxError


def test_a_later_read_is_later() -> None:
    text = kernel("mov.u32 %r1, %clock; mov.u32 %r2, %clock; sub.s32 %r3, %r2, %r1;")
    assert (run_elements(text, np.int32) > 0).all()


def test_each_warp_has_its_own() -> None:
    text = kernel("mov.u32 %r3, %clock; add.s32 %r3, %r3, 0; mov.u32 %r3, %clock;")
    found = run_elements(text, np.int32, block=128)
    assert len(set(found.tolist())) == 1


@pytest.mark.parametrize("cycles", [1, 1000, 50_000])
def test_a_loop_that_waits_ends_when_the_time_is_over(cycles: int) -> None:
    text = kernel(
        f"""
    mov.u32 %r1, %clock;
    AGAIN: mov.u32 %r2, %clock;
    sub.s32 %r3, %r2, %r1;
    setp.lt.s32 %p1, %r3, {cycles};
    @%p1 bra.uni AGAIN;
"""
    )
    found = run_elements(text, np.int32)
    assert (found >= cycles).all()
    assert (found < cycles + 2000).all()


def test_only_mov_reads_it() -> None:
    with pytest.raises(PtxSyntaxError, match="%clock is read by mov only"):
        run_elements(kernel("add.s32 %r3, %clock, 1;"), np.int32)
