"""A quantized C of tcgen05 kernels on the CPU executor: as `cutegen.quantize` has it, with groups, and wrong kernels.

A thread has all 128 columns of a row of a part, or with 64 rows of one CTA four lanes do. The kernels have never run on
hardware, and need no convention.
"""

from __future__ import annotations

from dataclasses import replace
from functools import partial

import pytest

from cutegen.build import Cache
from cutegen.errors import SpecError
from cutegen.plan import GemmPlan, plan
from cutegen.run import Kernel
from cutegen.spec import Epilogue, Factors, GemmSpec, Mma, Quantized, Schedule
from cutegen.spec.parts import Paired
from tests.run import test_grouped_wgmma as grouped
from tests.run.test_grouped_kernels import failures
from tests.run.test_quantized import (
    CALLS,
    CHAIN,
    OF_PAIRS,
    PAIRS,
    SWIGLU,
    Setting,
    failure,
    hold_bits,
    made,
    replaced,
)

ARCH, MX = "sm_100a", Factors((1, 32), "ue8m0")
Of = partial(Setting, scaled=False, family="sm100")


def spec_of(setting: Setting, factors: Factors | None = None, ctas: int = 1, *, quantized: bool = True) -> GemmSpec:
    """The spec with factors of 8 bits, those of f32 that a setting has, or none, for a CTA or a pair."""
    spec = setting.spec(quantized=quantized)
    if factors is not None:
        spec = replace(spec, problem=replace(spec.problem, scale_a=factors, scale_b=factors))
    return replace(spec, mma=Mma(cta_group=ctas))


PLAIN = Of("bf16", tile=(128, 128, 64))
COLUMNS = Of("bf16", tile=(128, 256, 64), epilogue=PAIRS.epilogue)
BIASED_COLUMNS = replace(
    COLUMNS,
    epilogue=Epilogue(ops=("bias_n",), expression=PAIRS.epilogue.expression, pairs=Paired("interleaved", "up")),
)
BIASED = Of("bf16", tile=(128, 128, 64), epilogue=CHAIN.epilogue)
SETTINGS: dict[str, tuple[Setting, Factors | None, int]] = {
    "bf16": (PLAIN, None, 1),
    "two parts of 128 columns": (Of(scale="ue8m0", tile=(128, 256, 128)), None, 1),
    "mxf8": (Of(tile=(128, 128, 128)), MX, 1),
    "fragments of 64 rows": (Of("bf16", tile=(64, 128, 64)), None, 1),
    "a pair": (Of("bf16", tile=(128, 128, 64)), None, 2),
    "halves of columns": (Of("bf16", tile=(64, 256, 64)), None, 2),
    "factors of f32": (Of(scaled=True), None, 1),
    "a pair with factors of f32": (Of(scaled=True, scale="ue8m0", tile=(128, 128, 128)), None, 2),
    "slices of K": (Of("bf16", tile=(128, 128, 64), schedule=Schedule(split_k=2)), None, 1),
    "dynamic tiles": (Of("bf16", tile=(128, 128, 64), schedule=Schedule(tiles="dynamic")), None, 1),
    "pairs of columns": (COLUMNS, None, 1),
    "fragments of pairs of columns": (Of("bf16", tile=(64, 256, 64), epilogue=PAIRS.epilogue), None, 1),
    "pairs of columns with mxf8": (Of(tile=(128, 256, 128), epilogue=PAIRS.epilogue), MX, 1),
    "pairs of columns with mxf8 by a pair": (
        Of(scale="ue8m0", tile=(128, 256, 128), epilogue=PAIRS.epilogue),
        MX,
        2,
    ),
}


@pytest.mark.dsl
@pytest.mark.slow
@pytest.mark.parametrize("name", SETTINGS)
def test_a_kernel_quantizes_as_torch_does_bit_for_bit(name: str, kernels: Cache) -> None:
    setting, factors, ctas = SETTINGS[name]
    planned, kernel = made(spec_of(setting, factors, ctas), kernels, arch=ARCH)
    _, wide = made(spec_of(setting, factors, ctas, quantized=False), kernels, arch=ARCH)
    assert kernel.artifact.manifest.warnings == ()
    hold_bits(kernel, wide, setting, 200 if setting.epilogue.pairs is None else 512)
    hold_calls(planned, kernel, setting)


def hold_calls(planned: GemmPlan, kernel: Kernel, setting: Setting) -> None:
    """Hold results with tails, and of a batch, against float64."""
    calls = CALLS if setting.epilogue.pairs is None else OF_PAIRS
    assert {call: failure(planned, kernel, *call) for call in calls} == dict.fromkeys(calls, "")
    if setting.schedule.split_k is None:
        assert failure(planned, kernel, 72, 256, 272, batch=2) == ""


@pytest.mark.dsl
@pytest.mark.slow
@pytest.mark.parametrize("setting", [BIASED, BIASED_COLUMNS], ids=["bias", "bias and pairs of columns"])
def test_a_chain_comes_before(setting: Setting, kernels: Cache) -> None:
    hold_calls(*made(spec_of(setting), kernels, arch=ARCH), setting)


OfGroups = partial(grouped.Setting, family="sm100", quantize=Quantized("e4m3"))
GROUPS = (
    OfGroups("m", types=("e4m3", "e4m3"), tile=(128, 128, 128), atoms=MX),
    OfGroups("m", types=("bf16", "e4m3"), tile=(128, 128, 64), ops=("bias_n",)),
    OfGroups("m", types=("e4m3", "e4m3"), tile=(128, 128, 128), rows=(1, 128)),
    OfGroups("m", layout="padded", types=("bf16", "e4m3"), tile=(64, 128, 64), quantize=Quantized("e4m3", "ue8m0")),
    OfGroups("m", types=("bf16", "e4m3"), tile=(128, 128, 64), cta_group=2),
    OfGroups("m", types=("bf16", "e4m3"), tile=(128, 256, 64), expression=SWIGLU, pairs=Paired("halves", "gate")),
)


@pytest.mark.dsl
@pytest.mark.slow
@pytest.mark.parametrize("setting", GROUPS, ids=str)
def test_results_of_groups_are_right_for_any_ends(setting: grouped.Setting, kernels: Cache) -> None:
    assert list(failures(*grouped.compiled(setting, kernels), 5, setting.among)) == []


PLANTED = {
    "the factor of the first block for all": (PLAIN, "mFactors[m, part_n] =", "mFactors[m, 0] ="),
    "values are rounded before their largest magnitude is known": (
        PLAIN,
        "tCrX.store(x)",
        "tCrX.store(x.to(C_DTYPE).to(Float32))",
    ),
    "half of a row": (PLAIN, "enumerate(i for i in range(cute.size(pairs))", "enumerate(i for i in range(32)"),
    "factors of rows past the last are stored": (PLAIN, "and m < extent[0] and part_n", "and part_n"),
    "the waves of the other member are those of this one": (
        COLUMNS,
        "part_others = load_sums(first + PARTS_N * PART_N, wave_shape)",
        "part_others = load_sums(first, wave_shape)",
    ),
    "each wave is the first": (COLUMNS, "part * PART_N + wave * WAVE_N", "part * PART_N"),
    "a wave's values are another's": (COLUMNS, "tCrW.iterator + wave * WAVE_N", "tCrW.iterator + (wave ^ 1) * WAVE_N"),
    "a bias of the wave beside": (BIASED_COLUMNS, "wave_n = part_n * WAVES + wave", "wave_n = part_n * WAVES"),
    "sums are free after the first wave": (
        COLUMNS,
        "if cutlass.const_expr(wave == WAVES - 1):",
        "if cutlass.const_expr(wave == 0):",
    ),
    "columns past the last count": (BIASED, "if tCcC[values - 1][1] >= columns", "if tCcC[0][1] < 0"),
}


@pytest.mark.dsl
@pytest.mark.slow
@pytest.mark.parametrize("mistake", PLANTED)
def test_a_wrong_quantization_is_noticed(mistake: str, kernels: Cache) -> None:
    setting, right, wrong = PLANTED[mistake]
    planned, kernel = made(spec_of(setting), kernels, replaced(right, wrong), ARCH)
    calls = CALLS if setting.epilogue.pairs is None else (*OF_PAIRS, (300, 1024, 144))
    assert any(failure(planned, kernel, *call) for call in calls)


@pytest.mark.dsl
@pytest.mark.slow
def test_factors_of_a_group_that_begin_elsewhere_are_noticed(kernels: Cache) -> None:
    setting = GROUPS[0]
    right, wrong = "mScaleC = cute.domain_offset((begin, 0),", "mScaleC = cute.domain_offset((0, 0),"
    assert any(failures(*grouped.edited(setting, right, wrong, kernels), 5, setting.among))


def test_a_thread_finds_the_largest_of_its_row_or_four_lanes_do() -> None:
    lanes = []
    for rows in (128, 64):
        found = plan(spec_of(Of("bf16", tile=(rows, 128, 64))), ARCH)
        assert isinstance(found, GemmPlan)
        assert found.epilogue.fusion.quantization is not None
        assert found.epilogue.part == (rows, 128)
        lanes.append(found.epilogue.fusion.quantization.of_threads)
    assert lanes == [True, False]


def test_pairs_of_columns_are_loaded_in_waves_of_a_row() -> None:
    """Of 128 elements of C a thread would load 256 sums: it loads 32 of each member. Fragments have half of them."""
    found = {rows: plan(spec_of(replace(COLUMNS, tile=(rows, 256, 64))), ARCH) for rows in (128, 64)}
    assert [each.columns_of_load for each in found.values() if isinstance(each, GemmPlan)] == [32, 128]


@pytest.mark.parametrize(("factors", "tile"), [(None, (128, 256, 128)), (MX, (128, 128, 128))], ids=["f8", "mxf8"])
def test_an_open_tile_has_whole_blocks(factors: Factors | None, tile: tuple[int, ...]) -> None:
    found = plan(spec_of(Of(), factors), ARCH)
    assert isinstance(found, GemmPlan)
    assert found.cta_tile == tile


@pytest.mark.parametrize(
    ("setting", "ctas", "said"),
    [
        (Of("bf16", tile=(128, 192, 64)), 1, "192 columns of C; expected a multiple of 128"),
        (Of("bf16", tile=(64, 128, 64)), 2, "128 columns of C for each of 2 warpgroups along N"),
        (
            Of("bf16", tile=(128, 128, 64), schedule=Schedule(swap=True)),
            1,
            "a quantized C with schedule.swap; expected no exchange",
        ),
        (Of(scaled=True, epilogue=PAIRS.epilogue), 1, "pairs of columns, with factors of f32; expected"),
        (Of("bf16", tile=(128, 192, 64), epilogue=PAIRS.epilogue), 1, "96 columns of C; expected a multiple of 128"),
        (Of(tile=(128, 256, 128), scaled=True), 1, r"128 sums of each of 256 threads.*tile.cta = \[128, 128, 128\]"),
        (Of("bf16", tile=(128, 128, 64), epilogue=Epilogue(smem=False)), 1, ""),
    ],
    ids=["192 columns", "halves", "swap", "pairs, f32", "pairs", "factors of f32", "from registers"],
)  # fmt: skip
def test_what_has_no_whole_blocks_is_refused(setting: Setting, ctas: int, said: str) -> None:
    if not said:
        plan(spec_of(setting), ARCH)  # straight from registers
        return
    spec = spec_of(setting, None, ctas)
    with pytest.raises(SpecError, match=said):
        plan(spec, ARCH)
