"""Wavefronts against hand-derived facts and against a bank simulation, one word at a time."""

from __future__ import annotations

import numpy as np
import pytest
from numpy.typing import NDArray

from cutegen.algebra import LayoutExpr, TiledCopy, TiledMma, offsets, parse_layout, tile_to_shape
from cutegen.hardware import (
    MMA_ATOMS,
    alike,
    cp_async_atom,
    ideal_wavefronts,
    ldmatrix_atom,
    ldmatrix_trace,
    merged_phases,
    phases,
    wavefronts,
)

F16_BYTES = 2


def simulate(addresses: list[int], access_bytes: int) -> int:
    """Wavefronts of one access, word by word."""
    lanes = {16: 8, 8: 16}.get(access_bytes, 32)
    total = 0
    for first in range(0, len(addresses), lanes):
        words_of_bank: dict[int, set[int]] = {}
        for address in addresses[first : first + lanes]:
            for byte in range(address, address + access_bytes):
                words_of_bank.setdefault(byte // 4 % 32, set()).add(byte // 4)
        total += max(map(len, words_of_bank.values()))
    return total


@pytest.mark.parametrize("access_bytes", [1, 2, 4, 8, 16])
@pytest.mark.parametrize("lanes", [8, 16, 32])
def test_wavefronts_equal_a_bank_simulation(access_bytes: int, lanes: int) -> None:
    rng = np.random.default_rng([access_bytes, lanes])
    spread = rng.choice([64, 1024, 65536], size=(50, 1))
    addresses = rng.integers(0, spread // access_bytes, size=(50, lanes)) * access_bytes
    assert wavefronts(addresses, access_bytes).tolist() == [simulate(row, access_bytes) for row in addresses.tolist()]


@pytest.mark.parametrize(
    ("stride_bytes", "access_bytes", "expected"),
    [
        (4, 4, 1),  # one word per bank
        (8, 4, 2),  # every second bank, twice
        (128, 4, 32),  # one column of banks
        (132, 4, 1),  # padded by a word
        (0, 4, 1),  # one word for all: broadcast
        (2, 2, 1),  # two lanes share a word
        (8, 8, 2),  # 256 bytes: two phases
        (128, 8, 32),
        (16, 16, 4),  # 512 bytes: four phases
        (128, 16, 32),  # each phase's 8 lanes meet in the same 4 banks
        (144, 16, 4),
        (80, 16, 4),  # 40 half-precision elements
        (64, 16, 16),  # 32 half-precision elements: 4-way
    ],
)
def test_strided_accesses(stride_bytes: int, access_bytes: int, expected: int) -> None:
    assert wavefronts(np.arange(32) * stride_bytes, access_bytes) == expected


@pytest.mark.parametrize("sums_differ", [True, False])
def test_accesses_that_are_alike_are_counted_once(sums_differ: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    if not sums_differ:
        monkeypatch.setitem(alike.__globals__, "_MIX", np.zeros(32, np.int64))
    rng = np.random.default_rng(11)
    patterns = rng.integers(0, 100, (5, 1, 32)) * 16
    accesses = rng.permutation((patterns + 128 * rng.integers(0, 9, (5, 40, 1))).reshape(200, 32)).reshape(10, 20, 32)
    rows, times = alike(accesses)
    assert times.sum() == 200
    assert len(rows) == (5 if sums_differ else 200)
    assert wavefronts(rows, 16) @ times == sum(simulate(row, 16) for row in accesses.reshape(200, 32).tolist())
    assert merged_phases(rows, 16) @ times == merged_phases(accesses, 16).sum()


def test_batches_keep_their_shape() -> None:
    addresses = np.arange(2 * 3 * 32).reshape(2, 3, 32) * 16
    assert wavefronts(addresses, 16).tolist() == [[4, 4, 4], [4, 4, 4]]


@pytest.mark.parametrize(
    ("lanes", "access_bytes", "expected"), [(32, 16, 4), (16, 16, 2), (8, 16, 1), (32, 2, 1), (8, 4, 1)]
)
def test_ideal_is_one_wavefront_per_phase(lanes: int, access_bytes: int, expected: int) -> None:
    assert ideal_wavefronts(lanes, access_bytes) == expected
    assert wavefronts(np.arange(lanes) * access_bytes, access_bytes) == expected


def test_misaligned_access_is_refused() -> None:
    with pytest.raises(ValueError, match="16 bytes must be 16-byte aligned"):
        wavefronts(np.arange(32) * 8, 16)


@pytest.mark.parametrize("access_bytes", [0, 3, 32])
def test_unknown_width_is_refused(access_bytes: int) -> None:
    with pytest.raises(ValueError, match=f"not {access_bytes}"):
        phases(access_bytes)


def ways_of_ldmatrix(smem: LayoutExpr) -> set[int]:
    mma = TiledMma(MMA_ATOMS["SM80_16x8x16_F32F16F16F32_TN"], (2, 2, 1), (32, 32, 16))
    trace = ldmatrix_trace(mma, "A", smem, ldmatrix_atom(4, transpose=False))
    assert trace.legal
    return ways(trace.row_offsets_bytes)


def ways_of_cp_async(smem: LayoutExpr, threads: str) -> set[int]:
    copy = TiledCopy.from_thr_val(
        cp_async_atom("cp.async.cg", 128), parse_layout(threads), parse_layout("(1,8)"), bits=16
    )
    shares = [copy.partition_d(smem, thread).offsets().reshape(-1, 8)[:, 0] for thread in range(copy.threads)]
    return ways(np.stack(shares, axis=-1).reshape(-1, copy.threads // 32, 32) * F16_BYTES)


def ways(byte_offsets: NDArray[np.int64]) -> set[int]:
    """Wavefronts per phase of 16-byte accesses: 1 is free of conflicts."""
    return set((wavefronts(byte_offsets, 16) / ideal_wavefronts(32, 16)).ravel().tolist())


# Wavefronts per phase of ldmatrix reads and cp.async writes, derived by hand; the counters of an H200 agree.
@pytest.mark.parametrize(
    ("atom", "tile", "threads", "reads", "writes"),
    [
        ("(8,64):(64,1)", (128, 64), "(16,8):(8,1)", 8, 1),
        ("Sw<3,3,3> o (8,64):(64,1)", (128, 64), "(16,8):(8,1)", 1, 1),
        ("(8,64):(72,1)", (128, 64), "(16,8):(8,1)", 1, 1),
        ("(8,(8,8)):(8,(1,64))", (128, 64), "(16,8):(8,1)", 1, 8),
        ("Sw<3,3,3> o (8,(8,8)):(8,(1,64))", (128, 64), "(16,8):(8,1)", 1, 1),
        ("(8,32):(32,1)", (128, 32), "(32,4):(4,1)", 4, 1),
        ("(8,32):(40,1)", (128, 32), "(32,4):(4,1)", 1, 2),
        ("Sw<2,3,3> o (8,32):(32,1)", (128, 32), "(32,4):(4,1)", 1, 1),
    ],
)
def test_shared_memory_layouts(atom: str, tile: tuple[int, int], threads: str, reads: int, writes: int) -> None:
    smem = tile_to_shape(parse_layout(atom), tile)
    assert ways_of_ldmatrix(smem) == {reads}
    assert max(ways_of_cp_async(smem, threads)) == writes


def test_measured_conflicts_of_the_unswizzled_tile() -> None:
    """133,120 ldmatrix.x4 made 1,597,440 conflicts on the machine: 12 wavefronts beyond the ideal 4 each."""
    smem = tile_to_shape(parse_layout("(8,32):(32,1)"), (128, 32))
    mma = TiledMma(MMA_ATOMS["SM80_16x8x16_F32F16F16F32_TN"], (2, 2, 1), (32, 32, 16))
    trace = ldmatrix_trace(mma, "A", smem, ldmatrix_atom(4, transpose=False))
    extra = wavefronts(trace.row_offsets_bytes, 16) - ideal_wavefronts(32, 16)
    assert set(extra.ravel().tolist()) == {1_597_440 // 133_120}


def test_offsets_of_the_table_are_what_the_trace_reads() -> None:
    smem = tile_to_shape(parse_layout("Sw<3,3,3> o (8,64):(64,1)"), (64, 64))
    mma = TiledMma(MMA_ATOMS["SM80_16x8x16_F32F16F16F32_TN"], (2, 2, 1), (32, 32, 16))
    trace = ldmatrix_trace(mma, "A", smem, ldmatrix_atom(4, transpose=False))
    assert np.array_equal(trace.source_offsets, offsets(smem)[trace.source_coords])
