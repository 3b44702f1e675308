"""The peak kernel, executed on the CPU: it multiplies as often as it says, in range, and cannot be shortened."""

from __future__ import annotations

import numpy as np
import pytest

from cutegen.bench import mma_peak
from cutegen.bench.mma_types import MmaTypes
from cutegen.bench.random_words import RANDOM_BITS
from cutegen.hardware import MMA_ATOMS
from cutegen.ptx import LaunchReport, Program
from cutegen.run.call.bits import float8_values

ALL_TYPES = [
    MmaTypes("f16", "f32"),
    MmaTypes("f16", "f16"),
    MmaTypes("bf16", "f32"),
    MmaTypes("tf32", "f32"),
    MmaTypes("s8", "s32"),
    MmaTypes("e4m3", "f32"),
    MmaTypes("e5m2", "f32"),
]
THREADS = 32 * mma_peak.WARPS_PER_CTA

by_types = pytest.mark.parametrize("types", ALL_TYPES, ids=str)


def run(types: MmaTypes, *, iterations: int, seed: int = 5, ctas: int = 1) -> tuple[np.ndarray, LaunchReport]:
    """The digests, and the executor's report. It has no clock, so zero stands for it."""
    program = Program.parse(mma_peak.ptx(types).replace("%clock64", "0"))
    sums, cycles = np.zeros(ctas * THREADS, np.uint32), np.full(ctas, -1, np.int64)
    arguments = [sums, cycles, np.uint32(iterations), np.uint32(seed)]
    report = program.launch(mma_peak.ENTRY, grid=(ctas,), block=(THREADS,), args=arguments)
    assert (cycles == 0).all()
    return sums, report


@by_types
def test_it_executes_the_operations_that_it_counts(types: MmaTypes) -> None:
    _, report = run(types, iterations=3)
    m, n, k = types.atom.shape_mnk
    assert report.executed(types.atom.ptx) == 3 * mma_peak.MMA_PER_ITERATION * mma_peak.WARPS_PER_CTA
    assert report.executed(types.atom.ptx) * 2 * m * n * k == mma_peak.kernel(types).flops(3, ctas=1)


@by_types
def test_operands_differ_between_threads_seeds_and_ctas(types: MmaTypes) -> None:
    first, _ = run(types, iterations=1, ctas=2)
    other, _ = run(types, iterations=1, seed=6, ctas=2)
    assert len(np.unique(first)) > 0.95 * len(first)
    assert not (first == other).any()


@by_types
def test_every_instruction_of_the_loop_has_operands_and_an_accumulator_chain_of_its_own(types: MmaTypes) -> None:
    lines = [line.strip() for line in mma_peak.ptx(types).splitlines() if line.strip().startswith("mma.sync")]
    assert len(set(lines)) == len(lines) == mma_peak.MMA_PER_ITERATION
    accumulators = [line.split("{")[1].split("}")[0] for line in lines]
    assert len(set(accumulators)) == mma_peak.CHAINS
    assert accumulators[: mma_peak.CHAINS] == accumulators[mma_peak.CHAINS :]


@pytest.mark.parametrize("dtype", ["f16", "f32"])
def test_random_words_become_values_from_a_half_to_two(dtype: str) -> None:
    kept, set_ = RANDOM_BITS[dtype]
    words = (np.random.default_rng(0).integers(0, 2**32, 4096, dtype=np.uint32) & np.uint32(kept)) | np.uint32(set_)
    values = np.abs(words.view(np.float16 if dtype == "f16" else np.float32).astype(np.float64))
    assert values.min() >= 0.5
    assert 1.9 < values.max() < 2


def test_random_words_become_bf16_values_from_a_half_to_two() -> None:
    kept, set_ = RANDOM_BITS["bf16"]
    words = (np.random.default_rng(0).integers(0, 2**32, 4096, dtype=np.uint32) & np.uint32(kept)) | np.uint32(set_)
    values = np.abs((words.view(np.uint16).astype(np.uint32) << 16).view(np.float32))
    assert values.min() >= 0.5
    assert 1.9 < values.max() < 2


@pytest.mark.parametrize("name", ["e4m3", "e5m2"])
def test_random_words_become_8_bit_floats_from_a_half_to_two(name: str) -> None:
    kept, set_ = RANDOM_BITS[name]
    words = (np.random.default_rng(0).integers(0, 2**32, 4096, dtype=np.uint32) & np.uint32(kept)) | np.uint32(set_)
    values = np.abs(float8_values(words.view(np.uint8), name))
    assert values.min() == 0.5
    assert 1.7 < values.max() < 2


@pytest.mark.parametrize("types", [MmaTypes("f16", "f32"), MmaTypes("f16", "f16"), MmaTypes("e4m3", "f32")], ids=str)
def test_sums_do_not_run_away(types: MmaTypes) -> None:
    """B and -B take turns, so an accumulator comes back to where it began, to rounding, however long the loop is."""
    lines = mma_peak.ptx(types).splitlines()
    first_sum_alone = [line for line in lines if "%digest, %digest, %c" not in line or line.endswith("%c0;")]
    program = Program.parse("\n".join(first_sum_alone).replace("%clock64", "0"))
    sums = {}
    for iterations in (1, 40):
        sums[iterations] = np.zeros(THREADS, np.uint32)
        arguments = [sums[iterations], np.zeros(1, np.int64), np.uint32(iterations), np.uint32(5)]
        program.launch(mma_peak.ENTRY, grid=(1,), block=(THREADS,), args=arguments)
    dtype = np.float32 if types.accumulator == "f32" else np.float16
    once, often = (sums[iterations].view(dtype).astype(np.float64) for iterations in (1, 40))
    assert (np.abs(once) > 0.4).all()
    np.testing.assert_allclose(often, once, atol=0.1)


@by_types
def test_the_opcode_is_that_of_an_atom(types: MmaTypes) -> None:
    assert types.atom.ptx in {atom.ptx for atom in MMA_ATOMS.values()}
    assert types.atom.shape_mnk[2] * types.atom.a_dtype.bytes == 32
