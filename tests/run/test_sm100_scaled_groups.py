"""Groups of products whose factors of 8 bits are in atoms, by tcgen05 on the CPU executor, and wrong kernels.

Each group's factors begin an atom of 128 rows, or of the K of 4 blocks, as torch's scaled_grouped_mm has them. The
kernels have never run on hardware, and need no convention.
"""

from __future__ import annotations

from contextlib import nullcontext
from functools import partial
from typing import Any

import numpy as np
import pytest

from cutegen.api import request_of
from cutegen.build import Cache, build
from cutegen.contract.problem import Groups, ProblemShape
from cutegen.errors import OperandError, PtxFault, RequestError, SpecError
from cutegen.plan import GemmPlan, plan
from cutegen.run import Kernel
from cutegen.spec import Factors, Quantized, Schedule
from cutegen.verify.trial import Asked, try_kernel
from tests.run.test_grouped_kernels import failures
from tests.run.test_grouped_wgmma import Setting, compiled, edited, fails_with_many_groups

MX, NV = Factors((1, 32), "ue8m0"), Factors((1, 16), "ue4m3")
Of = partial(Setting, family="sm100", types=("e4m3", "f32"), tile=(128, 64, 128), atoms=MX)
MXF8 = Of("m", tile=(128, 96, 128))
NVF4 = Of("m", types=("e2m1x2", "f32"), tile=(128, 64, 64), atoms=NV, ops=("scale_m", "scale_n"))
K_MAJOR = Of("k", tile=(128, 96, 128))
PARTS_OF_K = Of("k", tile=(128, 96, 256), majors="mnn")
SETTINGS = (
    MXF8,
    NVF4,
    Of("m", layout="padded", types=("e5m2", "bf16"), majors="knn"),
    Of("m", types=("e2m1x2", "bf16"), tile=(128, 96, 128)),
    Of("m", layout="padded", types=("e2m1x2", "bf16"), tile=(128, 64, 64), atoms=NV, ops=("bias_n", "relu")),
    Of("m", tile=(128, 128, 128), majors="kkm", schedule=Schedule(swap=True)),
    Of("n", tile=(128, 128, 128), majors="kkm"),
    Of("m", schedule=Schedule(cluster=(1, 2))),
    K_MAJOR,
    PARTS_OF_K,
    Of("k", types=("e5m2", "bf16"), tile=(128, 160, 128), majors="mkm"),
    Of("k", types=("e2m1x2", "bf16"), tile=(128, 96, 64), atoms=NV, ops=("scale_m", "scale_n")),
    Of("k", types=("e2m1x2", "f32"), ops=("bias_n", "beta")),
    Of("k", tile=(128, 128, 128), majors="mnm", schedule=Schedule(swap=True)),
    Of("k", majors="mnn", schedule=Schedule(cluster=(1, 2))),
    Of("k", types=("e4m3", "e4m3"), tile=(128, 128, 128), quantize=Quantized("e4m3")),
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


def atoms(exponents: np.ndarray[Any, Any], blocks: int, past_k: int = -127) -> np.ndarray[Any, Any]:
    """Words of `blocks` atoms of rows for factors 2^exponents (rows, K), by the definition of an atom.

    Other rows of an atom are NaN. Those past K are 2^past_k, 2^-127 where they scale zeros of each row.
    """
    rows, along_k = len(exponents), -(-exponents.shape[1] // 4)
    padded = np.pad(exponents, ((0, 0), (0, -exponents.shape[1] % 4)), constant_values=past_k)
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


ONE, NAN, EXPONENT_OF_NAN = 0x38, 0x7F, 128
"""Codes of e4m3, and the exponent of a factor that is NaN."""
ENDS = (48, 48, 192, 208, 336, 336, 368, 376)
"""Of parts of K: empty ones, of half a block, of four blocks and a half, of a whole atom."""


def wrong_elements_of_parts(kernel: Kernel, ends: tuple[int, ...] = ENDS, m: int = 140, n: int = 200) -> int:
    """Count elements that are not exact if each takes one factor of A and one of B, all powers of two.

    A has a single 1 in a row of each part, so that an element is 2^i 2^j. What no part has of A, B and their factors is
    NaN: K past the last end, rows that fill up atoms, blocks of an atom past a part's end, and atoms past the last.
    """
    room, row, column = ends[-1] + 21, np.arange(m)[:, None], np.arange(n)[:, None]
    a, b = np.zeros((m, room), np.uint8), np.full((n, room), ONE, np.uint8)
    wanted = np.zeros((len(ends), m, n), np.float32)
    of_parts: list[tuple[np.ndarray[Any, Any], np.ndarray[Any, Any]]] = []
    for group, (begin, end) in enumerate(zip((0, *ends[:-1]), ends, strict=True)):
        if begin == end:
            continue
        block = np.arange(-(-(end - begin) // 32))
        of_a, of_b = (11 * row + 7 * block + group) % 61 - 30, (13 * column + 17 * block + 5 * group) % 53 - 26
        at = 37 * row[:, 0] % (end - begin)
        a[row[:, 0], begin + at] = ONE
        wanted[group] = 2.0 ** (of_a[row[:, 0], at // 32][:, None] + of_b[:, at // 32].T)
        words = (atoms(of_x, -(-len(of_x) // 128), EXPONENT_OF_NAN).reshape(-1, 128) for of_x in (of_a, of_b))
        of_parts.append((next(words), next(words)))
    a[:, ends[-1] :] = b[:, ends[-1] :] = NAN
    most, lists = Groups("k").most_tiles(room, len(ends), 128), []
    for rows, parts in zip((m, n), zip(*of_parts, strict=True), strict=True):
        lists.append(np.full((-(-rows // 128) * most, 128), -1, np.int32))
        lists[-1][: sum(map(len, parts))] = np.concatenate(parts)
    major_a, major_b = (x.major for x in kernel.contract.operands)
    a, b = (_aligned(x, major) for x, major in ((a, major_a), (b, major_b)))
    out = np.full(wanted.shape, np.nan, np.float32)
    extras = {"scale_a": lists[0], "scale_b": lists[1].T, "offs": np.array(ends, np.int32)}
    report = kernel.execute(a, b.T, out=out, **extras)
    assert report.violations == () == report.conventions
    return int((out.view(np.int32) != wanted.view(np.int32)).sum())


def _aligned(x: np.ndarray[Any, Any], major: str) -> np.ndarray[Any, Any]:
    """Return (rows, K) with K contiguous, or rows, and a leading stride of whole vectors of 16 bytes."""
    x = x if major == "k" else x.T
    padded = np.ascontiguousarray(np.pad(x, ((0, 0), (0, -x.shape[1] % 16))))[:, : x.shape[1]]
    return padded if major == "k" else padded.T


@pytest.mark.dsl
@pytest.mark.slow
def test_each_element_has_the_factors_of_its_part_of_k(kernels: Cache) -> None:
    assert wrong_elements_of_parts(compiled(K_MAJOR, kernels)[1]) == 0


@pytest.mark.dsl
@pytest.mark.slow
@pytest.mark.parametrize("ends", [ENDS, (3, 3, 144, 145, 273, 304)], ids=len)
def test_parts_begin_anywhere_along_k_where_rows_are_contiguous(ends: tuple[int, ...], kernels: Cache) -> None:
    assert wrong_elements_of_parts(compiled(PARTS_OF_K, kernels)[1], ends) == 0


def wrong_elements_of_many(kernel: Kernel) -> int:
    """Count those of more parts than the lanes of a warp have at once, some of two atoms."""
    return wrong_elements_of_parts(kernel, tuple(np.cumsum([16, 144] * 18).tolist()), m=8, n=40)


@pytest.mark.dsl
@pytest.mark.slow
def test_more_parts_than_lanes_have_atoms_of_their_own(kernels: Cache) -> None:
    assert wrong_elements_of_many(compiled(K_MAJOR, kernels)[1]) == 0


@pytest.mark.dsl
@pytest.mark.slow
def test_a_part_that_begins_within_a_vector_is_nan(kernels: Cache) -> None:
    """Its blocks are no instruction's; the parts beside it have their products."""
    _, kernel = compiled(K_MAJOR, kernels)
    m, n, k, ends = 40, 72, 144, np.array([40, 96, 128], np.int32)
    a, b = np.full((m, k), ONE, np.uint8), np.full((n, k), ONE, np.uint8)
    factors = np.full((4, 128), 0x7F7F7F7F, np.int32)
    out = np.zeros((3, m, n), np.float32)
    report = kernel.execute(a, b.T, out=out, scale_a=factors, scale_b=factors.copy().T, offs=ends)
    assert report.violations == () == report.conventions
    assert [float(each) for each in out[[0, 2], 0, 0]] == [40, 32]
    assert (out[[0, 2]] == out[[0, 2], :1, :1]).all()
    assert np.isnan(out[1]).all()
    assert kernel.contract.begin_multiple == 16


@pytest.mark.dsl
@pytest.mark.slow
def test_a_check_refuses_parts_whose_product_would_be_nan(kernels: Cache) -> None:
    planned, kernel = compiled(K_MAJOR, kernels)
    asked = Asked(device="cpu", problem=ProblemShape(40, 40, 200), batch=None, seed=0, sizes=(30, 100, 20))
    said = r"found a group that begins at 30 along K; expected multiples of 16, 16 bytes.*--sizes 16,96,16"
    with pytest.raises(RequestError, match=said):
        try_kernel(kernel, planned, asked, options={}, progress=nullcontext)


@pytest.mark.dsl
@pytest.mark.slow
def test_a_list_of_other_atoms_is_told(kernels: Cache) -> None:
    """3 parts of 144 in all may need (144 + 3 x 127) / 128 atoms for 128 rows."""
    _, kernel = compiled(K_MAJOR, kernels)
    a, b, ends = np.zeros((40, 144), np.uint8), np.zeros((72, 144), np.uint8), np.array([16, 32, 144], np.int32)
    of_a, of_b = np.zeros((5, 128), np.int32), np.zeros((4, 128), np.int32)
    said = (
        r"scale_a: found shape \(5, 128\); expected \(4, 128\), \(the list for any sizes of 3 groups\) of blocks of 128"
    )
    with pytest.raises(OperandError, match=said):
        kernel(a, b.T, scale_a=of_a, scale_b=of_b.T, offs=ends)


FIRST_OF_K = "cute.arch.shuffle_sync(first_atoms, lane)"
ATOMS_OF_K = "atoms_of_k, first_of_k = cute.ceil_div(k, K_ATOM)"
KEPT = "cute.ceil_div(rest, K_ATOM // 4)"
PLANTED_IN_PARTS = {
    "atoms of the next part": (FIRST_OF_K, f"{FIRST_OF_K} + 1"),
    "parts follow one another within atoms": (FIRST_OF_K, "begin // K_ATOM"),
    "each part has one atom": (FIRST_OF_K, "first_group + lane"),
    "rows are as long as those of all parts": (ATOMS_OF_K, "atoms_of_k, first_of_k = cute.ceil_div(room, K_ATOM)"),
    "all tiles have the first rows' atoms": ("tile_m * CTA_M // 128 * atoms_of_k", "tile_m * 0"),
    "the next rows' atoms follow at once": ("first_of_n + 1 * atoms_of_k", "first_of_n + 1"),
    "an empty part has atoms": ("Int32(PAST_ATOMS), Int32(PAST_ATOMS)", "Int32(0), Int32(0)"),
    "factors of A past a part's end stay": (f"keep_factors(sScaleA, {KEPT}", "keep_factors(sScaleA, Int32(4)"),
    "factors of B past a part's end stay": (f"keep_factors(sScaleB, {KEPT}", "keep_factors(sScaleB, Int32(4)"),
    "a rest of a block has no factor": (f"keep_factors(sScaleB, {KEPT}", "keep_factors(sScaleB, rest // 32"),
    "parts of later lanes' windows are counted anew": (
        "first_atoms = atoms + sum_of_lanes",
        "first_atoms = sum_of_lanes",
    ),
}


@pytest.mark.dsl
@pytest.mark.slow
@pytest.mark.parametrize("mistake", PLANTED_IN_PARTS)
def test_factors_of_other_parts_are_noticed(mistake: str, kernels: Cache) -> None:
    _, kernel = edited(K_MAJOR, *PLANTED_IN_PARTS[mistake], kernels)
    assert wrong_elements_of_parts(kernel) > 0 or wrong_elements_of_many(kernel) > 0


PROXY = "    # The copies to tensor memory read the stage by the async proxy.\n"
FENCE, MEET = '    cute.arch.fence_proxy("async.shared", space="cta")\n', "    cute.arch.sync_warp()\n"
UNORDERED = {
    "factors are set to 0 without a fence": MEET,
    "a lane copies factors before others have set theirs": FENCE,
}


@pytest.mark.dsl
@pytest.mark.slow
@pytest.mark.parametrize("mistake", UNORDERED)
def test_zeros_of_factors_that_are_not_ordered_are_noticed(mistake: str, kernels: Cache) -> None:
    _, kernel = edited(K_MAJOR, PROXY + FENCE + MEET, PROXY + UNORDERED[mistake], kernels)
    with pytest.raises(PtxFault, match="race"):
        wrong_elements_of_parts(kernel)


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
        (Of("n", majors="kkm"), r"tile.cta: found 128x64x128.*expected 128 along the kernel's n, and not 64"),
    ],
    ids=["tiles within atoms"],
)  # fmt: skip
def test_what_atoms_of_groups_cannot_have_is_refused(setting: Setting, said: str) -> None:
    with pytest.raises(SpecError, match=said):
        plan(setting.spec(), "sm_100a")
