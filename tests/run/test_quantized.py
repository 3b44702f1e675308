"""A quantized C, executed: as `cutegen.quantize` has it bit for bit, against float64, and wrong kernels."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import pytest

import cutegen
from cutegen.api import request_of
from cutegen.build import Cache, build
from cutegen.build.builder import EPILOGUE_SPILLS_BYTES
from cutegen.contract.launch import RESULT_FACTORS
from cutegen.contract.problem import QUANTIZED_FLOOR, QUANTIZED_MOST, ProblemShape
from cutegen.errors import CutegenError, SpecError
from cutegen.plan import GemmPlan, plan
from cutegen.ptx.arithmetic.rounding import odd_sum
from cutegen.run import Kernel
from cutegen.run.call.bits import bf16_bits, float8_bits
from cutegen.spec import Epilogue, Factors, GemmSpec, Mma, Operand, Paired, Problem, Quantized, Schedule, Tile
from cutegen.verify import compare, expected_outcome, random_extras, random_operands
from cutegen.verify.counts import count_launch
from tests.run.against_float64 import undefined

ARCH = "sm_90a"
SWIGLU = "x, y -> silu(x) * y"


@dataclass(frozen=True, slots=True)
class Setting:
    """A kernel: the type of A and B, whether they have factors of blocks, the tile, and the epilogue before C."""

    element: str = "e4m3"
    scaled: bool = True
    tile: tuple[int, int, int] | None = None
    scale: str = "f32"
    epilogue: Epilogue = field(default_factory=Epilogue)
    schedule: Schedule = field(default_factory=Schedule)
    atom_layout: tuple[int, int, int] | None = None
    family: str = "sm90"

    def spec(self, *, quantized: bool = True) -> GemmSpec:
        operand = Operand(self.element, "k")
        factors = (Factors((1, 128)), Factors((128, 128))) if self.scaled else (None, None)
        c = Operand("e4m3" if quantized else "f32", "n")
        problem = Problem(a=operand, b=operand, c=c, scale_a=factors[0], scale_b=factors[1])
        asked = Quantized("e4m3", self.scale) if quantized else None  # type: ignore[arg-type]
        return GemmSpec(
            family=self.family,
            problem=problem,
            tile=Tile(self.tile),
            epilogue=replace(self.epilogue, quantize=asked),
            schedule=self.schedule,
            mma=Mma(atom_layout=self.atom_layout),
            name="quantized",
        )


def made(spec: GemmSpec, kernels: Cache, edit: Callable[[str], str] = str, arch: str = ARCH) -> tuple[GemmPlan, Kernel]:
    """Plan and build; `edit` changes the kernel's text."""
    planned = plan(spec, arch)
    assert isinstance(planned, GemmPlan)
    request = request_of(planned)
    return planned, Kernel(
        build(replace(request, source=replace(request.source, text=edit(request.source.text))), kernels)
    )


PINGPONG = Schedule(consumers="pingpong")
PLAIN = Setting()
SWAPPED = Setting(tile=(128, 16, 128), schedule=Schedule(swap=True))
"""A block is in the rows of two warpgroups."""
OTHERS = (
    Setting(scale="ue8m0"),
    Setting("bf16", scaled=False),
    Setting(tile=(64, 128, 128), schedule=PINGPONG),
    Setting(tile=(128, 128, 128), schedule=Schedule(split_k=2)),
    Setting("bf16", scaled=False, tile=(64, 256, 64)),
    SWAPPED,
    Setting(scale="ue8m0", tile=(256, 32, 128), schedule=Schedule(swap=True, cluster=(1, 2))),
    Setting(tile=(128, 16, 128), schedule=Schedule(swap=True, consumers="pingpong")),
    Setting(tile=(128, 16, 128), schedule=Schedule(swap=True, split_k=2, cluster=(1, 1, 2))),
)


@pytest.mark.dsl
@pytest.mark.slow
@pytest.mark.parametrize("setting", [PLAIN, *OTHERS], ids=str)
def test_a_kernel_quantizes_as_torch_does_bit_for_bit(setting: Setting, kernels: Cache) -> None:
    (_, kernel), (_, wide) = made(setting.spec(), kernels), made(setting.spec(quantized=False), kernels)
    hold_bits(kernel, wide, setting)


def hold_bits(kernel: Kernel, wide: Kernel, setting: Setting, n: int = 200) -> None:
    """Hold a quantized C against torch's quantization of the `wide` kernel's C, bit for bit.

    A row of zeros has the least factor, a NaN makes all of its block NaN, and an infinity's factor is one too.
    """
    torch = pytest.importorskip("torch")
    m, k = 72, 272
    a, b, c = random_operands(wide.contract, m, n, k, seed=3)
    values = random_operands(kernel.contract, m, n, k, seed=3)[2]
    a[5, :] = 0
    if setting.element == "e4m3":
        a[7, 1] = float8_bits(np.array([np.nan], np.float32), "e4m3")[0]
    else:
        a[7, 1], a[9, 2] = bf16_bits(np.array([np.nan, np.inf], np.float32))
    extras = random_extras(kernel.contract, m, n, k=k, seed=3)
    factors = extras.pop(RESULT_FACTORS)
    wide.execute(a, b, out=c, **extras)
    report = kernel.execute(a, b, out=values, scale_c=factors, **extras)
    assert undefined(kernel, report) == ()
    of_torch = cutegen.quantize(torch.from_numpy(np.ascontiguousarray(c)), scale=setting.scale)  # type: ignore[arg-type]
    np.testing.assert_array_equal(factors, of_torch[1].numpy())
    wanted, nan = of_torch[0].view(torch.uint8).numpy(), 0x7F
    np.testing.assert_array_equal(
        np.where((values & nan) == nan, nan, values), np.where((wanted & nan) == nan, nan, wanted)
    )


def fused(x: Any, y: Any, z: Any) -> Any:
    """Return x y + z of f32, rounded once: the sum is rounded to odd in f64 before."""
    product = np.asarray(x, np.float64) * np.asarray(y, np.float64)
    return odd_sum(product, np.broadcast_to(np.asarray(z, np.float64), product.shape)).astype(np.float32)


@pytest.mark.parametrize("step", [pytest.param(1, marks=pytest.mark.slow), 97])
def test_quotients_without_a_division_are_rounded_to_nearest(step: int) -> None:
    """For each `step`-th mantissa. An exponent scales all numbers of a quotient alike, since none is a denormal.

    The estimate of a reciprocal is the executor's; `tests/ptx/test_gpu_reciprocals.py` has a GPU's.
    """
    x = (np.arange(0, 1 << 23, step, dtype=np.uint32) | np.float32(1).view(np.uint32)).view(np.float32)
    for most in map(np.float32, QUANTIZED_MOST.values()):
        estimate = x * (np.float32(1) / most)
        factor = fused(fused(-most, estimate, x), np.float32(1) / most, estimate)
        np.testing.assert_array_equal(factor, x / most)
    nearest = np.float32(1) / x
    np.testing.assert_array_equal(fused(nearest, fused(-x, nearest, 1), nearest), nearest)
    limits, least = np.finfo(np.float32), min(QUANTIZED_MOST.values())
    assert QUANTIZED_FLOOR / max(QUANTIZED_MOST.values()) > limits.tiny
    assert least / limits.max > limits.tiny


def failure(planned: GemmPlan, kernel: Kernel, m: int, n: int, k: int, **options: Any) -> str:
    """Execute one call on random operands; return what is wrong with it, "" if nothing is."""
    a, b, out = random_operands(kernel.contract, m, n, k, seed=m + n + k, **options)
    extras = random_extras(kernel.contract, m, n, k=k, seed=m, **options)
    try:
        report = kernel.execute(a, b, out=out, **extras)
    except CutegenError as fault:
        return str(fault)
    if found := undefined(kernel, report):
        return str(found[0])
    outcome = expected_outcome(kernel.contract, a, b, extras)
    assert outcome.factors is not None
    for written, expected, dtype in ((extras[RESULT_FACTORS], outcome.factors, "f32"), (out, outcome.result, "e4m3")):
        if not (compared := compare(written, expected, dtype=dtype)).ok:
            return str(compared)
    size = kernel.call_size(a, b, out, **extras)
    return str(count_launch(planned, size, report).differing() or "")


CHAIN = Setting(epilogue=Epilogue(ops=("bias_n",), expression="x -> max(2 - abs(x), 0.5)"))
PAIRS = Setting(epilogue=Epilogue(expression=SWIGLU, pairs=Paired("halves", "gate")))
CHAINS = (
    CHAIN,
    Setting("bf16", scaled=False, epilogue=Epilogue(ops=("bias_n", "gelu_erf"))),
    PAIRS,
    Setting(tile=(64, 256, 128), epilogue=Epilogue(expression=SWIGLU, pairs=Paired("halves", "up")), schedule=PINGPONG),
    Setting("bf16", scaled=False, epilogue=Epilogue(expression=SWIGLU, pairs=Paired("halves", "gate"))),
    Setting(
        "bf16",
        scaled=False,
        tile=(128, 64, 64),
        epilogue=Epilogue(ops=("bias_n", "gelu_erf")),
        schedule=Schedule(swap=True),
    ),
    Setting(
        tile=(256, 16, 128),
        epilogue=Epilogue(expression=SWIGLU, pairs=Paired("halves", "gate")),
        schedule=Schedule(swap=True),
    ),
)
CALLS = ((200, 304, 528), (4, 16, 16), (129, 256, 128))
OF_PAIRS = ((136, 512, 400), (4, 256, 16))


@pytest.mark.dsl
@pytest.mark.slow
@pytest.mark.parametrize("setting", [PLAIN, *OTHERS, *CHAINS], ids=str)
def test_values_and_factors_agree_with_float64(setting: Setting, kernels: Cache) -> None:
    planned, kernel = made(setting.spec(), kernels)
    assert kernel.artifact.manifest.warnings == ()
    calls = OF_PAIRS if setting.epilogue.pairs is not None else CALLS
    assert {call: failure(planned, kernel, *call) for call in calls} == dict.fromkeys(calls, "")
    assert failure(planned, kernel, 72, calls[1][1], 272, batch=2) == ""


def replaced(old: str, new: str) -> Callable[[str], str]:
    def edit(text: str) -> str:
        assert text.count(old) == 1, (text.count(old), old)
        return text.replace(old, new)

    return edit


MEETING = "            cute.arch.barrier(barrier_id=0, number_of_threads=MMA_WARPS * 32)\n"
PLANTED = {
    "two warpgroups with a largest magnitude each": (
        SWAPPED,
        lambda text: replaced("for warp in cutlass.range_constexpr(QUANTIZE_WARPS)", "for warp in range(4)")(
            replaced("4 // QUANTIZE_WARPS * QUANTIZE_WARPS", "4")(text)
        ),
    ),
    "largest magnitudes are read before all warps have theirs": (
        SWAPPED,
        replaced(f"part_sums.store(tCrX.load())\n{MEETING}", "part_sums.store(tCrX.load())\n"),
    ),
    "largest magnitudes are overwritten while others read them": (
        SWAPPED,
        replaced(f"of the last tile.\n{MEETING}", "of the last tile.\n"),
    ),
    "columns of a block past the last count": (
        replace(SWAPPED, epilogue=CHAIN.epilogue),
        replaced("if tCcC[values - 1][0] >= rows", "if tCcC[0][0] < 0"),
    ),
    "factors of a column of a block have another's row": (
        SWAPPED,
        replaced("mFactors[m // QUANTIZE_ROWS, n]", "mFactors[0, n]"),
    ),
    "two lanes of a row have a largest magnitude of their own": (
        PLAIN,
        replaced("for distance in QUANTIZE_LANES:", "for distance in QUANTIZE_LANES[:1]:"),
    ),
    "values are rounded before their largest magnitude is known": (
        PLAIN,
        replaced("tCrX.store(x)", "tCrX.store(x.to(C_DTYPE).to(Float32))"),
    ),
    "signs count": (PLAIN, replaced("cute.math.absf(tCrX[2 * i])", "tCrX[2 * i]")),
    "columns past the last count": (CHAIN, replaced("if tCcC[values - 1][1] >= columns", "if tCcC[0][1] < 0")),
    "the factors of rows r and r + 8 are exchanged": (
        PLAIN,
        replaced("select_(lane == row, factors[row], factor)", "select_(lane == 0, factors[row], factor)"),
    ),
    "factors of rows past the last are stored": (PLAIN, replaced("and m < extent[0] and part_n", "and part_n")),
    "a factor of the first block for all": (
        PLAIN,
        replaced("mFactors[m, part_n] =", "mFactors[m, 0] ="),
    ),
    "a chunk's address is as far from the first in every row": (
        PLAIN,
        replaced("address ^ layout(first)", "address + layout(first)"),
    ),
    "factors of values before the chain": (
        CHAIN,
        replaced("    tCrX.store(x)\n", "    tCrX.store(part_sums.load())\n"),
    ),
}


@pytest.mark.dsl
@pytest.mark.slow
@pytest.mark.parametrize("mistake", PLANTED)
def test_a_wrong_quantization_is_noticed(mistake: str, kernels: Cache) -> None:
    setting, edit = PLANTED[mistake]
    planned, kernel = made(setting.spec(), kernels, edit)
    assert any(failure(planned, kernel, *call) for call in CALLS)


@pytest.mark.parametrize(
    ("setting", "said"),
    [
        (Setting(tile=(64, 128, 128), schedule=Schedule(split_k=2, cluster=(1, 1, 2))), "128 columns of a warpgroup"),
        (replace(SWAPPED, schedule=Schedule(swap=True, split_k=2)), "1 of them in a cluster.*in the tile's rows"),
        (
            Setting(
                tile=(128, 32, 128), schedule=Schedule(swap=True, split_k=2, cluster=(1, 1, 2)), atom_layout=(1, 1, 1)
            ),
            "2 of them in a cluster.*in the tile's rows",
        ),
    ],
)
def test_ctas_that_would_share_a_block_are_refused(setting: Setting, said: str) -> None:
    """CTAs that add the slices of a tile store some of its parts each."""
    with pytest.raises(SpecError, match=rf"epilogue.quantize: found 2 slices of K, .*{said}; expected all values"):
        plan(setting.spec(), ARCH)


@pytest.mark.dsl
@pytest.mark.slow
@pytest.mark.parametrize("ops", [("bias_n", "gelu_tanh"), ()])
def test_a_wide_swapped_product_is_quantized(ops: tuple[str, ...], kernels: Cache) -> None:
    """Parts of 8 columns begin at other alignments than the first. The search leaves registers for their values."""
    spec = Setting("bf16", scaled=False, epilogue=Epilogue(ops=ops)).spec()
    chosen = plan(spec, ARCH, ProblemShape(4096, 14336, 4096))
    assert isinstance(chosen, GemmPlan)
    assert build(request_of(chosen), kernels).manifest.spill_bytes <= EPILOGUE_SPILLS_BYTES
    wide = Setting(
        "bf16",
        scaled=False,
        tile=(128, 192, 64),
        epilogue=Epilogue(ops=ops),
        schedule=Schedule(swap=True, consumers="pingpong"),
    )
    planned, kernel = made(wide.spec(), kernels)
    assert "64x8 parts" in next(x.chosen for x in planned.decisions if x.key == "epilogue.smem")
    assert failure(planned, kernel, 200, 136, 144) == ""


@pytest.mark.parametrize(("rows", "swapped"), [(16, True), (4096, False)])
def test_few_rows_are_quantized_in_a_swapped_product(rows: int, swapped: bool) -> None:
    found = plan(Setting().spec(), ARCH, ProblemShape(rows, 7168, 2048))
    assert isinstance(found, GemmPlan)
    assert found.swapped is swapped
