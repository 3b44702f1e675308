"""Factors of blocks of A and B, executed: every recipe exact with powers of two, and against float64 on random data."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

from cutegen.api import request_of
from cutegen.build import Cache, build
from cutegen.errors import CutegenError, OperandError
from cutegen.plan import GemmPlan, plan
from cutegen.run import Kernel, float8_bits
from cutegen.spec import Epilogue, Factors, GemmSpec, Mma, Operand, Paired, Problem, Schedule, Tile
from cutegen.spec.file import spec_table
from cutegen.verify import compare, expected_outcome, random_extras, random_operands
from cutegen.verify.counts import count_launch
from cutegen.verify.reference import spread_factors

ARCH, K = "sm_90a", 128
E4M3 = Operand("e4m3", "k")
Floats = npt.NDArray[np.float32]


@dataclass(frozen=True, slots=True)
class Setting:
    """A recipe, rows of a block of A x rows of a block of B, and what else a spec says."""

    rows: tuple[int, int]
    tile: tuple[int, ...] | None = None
    c: str = "f32"
    majors: tuple[str | None, str | None] = (None, None)
    aligns: tuple[int | None, int | None] = (None, None)
    schedule: Schedule = field(default_factory=Schedule)
    mma: Mma = field(default_factory=Mma)
    epilogue: Epilogue = field(default_factory=Epilogue)

    def __str__(self) -> str:
        """Return what it says, as the name of a test."""
        parts = (self.schedule, self.mma, self.epilogue)
        said = [f"{key}={x}" for part in parts for key, x in spec_table(part).items()]
        if any(self.aligns):
            said.append(f"aligned {self.aligns[0]} {self.aligns[1]}")
        return " ".join(map(str, (*self.rows, *(self.tile or ()), *(x for x in self.majors if x), self.c, *said)))

    @property
    def spec(self) -> GemmSpec:
        of_both = zip(self.rows, self.majors, self.aligns, strict=True)
        of_a, of_b = (Factors((rows, K), major=major, align=align) for rows, major, align in of_both)
        problem = Problem(a=E4M3, b=E4M3, c=Operand(self.c, "n"), scale_a=of_a, scale_b=of_b)
        return GemmSpec(
            family="sm90",
            problem=problem,
            tile=Tile(self.tile and (*self.tile, K)[:3]),  # type: ignore[arg-type]
            mma=self.mma,
            schedule=self.schedule,
            epilogue=self.epilogue,
            name="scaled",
        )


def made(setting: Setting, kernels: Cache, edit: Callable[[str], str] = str) -> tuple[GemmPlan, Kernel]:
    """Plan and build; `edit` changes the kernel's text."""
    planned = plan(setting.spec, ARCH)
    assert isinstance(planned, GemmPlan)
    request = request_of(planned)
    source = replace(request.source, text=edit(request.source.text))
    return planned, Kernel(build(replace(request, source=source), kernels))


ROWS, BLOCKS = 1, 128
PINGPONG = Schedule(consumers="pingpong")
SHIPPED = (
    Setting((ROWS, BLOCKS)),
    Setting((ROWS, BLOCKS), (64, 96), schedule=PINGPONG),  # tiles begin within a block
)
OTHERS = (
    Setting((ROWS, ROWS)),
    Setting((BLOCKS, ROWS)),
    Setting((BLOCKS, BLOCKS)),
    Setting((ROWS, BLOCKS), (128, 192)),
    Setting((BLOCKS, BLOCKS), (192, 128)),  # three warpgroups, of which one has another block
    Setting((BLOCKS, ROWS), (64, 120), schedule=PINGPONG),
    Setting((64, 8), (64, 72), majors=("m", "n")),
    Setting((ROWS, BLOCKS), (64, 192), mma=Mma(atom_layout=(1, 2, 1))),
    Setting((ROWS, BLOCKS), majors=("m", "n"), schedule=Schedule(cluster=(2, 1))),
    Setting((ROWS, BLOCKS), schedule=Schedule(cluster=(1, 2))),
    Setting((ROWS, BLOCKS), schedule=Schedule(split_k=2)),
    Setting((ROWS, BLOCKS), schedule=Schedule(split_k=2, reduction="cluster")),
    Setting((ROWS, BLOCKS), (64, 32), schedule=Schedule(swap=True)),
    Setting((BLOCKS, ROWS), schedule=Schedule(swap=True, programmatic=True)),
    Setting((ROWS, BLOCKS), (128, 128, 64)),  # a block is of two k-tiles
    Setting((ROWS, ROWS), (64, 96, 32), majors=("k", "k"), schedule=Schedule(swap=True)),
    Setting((ROWS, BLOCKS), (256, 128)),  # in waves of 64 rows, through one set of partial sums
    Setting((BLOCKS, BLOCKS), (256, 120), schedule=Schedule(cluster=(1, 2))),
    Setting((ROWS, BLOCKS), (128, 128, 64), aligns=(4, None), schedule=Schedule(cluster=(2, 1))),
)
ANY = (4, 4)
"""Strides that are multiples of no more than an element."""
OF_LANES = (
    Setting((ROWS, BLOCKS), aligns=ANY),
    Setting((ROWS, BLOCKS), (64, 96), aligns=ANY, schedule=PINGPONG),
    Setting((BLOCKS, ROWS), (64, 72), majors=("k", "n"), aligns=ANY),
    Setting((ROWS, ROWS), (256, 64), majors=("k", "k"), aligns=ANY, schedule=Schedule(cluster=(2, 1))),
    Setting((ROWS, BLOCKS), majors=("k", "n"), aligns=(4, None), schedule=Schedule(split_k=2, reduction="cluster")),
    Setting((ROWS, BLOCKS), aligns=(None, 8), schedule=Schedule(cluster=(1, 2), programmatic=True)),
    Setting((ROWS, BLOCKS), (64, 32), aligns=ANY, schedule=Schedule(swap=True, programmatic=True, weights="b")),
    Setting((ROWS, ROWS), (128, 64, 64), majors=("k", "k"), aligns=ANY),
)
EPILOGUES = (
    Setting((ROWS, BLOCKS), c="bf16", epilogue=Epilogue(ops=("bias_n", "silu"))),
    Setting((ROWS, BLOCKS), c="f16", epilogue=Epilogue(expression="x -> x * scale_m + bias_n")),
)
SOME_AND_ALL = [*SHIPPED, *(pytest.param(each, marks=pytest.mark.slow) for each in (*OTHERS, *OF_LANES))]


def distinct_powers(shape: tuple[int, int], seed: int) -> Floats:
    """Powers of two, all distinct among two dozen neighbouring rows; those of a row span few binary digits."""
    rows, blocks = shape
    order = np.stack([np.random.default_rng([seed, row]).permutation(blocks) for row in range(rows)])
    found: Floats = np.exp2(blocks * (np.arange(rows)[:, None] % 24 - 12) + order).astype(np.float32)
    return found


def in_memory(kernel: Kernel, name: str, values: Floats, **call: int) -> Any:
    """Factors, (blocks of rows, blocks of K), as the kernel takes them; NaN lies between their rows."""
    factors = random_extras(kernel.contract, call["m"], call["n"], k=call["k"], seed=0)[name]
    factors[...] = values if name == "scale_a" else values.T
    return factors


@pytest.mark.dsl
@pytest.mark.parametrize("setting", SOME_AND_ALL, ids=str)
def test_factors_that_are_distinct_powers_of_two_make_results_exact(setting: Setting, kernels: Cache) -> None:
    """Sums of a block are integers below 2^8, and those of all blocks span fewer digits than f32 has."""
    planned, kernel = made(setting, kernels)
    m, n, k = 132, 200, 2 * K + 16
    random = np.random.default_rng(5)
    x, y = (random.integers(-1, 2, (rows, k)).astype(np.float32) for rows in (m, n))
    a, b, out = random_operands(kernel.contract, m, n, k, seed=1)
    a[...], b[...] = float8_bits(x, "e4m3"), float8_bits(y.T, "e4m3")
    of_a, of_b = (
        distinct_powers((-(-extent // rows), 3), seed=extent) for extent, rows in zip((m, n), setting.rows, strict=True)
    )
    scales = {
        "scale_a": in_memory(kernel, "scale_a", of_a, m=m, n=n, k=k),
        "scale_b": in_memory(kernel, "scale_b", of_b, m=m, n=n, k=k),
    }
    report = kernel.execute(a, b, out=out, **scales)
    assert report.violations == ()
    assert "wgmma.mma_async" in str(planned.predictions.instructions)
    assert "e4m3.e4m3" in str(planned.predictions.instructions)
    exact = (x.astype(float) * spread_factors(of_a.astype(float), (setting.rows[0], K), x.shape)) @ (
        y.astype(float) * spread_factors(of_b.astype(float), (setting.rows[1], K), y.shape)
    ).T
    np.testing.assert_array_equal(out.astype(float), exact)


SWIGLU = Epilogue(expression="x, y -> silu(x) * y", pairs=Paired("halves", "gate"))
OF_PAIRS = (
    Setting((ROWS, BLOCKS), (64, 192), c="bf16", epilogue=SWIGLU),  # each half of a tile begins within a block
    Setting((BLOCKS, BLOCKS), (128, 128), c="f32", epilogue=SWIGLU, schedule=Schedule(cluster=(2, 1))),
    Setting((ROWS, BLOCKS), (128, 64), c="bf16", epilogue=SWIGLU, schedule=Schedule(swap=True)),
    Setting((ROWS, BLOCKS), (64, 192), c="bf16", aligns=ANY, epilogue=SWIGLU),
)


@pytest.mark.dsl
@pytest.mark.slow
@pytest.mark.parametrize("setting", OF_PAIRS, ids=str)
def test_each_member_of_pairs_has_blocks_of_its_own(setting: Setting, kernels: Cache) -> None:
    planned, kernel = made(setting, kernels)
    assert kernel.artifact.manifest.warnings == ()
    calls = ((136, 512, 400), (4, 256, 16))
    assert {call: failure(planned, kernel, *call) for call in calls} == dict.fromkeys(calls, "")
    assert "N = 384; expected a multiple of 256: halves of B's columns" in failure(planned, kernel, 8, 384, 128)


CALLS = ((200, 304, 528), (4, 8, 16), (129, 128, 128))
SMALL_CALLS = ((132, 136, 272), (4, 8, 16), (64, 128, 128))


def failure(planned: GemmPlan, kernel: Kernel, m: int, n: int, k: int, **options: Any) -> str:
    """Execute one call on random operands; return what is wrong with it, "" if nothing is."""
    a, b, out = random_operands(kernel.contract, m, n, k, seed=m + n + k, **options)
    extras = random_extras(kernel.contract, m, n, k=k, seed=m, **options)
    try:
        report = kernel.execute(a, b, out=out, **extras)
    except CutegenError as fault:
        return str(fault)
    if report.violations:
        return str(report.violations[0])
    outcome = expected_outcome(kernel.contract, a, b, extras)
    found = compare(out, outcome.result, dtype=planned.epilogue.dtype.name)
    if not found.ok:
        return str(found)
    size = kernel.call_size(a, b, out, **extras)
    return str(count_launch(planned, size, report).differing() or "")


@pytest.mark.dsl
@pytest.mark.parametrize(
    "setting", [*SOME_AND_ALL, *(pytest.param(x, marks=pytest.mark.slow) for x in EPILOGUES)], ids=str
)
def test_random_products_agree_with_float64(setting: Setting, kernels: Cache) -> None:
    planned, kernel = made(setting, kernels)
    assert kernel.artifact.manifest.warnings == ()
    calls = SMALL_CALLS if setting in SHIPPED else CALLS
    assert {call: failure(planned, kernel, *call) for call in calls} == dict.fromkeys(calls, "")
    assert failure(planned, kernel, 72, 40, 272, batch=2) == ""


def replaced(old: str, new: str, times: int = 1) -> Callable[[str], str]:
    def edit(text: str) -> str:
        assert text.count(old) == times, (text.count(old), old)
        return text.replace(old, new)

    return edit


READ = "return [sX[place, column, stage] for place in places]"
SUM = "tCrC[i] = tCrC[i] + scales[pair] * tCrP[i]"
IN_LOOPS = 2
"""How often a k-tile is written: in a turn of the loop, and for the k-tiles after the turns."""
PLANTED = {
    "the factors of the next block of K": replaced(READ, READ.replace("stage]", "(stage + 1) % STAGES]")),
    "rows r and r + 8 exchanged": replaced(
        "SCALE_A_OF_SUMS_STRIDE = (0, 1, 0, 2)", "SCALE_A_OF_SUMS_STRIDE = (1, 0, 0, 2)"
    ),
    "the first factor of a box along K": replaced("(first_k_tile + each) % 4, stage", "0, stage", IN_LOOPS),
    "a box along K begins at the k-tile's factor": replaced(
        "k_tile // 4 * 4, batch]\n                    cute", "k_tile, batch]\n                    cute"
    ),
    "the block of the first tile": replaced("(begin % block + row) // block", "row // block"),
    "factors applied after the sum": replaced(SUM, "tCrC[i] = scales[pair] * (tCrC[i] + tCrP[i])"),
    "A's factors alone": replaced("factors_a[pair[0]] * factors_b[pair[1]]", "factors_a[pair[0]]"),
    "the last block of K has the factors of the one before": replaced(
        "tScaleAc[None, tile_m * CTA_M, k_tile, batch]",
        "tScaleAc[None, tile_m * CTA_M, cutlass.min(k_tile, k // 128 - 1), batch]",
    ),
    "read after the stage is released": replaced(
        "add_scaled(tCrC, tCrP, factors_a,",
        "add_scaled(tCrC, tCrP, read_factors(tScaleA, places_a, 0, (stage - 1) % STAGES),",
        IN_LOOPS,
    ),
    "one lane arrives before the others have read": lambda text: _sooner(text),
}
ARRIVES = "cute.arch.cp_async_mbarrier_arrive_noinc(full + stage)"
PLANTED_IN_LANES = {
    "no lane arrives": replaced(ARRIVES, "pass"),
    "lanes arrive before they copy": lambda text: replaced(ARRIVES, "")(text).replace(
        "copy_k_tile(map_a, *boxes_a", f"{ARRIVES}\n                    copy_k_tile(map_a, *boxes_a"
    ),
    "lanes arrive at the next stage's barrier": replaced(ARRIVES, ARRIVES.replace("stage)", "(stage + 1) % STAGES)")),
    "one lane does not arrive": replaced(ARRIVES, f"if cute.arch.lane_idx() != 7:\n                        {ARRIVES}"),
    "factors go to the stage before": replaced(
        "sScaleA[None, None, stage], tScaleAc", "sScaleA[None, None, (stage - 1) % STAGES], tScaleAc"
    ),
    "lanes copy before the stage is free": lambda text: _moved_up(text),
    "the rows of the tile before": replaced(
        "row, source_bytes = first + x % room,", "row, source_bytes = first - 1 + x % room,"
    ),
    "no bound of rows": replaced("row < rows and column < mX.shape[1]", "column < mX.shape[1]"),
}


def _sooner(text: str) -> str:
    """Release a stage without a wait for the other lanes."""
    found, times = re.subn(r" +cute\.arch\.sync_warp\(\)\n( +release\()", r"\1", text)
    assert times == IN_LOOPS, times
    return found


def _moved_up(text: str) -> str:
    """Copy the factors of a k-tile before the wait for its stage."""
    wait = "                    cute.arch.mbarrier_wait(empty + stage, phase ^ 1)\n"
    before, after = text.split(wait)
    lines = after.splitlines(keepends=True)
    first = next(i for i, line in enumerate(lines) if "places = sScaleA" in line)
    return before + "".join(lines[first : first + 2]) + wait + "".join([*lines[:first], *lines[first + 2 :]])


@pytest.mark.dsl
@pytest.mark.slow
@pytest.mark.parametrize("mistake", PLANTED_IN_LANES)
def test_a_wrong_copy_by_lanes_is_noticed(mistake: str, kernels: Cache) -> None:
    planned, kernel = made(Setting((ROWS, BLOCKS), (64, 96), aligns=ANY), kernels, PLANTED_IN_LANES[mistake])
    assert any(failure(planned, kernel, *call) for call in ((200, 304, 528), (129, 128, 1040)))


PLANTED_IN_WAVES = {
    "the first rows in both waves": replaced("rows_of_wave(tCrA, wave)", "rows_of_wave(tCrA, 0)", IN_LOOPS),
    "the second wave's sums are the first's": replaced(
        "scales[pair] * tCrP[i - wave * sums]", "scales[pair] * tCrP[0]"
    ),
    "the second wave has the first's factors": replaced("of_a(i), of_b(i)", "of_a(i - wave * sums), of_b(i)"),
    "the stage is free after the first wave": replaced(
        "if cutlass.const_expr(wave == WAVES - 1)", "if wave == 0", IN_LOOPS
    ),
}


@pytest.mark.dsl
@pytest.mark.slow
@pytest.mark.parametrize("mistake", PLANTED_IN_WAVES)
def test_a_wrong_wave_of_rows_is_noticed(mistake: str, kernels: Cache) -> None:
    planned, kernel = made(Setting((ROWS, BLOCKS), (256, 128)), kernels, PLANTED_IN_WAVES[mistake])
    assert any(failure(planned, kernel, *call) for call in ((300, 136, 528), (129, 128, 144)))


TURN = (70, 136, 1300)
"""A call of a turn of eight k-tiles and three more, the last of which K ends in."""
PLANTED_IN_SETS = {
    "the factors of the block that is multiplied": replaced(
        "add_scaled(tCrC, promoted, factors_a, factors_b)", "add_scaled(tCrC, promoted, next_a, next_b)"
    ),
    "the set that is multiplied": replaced("add_scaled(tCrC, promoted,", "add_scaled(tCrC, multiplied,"),
    "the other set at the end of a turn": replaced(
        "add_scaled(tCrC, tCrP if K_TILES_PER_TURN % 2 else tCrQ,", "add_scaled(tCrC, tCrP,"
    ),
    "no wait for the sums of the block before": replaced("warpgroup.wait_group(1)", "warpgroup.wait_group(2)"),
    "the stage that is multiplied is released": replaced(
        "                        release(empty + previous)\n                        add_scaled(tCrC, promoted",
        "                        release(empty + stage)\n                        add_scaled(tCrC, promoted",
    ),
}


@pytest.mark.dsl
@pytest.mark.slow
@pytest.mark.parametrize(
    "setting",
    [
        Setting((ROWS, BLOCKS)),
        Setting((ROWS, BLOCKS), majors=("k", "k"), schedule=Schedule(cluster=(2, 1))),
        Setting((ROWS, BLOCKS), (64, 128), aligns=ANY, schedule=PINGPONG),
    ],
    ids=str,
)
def test_two_sets_of_sums_have_the_factors_of_their_blocks(setting: Setting, kernels: Cache) -> None:
    planned, kernel = made(setting, kernels)
    assert planned.mma.accumulator.promotion is not None
    assert planned.mma.accumulator.promotion.sets == 2
    calls = (TURN, (8, 8, 2048))
    assert {call: failure(planned, kernel, *call) for call in calls} == dict.fromkeys(calls, "")


@pytest.mark.dsl
@pytest.mark.slow
@pytest.mark.parametrize("mistake", PLANTED_IN_SETS)
def test_a_wrong_set_of_sums_is_noticed(mistake: str, kernels: Cache) -> None:
    planned, kernel = made(Setting((ROWS, BLOCKS)), kernels, PLANTED_IN_SETS[mistake])
    assert failure(planned, kernel, *TURN)


AT_ONCE = ("the factors of the next block of K", "the block of the first tile")


@pytest.mark.dsl
@pytest.mark.parametrize("mistake", [x if x in AT_ONCE else pytest.param(x, marks=pytest.mark.slow) for x in PLANTED])
def test_a_wrong_scaling_is_noticed(mistake: str, kernels: Cache) -> None:
    planned, kernel = made(Setting((ROWS, BLOCKS), (64, 96)), kernels, PLANTED[mistake])
    # A race needs more k-tiles than there are stages.
    calls = ((64, 200, 272),) if mistake in AT_ONCE else ((200, 304, 528), (129, 128, 144))
    assert any(failure(planned, kernel, *call) for call in calls)


@pytest.mark.dsl
@pytest.mark.slow
@pytest.mark.parametrize(
    ("right", "wrong"),
    [
        ("each % PROMOTE_TILES != 0", "False"),
        ("if each % PROMOTE_TILES == PROMOTE_TILES - 1 or each == k_tiles - 1:", "if each >= 0:"),
        ("== PROMOTE_TILES - 1 or each == k_tiles - 1", "== PROMOTE_TILES - 1"),
    ],
)
def test_a_block_of_two_k_tiles_that_is_scaled_otherwise_is_noticed(right: str, wrong: str, kernels: Cache) -> None:
    planned, kernel = made(Setting((ROWS, BLOCKS), (128, 128, 64)), kernels, replaced(right, wrong))
    assert any(failure(planned, kernel, *call) for call in CALLS)


@pytest.mark.dsl
@pytest.mark.slow
def test_a_turn_that_is_not_passed_on_is_noticed(kernels: Cache) -> None:
    edit = replaced("cute.arch.mbarrier_arrive(turn + (1 - group))", "pass")
    planned, kernel = made(Setting((ROWS, BLOCKS), (64, 96), schedule=PINGPONG), kernels, edit)
    assert "wait" in failure(planned, kernel, 128, 200, 272)


@pytest.mark.dsl
@pytest.mark.slow
@pytest.mark.parametrize("aligns", [(None, None), ANY], ids=["boxes", "lanes"])
@pytest.mark.parametrize("k", [64, 128])
def test_an_empty_k_reads_no_factor(k: int, aligns: tuple[int | None, int | None], kernels: Cache) -> None:
    """An empty matrix has a map of one element, which a k-tile that is a part of a block must not take for its own."""
    planned, kernel = made(Setting((ROWS, ROWS), (64, 64, k), majors=("m", "k"), aligns=aligns), kernels)
    assert failure(planned, kernel, 40, 24, 0) == ""


@pytest.mark.dsl
@pytest.mark.slow
def test_factors_of_a_and_of_b_exchanged_are_noticed(kernels: Cache) -> None:
    edit = replaced("read_factors(tScaleB, places_b, 0, stage)", "read_factors(tScaleA, places_b, 0, stage)")
    planned, kernel = made(Setting((ROWS, ROWS)), kernels, edit)
    assert any(failure(planned, kernel, *call) for call in CALLS)


@pytest.mark.dsl
def test_a_call_passes_both_factors_in_the_order_of_their_operands(kernels: Cache) -> None:
    _, kernel = made(SHIPPED[0], kernels)
    a, b, out = random_operands(kernel.contract, 64, 264, 400, seed=1)
    scales = random_extras(kernel.contract, 64, 264, k=400, seed=1)
    assert (scales["scale_a"].shape, scales["scale_b"].shape) == ((64, 4), (4, 3))
    with pytest.raises(OperandError, match=r"scale_b: found none; .* pass scale_b="):
        kernel(a, b, out=out, scale_a=scales["scale_a"])
    with pytest.raises(OperandError, match=r"scale_b: found shape \(3, 4\); expected \(4, 3\), \(K, N\) of blocks of"):
        kernel(a, b, out=out, scale_a=scales["scale_a"], scale_b=scales["scale_b"].T)
