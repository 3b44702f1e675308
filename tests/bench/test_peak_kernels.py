"""Peak kernels, executed on the CPU: they multiply as often as they say, in range, and cannot be shortened."""

from __future__ import annotations

import numpy as np
import pytest

from cutegen.bench import mma_peak, read_peak, wgmma_peak
from cutegen.bench.ceilings import peak_kernel
from cutegen.bench.peak_kernel import FMA, RANDOM_BITS, MmaTypes
from cutegen.hardware import MMA_ATOMS, SM_RATES, Instruction
from cutegen.ptx import LaunchReport, Program
from cutegen.run.call.bits import bf16_values, float8_values

MMA = [
    MmaTypes("f16", "f32"),
    MmaTypes("f16", "f16"),
    MmaTypes("bf16", "f32"),
    MmaTypes("tf32", "f32"),
    MmaTypes("s8", "s32"),
    MmaTypes("e4m3", "f32"),
    MmaTypes("e5m2", "f32"),
]
WGMMA = [MmaTypes(*names, Instruction.WGMMA) for names in (("f16", "f32"), ("e4m3", "f32"), ("s8", "s32"))]
by_mma = pytest.mark.parametrize("types", MMA, ids=str)


def run(
    types: MmaTypes, *, iterations: int, seed: int = 5, ctas: int = 1, text: str = ""
) -> tuple[np.ndarray, LaunchReport]:
    """The digests, and the executor's report. It has no clock, so zero stands for it."""
    kernel = peak_kernel(types)
    program = Program.parse((text or kernel.ptx).replace("%clock64", "0"))
    sums, cycles = np.zeros(ctas * kernel.threads, np.uint32), np.full(ctas, -1, np.int64)
    report = program.launch(
        kernel.entry,
        grid=(ctas,),
        block=(kernel.threads,),
        args=[sums, cycles, np.uint32(iterations), np.uint32(seed)],
        dynamic_smem_bytes=kernel.smem_bytes,
    )
    assert (cycles == 0).all()
    return sums, report


@pytest.mark.parametrize(
    "types", [*MMA, FMA, *WGMMA[:2], pytest.param(WGMMA[2], marks=pytest.mark.slow)], ids=lambda types: types.title
)
def test_they_execute_the_operations_that_they_count(types: MmaTypes) -> None:
    """The executor counts each of the warps that multiply together, and each lane of an fma is a product."""
    iterations, products = {Instruction.WGMMA: (1, 1 / 4), Instruction.FMA: (3, 32)}.get(types.multiplier, (3, 1))
    sums, report = run(types, iterations=iterations)
    m, n, k = types.atom.shape_mnk
    assert report.executed(types.atom.ptx) * products * 2 * m * n * k == peak_kernel(types).flops(iterations, ctas=1)
    assert len(np.unique(sums)) > 0.95 * len(sums)


@by_mma
def test_operands_differ_between_threads_seeds_and_ctas(types: MmaTypes) -> None:
    first, _ = run(types, iterations=1, ctas=2)
    other, _ = run(types, iterations=1, seed=6)
    assert len(np.unique(first)) > 0.95 * len(first)
    assert not (first[: len(other)] == other).any()


@by_mma
def test_every_instruction_of_the_loop_has_operands_and_an_accumulator_chain_of_its_own(types: MmaTypes) -> None:
    lines = [line.strip() for line in mma_peak.ptx(types).splitlines() if line.strip().startswith("mma.sync")]
    assert len(set(lines)) == len(lines) == mma_peak.MMA_PER_ITERATION
    accumulators = [line.split("{")[1].split("}")[0] for line in lines]
    assert len(set(accumulators)) == mma_peak.CHAINS
    assert accumulators[: mma_peak.CHAINS] == accumulators[mma_peak.CHAINS :]


def test_every_wgmma_of_an_iteration_has_operands_of_its_own() -> None:
    lines = [line for line in wgmma_peak.ptx(WGMMA[0]).splitlines() if "wgmma.mma_async" in line]
    assert len(set(lines)) == len(lines) == wgmma_peak.WGMMA_PER_ITERATION


def test_the_loop_around_multiply_adds_hardly_counts() -> None:
    lines = [line.strip() for line in mma_peak.ptx(FMA).splitlines()]
    body = lines[lines.index("again:") : lines.index("@%more bra again;") + 1]
    assert sum(line.startswith("fma") for line in body) / len(body) > 0.98


@pytest.mark.parametrize("name", ["f16", "bf16", "f32", "e4m3", "e5m2"])
def test_random_words_become_values_from_a_half_to_two(name: str) -> None:
    kept, set_ = RANDOM_BITS[name]
    words = (np.random.default_rng(0).integers(0, 2**32, 4096, dtype=np.uint32) & np.uint32(kept)) | np.uint32(set_)
    values = {
        "f16": lambda: words.view(np.float16).astype(np.float64),
        "f32": lambda: words.view(np.float32),
        "bf16": lambda: bf16_values(words.view(np.uint16)),
    }.get(name, lambda: float8_values(words.view(np.uint8), name))()
    values = np.abs(values)
    assert 0.5 <= values.min() < 0.51
    assert 1.7 < values.max() < 2


@pytest.mark.parametrize(
    ("types", "often", "atol"),
    [
        (MmaTypes("f16", "f32"), 10, 0.1),
        (MmaTypes("f16", "f16"), 10, 0.1),
        (MmaTypes("e4m3", "f32"), 10, 0.1),
        (FMA, 10, 1e-3),
        (WGMMA[0], 3, 0.01),
    ],
    ids=lambda value: value.title if isinstance(value, MmaTypes) else "",
)
def test_sums_do_not_run_away(types: MmaTypes, often: int, atol: float) -> None:
    """B and -B take turns, so an accumulator comes back to where it began, to rounding, however long the loop is."""
    lines = peak_kernel(types).ptx.splitlines()
    first_sum_alone = [line for line in lines if "%digest, %digest, %c" not in line or line.endswith("%c0;")]
    dtype = np.float32 if types.accumulator == "f32" else np.float16
    once, later = (
        run(types, iterations=count, text="\n".join(first_sum_alone))[0].view(dtype).astype(np.float64)
        for count in (1, often)
    )
    assert (np.abs(once) > 0.4).all()
    np.testing.assert_allclose(later, once, atol=atol)


@by_mma
def test_the_opcode_is_that_of_an_atom(types: MmaTypes) -> None:
    assert types.atom.ptx in {atom.ptx for atom in MMA_ATOMS.values()}
    assert types.atom.shape_mnk[2] * types.atom.a_dtype.bytes == 32


@pytest.mark.parametrize("types", WGMMA, ids=str)
def test_the_cited_rate_of_the_widest_wgmma_is_reachable_from_shared_memory(types: MmaTypes) -> None:
    """An instruction reads 64 rows of A and 256 of B, 32 bytes each, and shared memory serves 128 a cycle."""
    m, n, k = types.atom.shape_mnk
    assert (m, n, k * types.atom.a_dtype.bytes) == (64, 256, 32)
    cycles = types.atom.flops / SM_RATES["sm_90"].flops_of(Instruction.WGMMA, types.operands)
    assert cycles > (64 + 256) * 32 / 128


def test_narrower_operands_of_multiply_adds_have_the_same_ceiling() -> None:
    """A loop of half as many chains per turn would measure its own instructions, too."""
    assert {MmaTypes.of(x, "f32", Instruction.FMA) for x in ("f16", "bf16", "f32")} == {FMA}


def test_libraries_are_held_against_the_fastest_instruction_there_is() -> None:
    hopper = frozenset({Instruction.WGMMA, Instruction.MMA_SYNC})
    assert MmaTypes.fastest("f16", "f32", hopper).instruction == "wgmma"
    assert MmaTypes.fastest("u8", "s32", hopper) == MmaTypes("s8", "s32", Instruction.WGMMA)
    assert MmaTypes.fastest("tf32", "f32", hopper).instruction == "mma.sync"  # of which the DSL has no wgmma
    assert MmaTypes.fastest("f32", "f32", hopper).instruction == "fma"
    assert MmaTypes.fastest("f16", "f32", frozenset()).instruction == "mma.sync"


def test_the_reading_kernel_reads_every_byte_once() -> None:
    """Each CTA's part has the digest of its own: with one word changed to what is looked for, one thread finds it."""
    program = Program.parse(read_peak.ptx())
    source, found = np.zeros((2, read_peak.CTA_BYTES // 4), np.uint32), np.zeros(1, np.uint32)

    def launch() -> LaunchReport:
        return program.launch(
            read_peak.ENTRY, grid=(2,), block=(read_peak.THREADS,), args=[source, found], dynamic_smem_bytes=0
        )

    report = launch()
    assert found[0] == 0
    assert report.executed("ld.global.v4.u32") * 32 * 16 == source.nbytes
    for cta, word in ((0, 0), (1, source.shape[1] - 1), (1, 4321)):
        source[:], found[:] = 0, 0
        source[cta, word] = 0x5EED5EED
        launch()
        assert found[0] == 0x5EED5EED
