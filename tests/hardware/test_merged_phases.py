"""Loads whose lanes share: the plan's count against the executor's, which is a witness of its own."""

from __future__ import annotations

import numpy as np
import pytest

from cutegen.hardware.wavefronts import merged_phases, wavefronts
from cutegen.ptx.watch.traffic import shared_wavefronts

LANES = np.arange(32)
PATTERNS = {
    "all the same": LANES * 0,
    "pairs": LANES // 2,
    "every second": LANES % 2 + LANES // 4 * 2,
    "halves": LANES // 16,
    "16 in turn": LANES % 16,
    "none": LANES,
    "a column": LANES * 8,
}


@pytest.mark.parametrize("access_bytes", [2, 4, 8, 16])
@pytest.mark.parametrize("name", PATTERNS)
def test_phases_merge_as_the_executor_merges_them(name: str, access_bytes: int) -> None:
    addresses = PATTERNS[name] * access_bytes
    expected, _ = shared_wavefronts(addresses, LANES, access_bytes, merges=True)
    assert int(wavefronts(addresses, access_bytes) - merged_phases(addresses, access_bytes)) == expected


@pytest.mark.parametrize("access_bytes", [8, 16])
def test_random_accesses_too(access_bytes: int) -> None:
    generator = np.random.default_rng(11)
    steps = generator.choice([0, 1, 2, 4], size=(200, 5))
    lanes = (LANES[None, :, None] >> np.arange(5) & 1) @ steps[..., None]
    addresses = (lanes[..., 0] % 64) * access_bytes
    found = wavefronts(addresses, access_bytes) - merged_phases(addresses, access_bytes)
    expected = [shared_wavefronts(row, LANES, access_bytes, merges=True)[0] for row in addresses]
    assert found.tolist() == expected
    assert merged_phases(addresses, access_bytes).any()
