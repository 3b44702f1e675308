"""Kernels of groups by tcgen05 on the CPU executor: types, majors, tiles, pairs of CTAs, clusters, swap, wrong kernels.

Cases and comparisons are those of `tests/run/test_grouped_wgmma.py`. The kernels have never run on hardware, and need
no convention here.
"""

from __future__ import annotations

from functools import partial

import pytest

from cutegen.build import Cache
from cutegen.errors import SpecError
from cutegen.plan import plan
from cutegen.spec import Schedule
from tests.run.test_grouped_kernels import failures
from tests.run.test_grouped_wgmma import Setting, compiled, edited, fails_with_many_groups

Of = partial(Setting, family="sm100")
BIASED = Of("m", ops=("bias_n", "relu"), tile=(128, 64, 64))
PARTS = Of("k", types=("bf16", "f32"), majors="mnn", tile=(64, 32, 64))
PAIR = Of("m", tile=(64, 64, 64), cta_group=2)
CLUSTERED = Of("k", majors="mkm", tile=(64, 64, 64), schedule=Schedule(cluster=(1, 2)))
SETTINGS = (
    BIASED,
    PARTS,
    PAIR,
    Of("m", "padded", ("f16", "f32"), "knn", tile=(64, 64, 64)),
    Of("m", majors="kkm"),
    Of("m", types=("f16", "f32"), ops=("bias_n", "gelu_erf"), tile=(128, 256, 64)),
    Of("m", majors="knn", ops=("bias_m", "scale_n", "residual", "aux")),
    Of("m", types=("s8", "s32"), tile=(128, 64, 128)),
    Of("m", types=("e4m3", "bf16"), tile=(128, 64, 128), ops=("scale_n",)),
    Of("m", types=("tf32", "f32"), tile=(128, 64, 32)),
    Of("m", align=2),
    Of("m", majors="kkm", align=2, ops=("residual",)),
    Of("m", tile=(64, 64, 64), schedule=Schedule(cluster=(1, 2))),
    Of("m", ops=("bias_n",), schedule=Schedule(swap=True), tile=(128, 16, 64)),
    Of("m", schedule=Schedule(swap=True, cluster=(2, 1)), tile=(128, 16, 128)),
    Of("n", "padded", ("f16", "f16"), "mkm", tile=(64, 64, 64), ops=("bias_m", "scale_m")),
    Of("m", "padded", tile=(128, 64, 64), cta_group=2),
    Of("m", "padded", tile=(128, 64, 64), schedule=Schedule(cluster=(2, 2)), cta_group=2),
    Of("m", tile=(128, 64, 64), majors="knn", schedule=Schedule(swap=True), cta_group=2),
    Of("k", majors="kkn", types=("f16", "f16"), tile=(128, 64, 64)),
    Of("k", types=("s8", "s32"), tile=(64, 64, 128)),
    Of("k", types=("e4m3", "f32"), tile=(128, 64, 128), majors="kkm", schedule=Schedule(swap=True)),
    Of("k", majors="mnn", tile=(128, 128, 64), ops=("beta", "bias_n")),
    CLUSTERED,
)


@pytest.mark.dsl
@pytest.mark.slow
@pytest.mark.parametrize("setting", SETTINGS, ids=str)
def test_groups_are_right_for_any_ends(setting: Setting, kernels: Cache) -> None:
    assert list(failures(*compiled(setting, kernels), 5, setting.among)) == []


PLANTED: dict[str, tuple[Setting, str, str]] = {
    "tiles of a group are numbered over all groups": (
        BIASED,
        "tile - cute.arch.shuffle_sync(first_tiles, lane)",
        "tile",
    ),
    "the last rows of a group are stored in bulk": (BIASED, "if (part_m + 1) * PART_M <= m:", "if m > 0:"),
    "boxes of A begin where A does": (
        BIASED,
        "domain_offset((begin, 0, 0), map_coordinates((room, k",
        "domain_offset((0, 0, 0), map_coordinates((room, k",
    ),
    "the weights are those of the first group": (BIASED, "k_tile, batch]", "k_tile, 0]"),
    "rows past the last end stay": (BIASED, "        clear(\n", "        (lambda *_: None)(\n"),
    "a pair has as many tiles as two CTAs": (
        PAIR,
        "cute.ceil_div(stops - begins, CTA_M * CLUSTER_M) * across",
        "cute.ceil_div(stops - begins, CTA_M) * across",
    ),
    "what follows a part of K is multiplied": (
        PARTS,
        "rest = cutlass.max(cute.ceil_div(k, CTA_K), 1), k % CTA_K",
        "rest = cutlass.max(cute.ceil_div(k, CTA_K), 1), Int32(0)",
    ),
    "what follows is cleared in A alone": (
        PARTS,
        "        clear_k(cute.recast_tensor(sB, Int64), rest, last, stage)\n",
        "",
    ),
    "zeros are stored without a fence": (
        PARTS,
        'fence_proxy("async.shared", space="cta")\n        cute.arch.sync_warp()',
        "sync_warp()",
    ),
    "a lane multiplies before others have stored zeros": (PARTS, "        cute.arch.sync_warp()\n", ""),
    "only multiplications are before the next copies": (
        PARTS,
        "                    cute.arch.mbarrier_arrive(empty + stage)\n",
        "                    cute.arch.mbarrier_arrive(empty + stage) if k_tile < 0 else commit(empty + stage)\n",
    ),
    "zeros are ordered before the copies of their own CTA alone": (
        CLUSTERED,
        "arrive_in_cluster(empty + stage, Int32(copier))",
        "cute.arch.mbarrier_arrive(empty + stage)",
    ),
}


@pytest.mark.dsl
@pytest.mark.slow
@pytest.mark.parametrize("mistake", PLANTED)
def test_a_wrong_kernel_is_noticed(mistake: str, kernels: Cache) -> None:
    setting, right, wrong = PLANTED[mistake]
    kernel = edited(setting, right, wrong, kernels)
    assert any(failures(*kernel, 8, setting.among)) or fails_with_many_groups(*kernel, setting.among)


@pytest.mark.parametrize(
    ("setting", "said"),
    [
        (Of("k", tile=(128, 64, 64), cta_group=2), r"mma.cta_group: found 2 with groups of k; expected 1: a CTA sets"),
        (
            Of("m", tile=(128, 64, 64), schedule=Schedule(cluster=(4, 1)), cta_group=2),
            r"schedule.cluster: found 4x1 with groups of the kernel's m; expected 2 along m: .*cluster = \[2, 1\]",
        ),
        (Of("k", types=("tf32", "f32"), tile=(128, 64, 32)), r'problem.groups: found of = "k" with tf32 operands'),
    ],
    ids=str,
)
def test_what_groups_cannot_have_is_refused_by_name(setting: Setting, said: str) -> None:
    with pytest.raises(SpecError, match=said):
        plan(setting.spec(), "sm_100")
