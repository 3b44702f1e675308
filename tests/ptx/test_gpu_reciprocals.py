"""A reciprocal without a division on a GPU: a quantized result has 1 / factor of `rcp.approx` and two multiply-adds."""

from __future__ import annotations

import numpy as np
import pytest
from kernels import kernel
from test_gpu_clusters import on_gpu

from cutegen.contract.launch import LaunchGeometry
from cutegen.run.driver import load_driver

pytestmark = pytest.mark.gpu
MANTISSAS, THREADS = 1 << 23, 256
RECIPROCALS = """
    mov.u32 %r1, %ctaid.x;
    mad.lo.u32 %r2, %r1, 256, %r0;
    mul.wide.u32 %rd1, %r2, 4;
    add.s64 %rd1, %rd0, %rd1;
    ld.global.f32 %f0, [%rd1];
    rcp.approx.ftz.f32 %f1, %f0;
    neg.f32 %f2, %f0;
    fma.rn.f32 %f3, %f2, %f1, 0f3F800000;
    fma.rn.f32 %f4, %f1, %f3, %f1;
    mov.b32 %r3, %f4;
"""


@pytest.mark.parametrize("exponent", [-23, 0, 64])
def test_every_mantissa_has_its_reciprocal_to_nearest(exponent: int) -> None:
    driver = load_driver()
    driver.call("cuCtxSetCurrent", driver.primary_context(0))
    x = np.ldexp(1 + np.arange(MANTISSAS, dtype=np.float32) / np.float32(MANTISSAS), exponent).astype(np.float32)
    found = x.copy()
    on_gpu(driver, kernel(RECIPROCALS), "k", LaunchGeometry((MANTISSAS // THREADS, 1, 1), (THREADS, 1, 1), 0), [found])
    np.testing.assert_array_equal(found, np.float32(1) / x)
