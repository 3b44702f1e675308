"""Three hundred launches of kernels of groups on the CPU executor with garbage in place of ends or sizes.

`tests/contract/test_groups.py` has a million such ends on the groups' value, and `tests/plan/test_scheduler.py` some on
the scheduler's. Here the kernels read them: none leaves its tensors, what no group has is not written, NaN in it and in
its factors reaches nothing, and what groups have is right.
"""

from __future__ import annotations

import numpy as np
import pytest

from cutegen.build import Cache
from cutegen.spec import Paired, Schedule
from tests.plan.test_scheduler import garbage
from tests.run import test_grouped_kernels as by_warps
from tests.run import test_grouped_wgmma as by_warpgroups
from tests.run.test_grouped_kernels import SMALL, failure

LAUNCHES = 3
SWIGLU = "x, y -> silu(x) * y"
SETTINGS: tuple[by_warps.Setting | by_warpgroups.Setting, ...] = (
    *by_warps.QUICK[:3],
    by_warpgroups.Setting("m", majors="knn", ops=("bias_m", "scale_n")),
    by_warpgroups.Setting("m", expression=SWIGLU, pairs=Paired("halves", "gate")),
    by_warpgroups.Setting("m", "padded", ("f16", "f16"), ops=("bias_n",)),
    by_warpgroups.Setting("m", ops=("bias_n",), schedule=Schedule(swap=True), tile=(128, 16, 64)),
    by_warpgroups.Setting("k", majors="mnn", tile=(128, 128, 64)),
    by_warpgroups.SCALED,
    by_warpgroups.Setting("m", "padded", by_warpgroups.FP8, tile=(64, 64, 128), rows=(1, 128)),
)


@pytest.mark.dsl
@pytest.mark.slow
@pytest.mark.parametrize("first", range(0, 30, LAUNCHES))
@pytest.mark.parametrize("setting", SETTINGS, ids=str)
def test_garbage_ends_are_safe(setting: by_warps.Setting | by_warpgroups.Setting, first: int, kernels: Cache) -> None:
    if isinstance(setting, by_warps.Setting):
        (planned, kernel), among = by_warps.compiled(setting, kernels), SMALL
    else:
        (planned, kernel), among = by_warpgroups.compiled(setting, kernels), setting.among
    for seed in range(first, first + LAUNCHES):
        random = np.random.default_rng(seed)
        groups = int(random.choice((1, 2, 3, 7) if setting.layout == "padded" else (1, 2, 3, 7, 33, 40)))
        ends = np.array(garbage(random, groups, among.room), np.int32)
        wrong = failure(planned, kernel, ends, seed, fresh=bool(seed % 2), among=among)
        assert wrong == "", f"seed {seed}, {ends.tolist()}"
