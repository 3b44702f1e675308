"""Regions of shared memory: the allocator against a drawing of bytes and phases, and what shipped kernels request."""

from __future__ import annotations

import random
from dataclasses import replace

import pytest

from cutegen.plan import GemmPlan, plan
from cutegen.plan.kernel.memory import ALWAYS, MemoryMap, Phase, Region, allocate
from cutegen.spec import Schedule, Tile, load_spec
from tests.plan.specs import gemm

KINDS = tuple(Phase)


def drawn(rng: random.Random) -> list[Region]:
    """Requests of any size, alignment and phases."""
    return [
        Region(
            name=f"r{number}",
            owner=f"r{number}",
            bytes=rng.choice((0, 1, 7, 16, 100, 1024)),
            align_bytes=rng.choice((1, 8, 16, 128, 1024)),
            phases=frozenset(rng.sample(KINDS, rng.randint(1, len(KINDS)))),
        )
        for number in range(rng.randint(1, 7))
    ]


@pytest.mark.parametrize("seed", range(50))
def test_no_byte_has_two_uses_in_one_phase(seed: int) -> None:
    wanted = drawn(random.Random(seed))
    made = allocate(wanted)
    assert [(x.name, x.bytes, x.phases) for x in made.regions] == [(x.name, x.bytes, x.phases) for x in wanted]
    assert all(x.offset_bytes % x.align_bytes == 0 for x in made.regions)
    for phase in Phase:
        used = [byte for x in made.regions if phase in x.phases for byte in range(x.offset_bytes, x.end_bytes)]
        assert len(used) == len(set(used))
    assert made.bytes == max(x.offset_bytes + x.bytes for x in made.regions)


def test_regions_of_other_phases_share_their_place() -> None:
    tile, store = frozenset({Phase.K_TILES}), frozenset({Phase.STORE})
    a = Region(name="a", owner="ab", bytes=100, align_bytes=128, phases=tile)
    b = Region(name="b", owner="ab", bytes=100, align_bytes=128, phases=tile)
    c = Region(name="c", owner="c", bytes=300, align_bytes=2, phases=store)
    barriers = Region(name="barriers", owner="barriers", bytes=16, align_bytes=8, phases=ALWAYS)
    assert [x.offset_bytes for x in allocate((a, b, c, barriers)).regions] == [0, 128, 0, 304]


@pytest.mark.parametrize(
    ("begin", "overlap"),
    [(0, True), (1, True), (9, True), (10, False), (15, False), (-1, True), (-9, True), (-10, False)],
)
def test_regions_overlap_if_they_have_a_byte_in_common(begin: int, overlap: bool) -> None:
    one = Region(name="one", owner="one", bytes=10, align_bytes=1, offset_bytes=20)
    other = Region(name="other", owner="other", bytes=10, align_bytes=1, offset_bytes=20 + begin)
    assert one.overlaps(other) is other.overlaps(one) is overlap


def test_a_map_is_asked_by_name() -> None:
    made = allocate((Region(name="a", owner="ab", bytes=4, align_bytes=4),))
    assert made.region("a") is made.regions[0] is made.find("a")
    assert (made.find("b"), made.of_owner("ab")) == (None, made.regions)
    with pytest.raises(KeyError):
        made.offset_bytes("b")


@pytest.mark.parametrize(
    ("name", "arch", "regions"),
    [
        ("simt_sgemm_nt", "sm_80", {"a": "k-tiles", "b": "k-tiles"}),
        ("sm80_hgemm_tn", "sm_80", {"a": "k-tiles", "b": "k-tiles", "c": "store"}),
        ("sm90_hgemm_tn", "sm_90", {"a": "all", "b": "all", "c": "store", "barriers": "all"}),
    ],
)
def test_a_producer_keeps_the_stages_while_c_is_stored(name: str, arch: str, regions: dict[str, str]) -> None:
    found = plan(load_spec(name), arch)
    assert isinstance(found, GemmPlan)
    assert {x.name: _words(x) for x in found.memory.regions} == regions
    assert isinstance(found.memory, MemoryMap)
    assert found.memory.bytes == found.launch.dynamic_smem_bytes


def test_a_cluster_adds_slices_in_the_place_of_the_stages() -> None:
    spec = replace(gemm(tile=Tile((128, 64, 64))), family="sm90")
    found = plan(replace(spec, schedule=Schedule(split_k=2, cluster=(1, 1, 2))), "sm_90")
    assert isinstance(found, GemmPlan)
    slices = found.memory.region("slices")
    assert (slices.offset_bytes, slices.bytes) == (0, found.cta_tile[0] * found.cta_tile[1] * 4)
    assert slices.end_bytes <= found.memory.region("b").end_bytes


def _words(region: Region) -> str:
    return "all" if region.phases == ALWAYS else " ".join(sorted(region.phases))
