"""Matrix descriptors against the canonical layouts, written as CuTe layouts in elements of 16 bits (T = 8)."""

from __future__ import annotations

import numpy as np
import pytest
from warpgroup_kernels import descriptor

from cutegen.ptx.machine.descriptor import Descriptor, chunk_addresses

T = 8


def layout(shape: tuple[int, ...], stride: tuple[int, ...], index: int) -> int:
    """A mode of a CuTe layout at `index`, its first part running fastest."""
    offset = 0
    for extent, step in zip(shape, stride, strict=True):
        offset, index = offset + index % extent * step, index // extent
    return offset


def swizzle(bits: int, address: int) -> int:
    """Swizzle<bits, 4, 3> of a byte address."""
    return address ^ (address >> 7 & (1 << bits) - 1) << 4


BITS = {0: 0, 32: 1, 64: 2, 128: 3}
WIDTH = {0: 1, 32: 2, 64: 4, 128: 8}
# (mn mode, k mode) of the canonical layouts, as (shape, stride); L and S are the offsets in elements.
K_MAJOR = {
    0: lambda m, lead, stride: (((8, m), (1 * T, stride)), ((T, 2), (1, lead))),
    32: lambda m, lead, stride: (((8, m), (2 * T, stride)), ((T, 2), (1, T))),
    64: lambda m, lead, stride: (((8, m), (4 * T, stride)), ((T, 2), (1, T))),
    128: lambda m, lead, stride: (((8, m), (8 * T, stride)), ((T, 2), (1, T))),
}
MN_MAJOR = {
    0: lambda m, lead, stride: (((T, 1, m), (1, T, stride)), ((8, 2), (1 * T, lead))),
    32: lambda m, lead, stride: (((T, 2, m), (1, T, lead)), ((8, 2), (2 * T, stride))),
    64: lambda m, lead, stride: (((T, 4, m), (1, T, lead)), ((8, 2), (4 * T, stride))),
    128: lambda m, lead, stride: (((T, 8, m), (1, T, lead)), ((8, 2), (8 * T, stride))),
}


@pytest.mark.parametrize("swizzle_bytes", BITS)
@pytest.mark.parametrize("k_major", [True, False])
@pytest.mark.parametrize("rows", [8, 64, 72, 256])
def test_every_element_lies_where_the_canonical_layout_says(rows: int, k_major: bool, swizzle_bytes: int) -> None:
    rng = np.random.default_rng(rows)
    start, lead, stride = (int(rng.integers(1, 1 << 10)) * 16 for _ in range(3))
    bits = descriptor(start, lead, stride, swizzle_bytes)
    per_mode = T * WIDTH[swizzle_bytes] if not k_major else 8
    made = (K_MAJOR if k_major else MN_MAJOR)[swizzle_bytes](-(-rows // per_mode), lead // 2, stride // 2)
    chunks = chunk_addresses(bits, rows, k_major=k_major)
    for row in range(rows):
        for k in range(16):
            element = layout(*made[0], row) + layout(*made[1], k)
            expected = swizzle(BITS[swizzle_bytes], start + 2 * element)
            chunk, within = (chunks[row, k // 8], k % 8) if k_major else (chunks[k, row // 8], row % 8)
            assert int(chunk) + 2 * within == expected, (row, k)


def test_the_descriptor_that_the_dsl_makes_for_a_128_byte_swizzle() -> None:
    read = Descriptor.decode(0x4000_0040_0001_0000 | 0x2400 >> 4)
    assert read == Descriptor(start=0x2400, leading_bytes=16, stride_bytes=1024, base_offset=0, swizzle_bytes=128)
    assert [hex(a) for a in read.chunks(16, k_major=True)[:, 0]] == [
        *("0x2400", "0x2490", "0x2520", "0x25b0", "0x2640", "0x26d0", "0x2760", "0x27f0"),
        *("0x2800", "0x2890", "0x2920", "0x29b0", "0x2a40", "0x2ad0", "0x2b60", "0x2bf0"),
    ]


def test_fields_go_there_and_back() -> None:
    rng = np.random.default_rng(1)
    for _ in range(100):
        fields = [int(x) * 16 for x in rng.integers(0, 1 << 14, 3)]
        swizzle_bytes = int(rng.choice([0, 32, 64, 128]))
        bits = descriptor(*fields, swizzle_bytes, int(rng.integers(8)))
        assert Descriptor.decode(bits).encode() == bits


@pytest.mark.parametrize("swizzle_bytes", [32, 64, 128])
def test_a_base_offset_says_where_the_pattern_begins(swizzle_bytes: int) -> None:
    first_line = 3 * 128
    aligned = Descriptor.decode(descriptor(1024, 16, 8 * swizzle_bytes, swizzle_bytes))
    moved = Descriptor.decode(descriptor(1024 + first_line, 16, 8 * swizzle_bytes, swizzle_bytes, 3))
    assert (moved.chunks(64, k_major=True) == aligned.chunks(64, k_major=True) + first_line).all()
