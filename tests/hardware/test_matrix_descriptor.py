"""Matrix descriptors: derived from every layout that the instruction reads, equal to CUTLASS's, refused elsewhere."""

from __future__ import annotations

from dataclasses import replace
from itertools import product
from pathlib import Path

import numpy as np
import pytest

from cutegen.algebra import format_layout, offsets, parse_layout, tile_to_shape
from cutegen.hardware import GMMA_LAYOUTS, GmmaLayout, MatrixDescriptor, NoDescriptorError, operand_descriptors
from cutegen.hardware.gmma import INTER, SW32, SW64, SW128, SWIZZLE_MODES, SwizzleMode
from cutegen.ptx.machine.descriptor import chunk_addresses
from tests.hardware.test_wgmma_cpp import printed

READ = np.load(Path(__file__).parent / "golden/h200_descriptors.npz")
"""What an H200 read: the first byte of each 16, by form of the operand."""


@pytest.mark.parametrize("case", printed("descriptor"))
def test_cutlass_makes_the_same(case: str) -> None:
    """make_gmma_desc of the first block, and the layout of the tensor of descriptors that CuTe makes of the tile."""
    name, bits, rows, extents = case.split(".")
    layout = GMMA_LAYOUTS[name]
    tile = layout.tile([int(extent) for extent in extents.split("x")], int(bits))
    found = operand_descriptors(tile, layout.major_mode, int(bits) // 8, int(rows))
    facts = printed("descriptor")[case]
    assert f"0x{found.first.encode():016x}" == facts["first"]
    assert format_layout(found.steps) == facts["steps"]


def read_by_hand(bits: int, rows: int, major_mode: int, element_bytes: int) -> np.ndarray:
    """[row, k] -> byte, from the 64 bits alone: PTX ISA's strides in units of 16 bytes."""
    start, leading, stride = (16 * (bits >> shift & 0x3FFF) for shift in (0, 16, 32))
    span = {0: 16, 1: 128, 2: 64, 3: 32}[bits >> 62]
    row, k = np.indices((rows, 32 // element_bytes))
    if major_mode == 1:
        half, within = np.divmod(k * element_bytes, 16)
        at = start + row // 8 * stride + row % 8 * span + half * (leading if span == 16 else 16) + within
    else:
        strip, within = np.divmod(row * element_bytes, span)
        over, up = (stride, leading) if span == 16 else (leading, stride)
        at = start + strip * over + k // 8 * up + k % 8 * span + within
    return at ^ (at >> 7 & span // 16 - 1) << 4


TILES = [
    pytest.param(layout, element_bytes, rows, id=f"{layout.name}-{8 * element_bytes}-{rows}")
    for layout, element_bytes, rows in product(GMMA_LAYOUTS.values(), (1, 2, 4), (64, 192))
    if layout.major_mode == 1 or rows % layout.width(8 * element_bytes) == 0
]


@pytest.mark.parametrize(("layout", "element_bytes", "rows"), TILES)
@pytest.mark.parametrize("k_first", [False, True])
def test_it_reads_each_element_where_the_layout_has_it(
    layout: GmmaLayout, element_bytes: int, rows: int, k_first: bool
) -> None:
    """Two blocks of rows, 128 bytes of K, two stages; the tile begins at some multiple of the period."""
    k, depth = 32 // element_bytes, 128 // element_bytes
    order = (1, 0, 2) if k_first else (0, 1, 2)
    tile = tile_to_shape(layout.atom(8 * element_bytes), (2 * rows, depth, 2), order)
    found = operand_descriptors(tile, layout.major_mode, element_bytes, rows)
    base = 5 * found.first.mode.period_bytes
    stored = base + offsets(tile).reshape(2, depth, 2 * rows) * element_bytes
    steps = offsets(found.steps).reshape(2, depth // k, 2)
    for stage, k_block, block in np.ndindex(steps.shape):
        bits = replace(found.first, start_bytes=base).encode() + int(steps[stage, k_block, block])
        expected = stored[stage, k_block * k : (k_block + 1) * k, block * rows : (block + 1) * rows].T
        assert np.array_equal(read_by_hand(bits, rows, layout.major_mode, element_bytes), expected)
        decoded = MatrixDescriptor.decode(bits)
        assert np.array_equal(decoded.addresses(rows, layout.major_mode, element_bytes), expected)
        if layout.major_mode == 1 or element_bytes == 2:  # what the instruction has
            executed = chunk_addresses(bits, rows, k_major=layout.major_mode == 1)
            vector = 16 // element_bytes
            assert np.array_equal(executed, expected[:, ::vector] if layout.major_mode == 1 else expected[::vector].T)


@pytest.mark.parametrize("form", sorted({name.rpartition("_")[0] for name in READ}))
def test_a_gpu_reads_there(form: str) -> None:
    """Of random descriptors, with base offsets and N that ends within a swizzled row: tests/gpu/descriptors.py.

    The executor of PTX decodes descriptors by itself, and is held to the same.
    """
    operand, major, n = form.split("_")
    rows, k_major = (64 if operand == "a" else int(n)), major == "k"
    assert len(READ[f"{form}_descriptors"]) == 40
    for bits, read in zip(map(int, READ[f"{form}_descriptors"]), READ[f"{form}_vectors"], strict=True):
        addresses = MatrixDescriptor.decode(bits).addresses(rows, int(k_major), 2)
        assert np.array_equal(addresses[:, ::8] if k_major else addresses[::8], read), hex(bits)
        executed = chunk_addresses(bits, rows, k_major=k_major)
        assert np.array_equal(executed if k_major else executed.T, read), hex(bits)


def test_a_tile_begins_where_the_pattern_does() -> None:
    """TMA's swizzles want 1024, 512 and 256 bytes: CUDA Driver API, CU_TENSOR_MAP_SWIZZLE_128B and its like."""
    for name, bytes_ in (("SW128", 1024), ("SW64", 512), ("SW32", 256), ("INTER", 16)):
        layout = GMMA_LAYOUTS[f"Layout_K_{name}_Atom"]
        assert operand_descriptors(layout.tile((64, 64), 16), 1, 2, 64).first.mode.period_bytes == bytes_


@pytest.mark.parametrize("mode", SWIZZLE_MODES, ids=lambda mode: mode.name)
def test_64_bits_and_back(mode: SwizzleMode) -> None:
    fields = {"start_bytes": 0x3FFF0, "lbo_bytes": 0x2AAA0, "sbo_bytes": 0x15550, "base_offset": 5}
    descriptor = MatrixDescriptor(mode=mode, **fields)
    assert MatrixDescriptor.decode(descriptor.encode()) == descriptor
    for field in fields:
        others = replace(descriptor, **{field: 0})
        assert MatrixDescriptor.decode(others.encode()) == others


def test_fields_lie_where_ptx_isa_has_them() -> None:
    assert MatrixDescriptor(start_bytes=16, lbo_bytes=0, sbo_bytes=0, mode=INTER).encode() == 1
    assert MatrixDescriptor(lbo_bytes=16, sbo_bytes=0, mode=INTER).encode() == 1 << 16
    assert MatrixDescriptor(lbo_bytes=0, sbo_bytes=16, mode=INTER).encode() == 1 << 32
    assert MatrixDescriptor(lbo_bytes=0, sbo_bytes=0, mode=INTER, base_offset=1).encode() == 1 << 49
    codes = [MatrixDescriptor(lbo_bytes=0, sbo_bytes=0, mode=mode).encode() >> 62 for mode in (SW128, SW64, SW32)]
    assert codes == [1, 2, 3]


def test_a_step_is_a_sum_on_the_64_bits() -> None:
    first = MatrixDescriptor(start_bytes=1024, lbo_bytes=16, sbo_bytes=1024, mode=SW128)
    assert first.advanced(2050).encode() == first.encode() + 2050


@pytest.mark.parametrize(
    ("layout", "major_mode", "rows", "why"),
    [
        ("(128,64):(64,1)", 1, 64, r"element \(1, 0\) of block 0 is at byte 128, but the instruction reads 16"),
        ("(128,64):(72,1)", 1, 64, r"element \(1, 0\) of block 0 is at byte 144, but the instruction reads 16"),
        ("(64,64):(1,64)", 0, 64, r"element \(0, 1\) of block 0 is at byte 128, but the instruction reads 16"),
        ("((8,8),(8,8)):((8,64),(1,516))", 1, 64, "its leading byte offset is 1032, not a multiple of 16"),
        (
            "((8,8),(8,8)):((8,131072),(1,64))",
            1,
            64,
            "its stride byte offset is 262144, not a multiple of 16 up to 262128",
        ),
        ("Sw<3,3,3> o (128,64):(64,1)", 1, 48, "blocks of 48x16 do not fill a tile of 128x64"),
        ("Sw<3,3,3> o (128,8):(8,1)", 1, 64, "blocks of 64x16 do not fill a tile of 128x8"),
        ("Sw<3,3,3> o ((64,3),64):((1,4096),64)", 0, 96, "blocks of 96x16 and the layout's do not nest"),
        ("Sw<3,3,3> o _8 o (128,64):(64,1)", 1, 64, "its swizzle begins 8 elements into the pattern"),
        ("((8,8),(8,8),2):((8,64),(1,512),4100)", 1, 64, "blocks begin 8200 bytes apart, not a multiple of 16"),
        ("Sw<2,3,3> o (128,64):(64,1)", 1, 64, r"element \(1, 0\) of block 0 is at byte 144, but .* reads 64"),
        (
            "Sw<3,3,4> o (128,64):(64,1)",
            1,
            64,
            "Swizzle<3,3,4> is not one of wgmma's swizzles, Swizzle<3,3,3>, Swizzle<2",
        ),
        ("Sw<3,4,3> o (128,64):(64,1)", 1, 64, "Swizzle<3,4,3> is not one of wgmma's swizzles"),
        ("Sw<3,3,3> o (128,(32,2)):(32,(1,4096))", 1, 64, r"element \(1, 0\) of block 0 is at byte 64, .* reads 144"),
        ("Sw<3,3,3> o (128,64):(64,1)", 0, 64, r"element \(1, 0\) of block 0 is at byte 144, .* reads 2"),
    ],
)
def test_a_layout_that_has_none_is_refused_with_the_reason(layout: str, major_mode: int, rows: int, why: str) -> None:
    with pytest.raises(NoDescriptorError, match=why):
        operand_descriptors(parse_layout(layout), major_mode, 2, rows)
