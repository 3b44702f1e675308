"""The tiles and slices that are compared for a problem: all of them were measured, as they stand."""

from __future__ import annotations

import pytest

from tests.gpu.families import FAMILIES, name_of
from tests.gpu.fit import load

SINCE = {
    f"{tile}_k1"
    for tile in (
        "32x32x64_2x2_s6",
        "32x32x128_2x2_s4",
        "16x32x64_1x4_s6",
        "16x32x32_1x4_s6",
        "16x16x128_1x2_s6",
        "16x16x64_1x2_s6",
    )
}
"""Added for small problems after that sweep, and measured on fifty of those."""


def measured(family: str) -> set[str]:
    return {name for row in load(FAMILIES[family]) for name in row.times_us}


@pytest.mark.parametrize("name", FAMILIES)
def test_every_candidate_was_measured_with_its_warps_and_stages(name: str) -> None:
    compared = {name_of(candidate, 1) for candidate in FAMILIES[name].candidates}
    assert len(compared) == len(FAMILIES[name].candidates)
    assert compared <= measured(name) | SINCE


@pytest.mark.parametrize("name", FAMILIES)
def test_every_number_of_slices_that_was_measured_is_compared(name: str) -> None:
    slices = {int(kernel.rpartition("_k")[2]) for kernel in measured(name)}
    assert slices <= set(FAMILIES[name].splits)


@pytest.mark.parametrize("name", FAMILIES)
def test_warps_share_out_each_tile_in_whole_atoms_and_none_splits_k(name: str) -> None:
    for candidate in FAMILIES[name].candidates:
        (m, n, k), (warps_m, warps_n, warps_k) = candidate.cta, candidate.atom_layout
        assert warps_k == 1, candidate
        assert (m % (16 * warps_m), n % (8 * warps_n), k % 16) == (0, 0, 0), f"{candidate}: the atom is 16x8x16"
