"""Groups of products whose factors of 8 bits are in atoms, by tcgen05 on the CPU executor, and wrong kernels.

Each group's factors begin an atom of 128 rows, as torch's scaled_grouped_mm has them. The kernels have never run on
hardware, and need no convention.
"""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np
import pytest

from cutegen.api import request_of
from cutegen.build import Cache, build
from cutegen.contract.problem import Groups, ProblemShape
from cutegen.errors import SpecError
from cutegen.plan import GemmPlan, plan
from cutegen.run import Kernel
from cutegen.spec import Factors, Schedule
from tests.run.test_grouped_kernels import failures
from tests.run.test_grouped_wgmma import Setting, compiled, edited, fails_with_many_groups

MX, NV = Factors((1, 32), "ue8m0"), Factors((1, 16), "ue4m3")
Of = partial(Setting, family="sm100", types=("e4m3", "f32"), tile=(128, 64, 128), atoms=MX)
MXF8 = Of("m", tile=(128, 96, 128))
NVF4 = Of("m", types=("e2m1x2", "f32"), tile=(128, 64, 64), atoms=NV, ops=("scale_m", "scale_n"))
SETTINGS = (
    MXF8,
    NVF4,
    Of("m", layout="padded", types=("e5m2", "bf16"), majors="knn"),
    Of("m", types=("e2m1x2", "bf16"), tile=(128, 96, 128)),
    Of("m", layout="padded", types=("e2m1x2", "bf16"), tile=(128, 64, 64), atoms=NV, ops=("bias_n", "relu")),
    Of("m", tile=(128, 128, 128), majors="kkm", schedule=Schedule(swap=True)),
    Of("n", tile=(128, 128, 128), majors="kkm"),
    Of("m", schedule=Schedule(cluster=(1, 2))),
)


@pytest.mark.dsl
@pytest.mark.slow
@pytest.mark.parametrize("setting", SETTINGS, ids=str)
def test_groups_are_right_for_any_ends(setting: Setting, kernels: Cache) -> None:
    assert list(failures(*compiled(setting, kernels), 5, setting.among)) == []


@pytest.mark.dsl
@pytest.mark.slow
@pytest.mark.parametrize("setting", [MXF8, NVF4], ids=["mxf8", "nvf4"])
def test_they_compile_for_sm_103_as_planned(setting: Setting, kernels: Cache) -> None:
    planned = plan(setting.spec(), "sm_103a")
    assert isinstance(planned, GemmPlan)
    assert build(request_of(planned), kernels).manifest.warnings == ()


SIZES = (3, 0, 130, 1, 128, 0)
"""Of groups: empty ones, one that begins within the first 128 rows, one of two atoms, one of a whole one."""
ROOM, N, K = 270, 136, 288


def atoms(exponents: np.ndarray[Any, Any], blocks: int) -> np.ndarray[Any, Any]:
    """Words of `blocks` atoms of rows for factors 2^exponents (rows, K), by the definition of an atom.

    Other rows of an atom are NaN. Those past K are 2^-127, since they scale zeros of each row.
    """
    rows, along_k = len(exponents), -(-exponents.shape[1] // 4)
    padded = np.pad(exponents, ((0, 0), (0, -exponents.shape[1] % 4)), constant_values=-127)
    codes = np.full((blocks, along_k, 512), 0xFF, np.uint8)
    row, factor = np.indices((rows, 4 * along_k))
    codes[row // 128, factor // 4, 16 * (row % 32) + 4 * (row % 128 // 32) + factor % 4] = 127 + padded
    return codes.reshape(blocks, 512 * along_k).view(np.int32)


def wrong_elements(kernel: Kernel, sizes: tuple[int, ...] = SIZES) -> int:
    """Count elements that are not exact if each takes one factor of A and one of B, all powers of two.

    A has a single 1 in a row, so that an element is 2^i 2^j. Rows of A that no group has, those that fill up atoms and
    atoms past the last are NaN.
    """
    ends = np.cumsum(sizes, dtype=np.int32)
    one, nan = 0x38, 0x7F  # of e4m3
    row, column, block = np.arange(ROOM)[:, None], np.arange(N), np.arange(-(-K // 32))
    of_a = (11 * row + 7 * block) % 61 - 30
    of_b = [(13 * group + 7 * column[:, None] + 29 * block) % 53 - 26 for group in range(len(sizes))]
    at = 37 * row[:, 0] % K
    a = np.zeros((ROOM, K), np.uint8)
    a[row[:, 0], at] = one
    a[ends[-1] :] = nan
    b = np.full((len(sizes), N, K), one, np.uint8)
    begins = [0, *ends[:-1]]
    used = [atoms(of_a[begin:end], -(-(end - begin) // 128)) for begin, end in zip(begins, ends, strict=True)]
    room = Groups("m").most_tiles(ROOM, len(sizes), 128)
    factors_a = np.full((room, 128 * -(-K // 128)), -1, np.int32)
    factors_a[: sum(map(len, used))] = np.concatenate(used)
    factors_b = np.stack([atoms(each, -(-N // 128)) for each in of_b])
    wanted = np.full((ROOM, N), np.nan, np.float32)
    for group, (begin, end) in enumerate(zip(begins, ends, strict=True)):
        for each in range(begin, end):
            k_block = at[each] // 32
            wanted[each] = 2.0 ** (of_a[each, k_block] + of_b[group][:, k_block])
    out = np.full((ROOM, N), np.nan, np.float32)
    extras = {"scale_a": factors_a, "scale_b": factors_b.swapaxes(-1, -2), "offs": ends}
    report = kernel.execute(a, b.swapaxes(-1, -2), out=out, **extras)
    assert report.violations == () == report.conventions
    return int((out.view(np.int32) != wanted.view(np.int32)).sum())


@pytest.mark.dsl
def test_each_element_has_the_factors_of_its_group(kernels: Cache) -> None:
    """Rows past the last end keep their bytes."""
    assert wrong_elements(compiled(MXF8, kernels)[1]) == 0


FIRST_ATOM = "first_atom = (tile - number) // across"
PLANTED = {
    "atoms of the next group": ("first_atom + tile_m", "first_atom + tile_m + 1"),
    "a group begins at its row in one matrix of atoms": (FIRST_ATOM, "first_atom = begin // 128"),
    "each group has one atom": (FIRST_ATOM, "first_atom = first_group + lane"),
    "an atom for each tile": (FIRST_ATOM, "first_atom = tile - number"),
    "factors of the first group's weights": ("CTA_N // 128, k_tile * 128, batch]", "CTA_N // 128, k_tile * 128, 0]"),
    "all tiles have the group's first atom": ("first_atom + tile_m, k_tile", "first_atom, k_tile"),
}


@pytest.mark.dsl
@pytest.mark.slow
@pytest.mark.parametrize("mistake", PLANTED)
def test_factors_of_others_are_noticed(mistake: str, kernels: Cache) -> None:
    planned, kernel = edited(MXF8, *PLANTED[mistake], kernels)
    assert wrong_elements(kernel) > 0
    assert any(failures(planned, kernel, 8, MXF8.among)) or fails_with_many_groups(planned, kernel, MXF8.among)


def test_a_call_has_the_atoms_that_any_sizes_need() -> None:
    """Groups of 1 row need an atom each: 3 groups of 128 rows in all may need (128 + 3 * 127) / 128."""
    planned = plan(MXF8.spec(), "sm_100a")
    assert isinstance(planned, GemmPlan)
    of_a, of_b = (planned.launch.tensor(name) for name in ("scale_a", "scale_b"))
    problem, groups = ProblemShape(128, 200, 300, groups=3), planned.launch.groups
    assert of_a.extents(problem, groups) == (3, 384)
    assert of_b.extents(problem, groups) == (2, 384)


@pytest.mark.parametrize(
    ("setting", "said"),
    [
        (Of("k"), r'problem.groups: found .*"k".*parts of K would begin within a block'),
        (Of("n", majors="kkm"), r"tile.cta: found 128x64x128.*expected 128 along the kernel's n, and not 64"),
    ],
    ids=["parts of K", "tiles within atoms"],
)  # fmt: skip
def test_what_atoms_of_groups_cannot_have_is_refused(setting: Setting, said: str) -> None:
    with pytest.raises(SpecError, match=said):
        plan(setting.spec(), "sm_100a")
