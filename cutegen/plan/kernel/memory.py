"""The shared memory of a CTA as named regions: whose each is, when it is in use, and where it lies.

```text
sm80: threads copy, multiply, store          sm90: a producer copies the next tile's k-tiles while C is stored

  a   b | free        k-tiles                  a   b        barriers    k-tiles
  c ......            store                    slices       barriers    slices, if a cluster adds them
                                               a   b   c    barriers    store
```

Regions that are never in use at the same time may lie in the same place. Offsets are not written by hand: `allocate`
finds them, and the proof of a plan compares all pairs of regions again.
"""

from collections.abc import Iterable
from dataclasses import dataclass, replace
from enum import StrEnum

from cutegen.contract.launch import RESULT
from cutegen.hardware.units import BANK_BYTES
from cutegen.support.words import round_up

SLICES, LARGEST, BARRIERS = "slices", "largest", "barriers"
"""Names of regions beside those of the operands and C: a CTA's sums of a slice of K, the largest magnitudes of a
quantized C that several warps have, and the mbarriers.
"""


class Phase(StrEnum):
    """Phase of a CTA's work on a tile: its main loop, the addition of slices of K by a cluster, the store of C."""

    K_TILES = "k-tiles"
    SLICES = "slices"
    STORE = "store"


ALWAYS = frozenset(Phase)


@dataclass(frozen=True, slots=True, kw_only=True)
class Region:
    """`bytes` at `offset_bytes`, a multiple of `align_bytes`, in use in some `phases` of a tile.

    `owner` is the pipeline whose stages they are, or the region's own name.
    """

    name: str
    owner: str
    bytes: int
    align_bytes: int
    phases: frozenset[Phase] = ALWAYS
    offset_bytes: int = 0

    @property
    def end_bytes(self) -> int:
        """Offset of the first byte after it."""
        return self.offset_bytes + self.bytes

    def meets(self, other: "Region") -> bool:
        """Return whether both are in use at the same time."""
        return bool(self.phases & other.phases)

    def overlaps(self, other: "Region") -> bool:
        """Return whether they have a byte in common."""
        return self.offset_bytes < other.end_bytes and other.offset_bytes < self.end_bytes


@dataclass(frozen=True, slots=True)
class MemoryMap:
    """The regions of a CTA's dynamic shared memory, in the order in which they were requested."""

    regions: tuple[Region, ...]

    @property
    def bytes(self) -> int:
        """Bytes of all regions."""
        return max(region.end_bytes for region in self.regions)

    def region(self, name: str) -> Region:
        """Return the region of a name. Raises KeyError if there is none."""
        if (found := self.find(name)) is None:
            raise KeyError(name)
        return found

    def offset_bytes(self, name: str) -> int:
        """Return where a region begins. Raises KeyError if there is none."""
        return self.region(name).offset_bytes

    def find(self, name: str) -> Region | None:
        """Return the region of a name, or None."""
        return next((region for region in self.regions if region.name == name), None)

    def of_owner(self, owner: str) -> tuple[Region, ...]:
        """Return the regions of an owner."""
        return tuple(region for region in self.regions if region.owner == owner)


def result_region(c_bytes: int, align_bytes: int) -> Region:
    """Return the memory of C's tile, or of the parts of it that are stored at once."""
    return Region(name=RESULT, owner=RESULT, bytes=c_bytes, align_bytes=align_bytes, phases=frozenset({Phase.STORE}))


def slices_region(sums_bytes: int, align_bytes: int) -> Region:
    """Return the memory of a CTA's sums of a slice, which the CTAs of its cluster read."""
    return Region(
        name=SLICES, owner=SLICES, bytes=sums_bytes, align_bytes=align_bytes, phases=frozenset({Phase.SLICES})
    )


def largest_region(largest_bytes: int) -> Region:
    """Return the memory where warps find the largest magnitudes of a quantized C's blocks."""
    return Region(
        name=LARGEST, owner=LARGEST, bytes=largest_bytes, align_bytes=BANK_BYTES, phases=frozenset({Phase.STORE})
    )


def allocate(regions: Iterable[Region]) -> MemoryMap:
    """Place each region behind those before it that are in use at the same time.

    >>> tile, c = Region(name="a", owner="ab", bytes=100, align_bytes=16), frozenset({Phase.STORE})
    >>> allocate((tile, Region(name="c", owner="c", bytes=8, align_bytes=16, phases=c))).offset_bytes("c")
    112
    """
    placed: list[Region] = []
    for region in regions:
        behind = max((other.end_bytes for other in placed if region.meets(other)), default=0)
        placed.append(replace(region, offset_bytes=round_up(behind, region.align_bytes)))
    return MemoryMap(tuple(placed))
