"""Rule for the lines that the L2 cache evicts first: those that no CTA reads again after the CTAs in flight.

All other lines are more useful. On an H200 this saves 1 to 4 % if one CTA reads each row of the larger operand's tiles,
and for a deep K in slices, whose rows all readers read at the same time. On an H100 it saves 2 to 6 % for slices if one
CTA reads each row. If two CTAs share rows of an operand that L2 does not hold, both operands must be evicted first: the
larger alone costs as much, since the later CTA misses.
"""

from __future__ import annotations

from dataclasses import dataclass

from cutegen.contract.launch import OPERANDS
from cutegen.plan.rules.tile_order import InFlight
from cutegen.plan.values.decision import Decision
from cutegen.spec import GemmSpec

EVICT_FIRST = "evict_first"
LEAST_BYTES = 8 << 20
"""Least bytes of an operand: smaller ones displace nothing."""
SQUARE_SLICES = 8
"""Slices of K from which both operands are streams."""
_WHY = "no CTA reads it again after those in flight, so L2 should keep its other lines"


@dataclass(frozen=True, slots=True)
class Stream:
    """A launch's reads of one operand: bytes in all, and the CTAs that read each row of its tiles."""

    bytes: int
    readers: int


def choose_eviction(spec: GemmSpec, in_flight: InFlight | None) -> tuple[tuple[str, ...], tuple[Decision, ...]]:
    """Return the operands whose lines are evicted first, and the decisions on operands that have one."""
    found: list[str] = []
    decisions: list[Decision] = []
    for name in OPERANDS:
        asked, key = spec.g2s.of(name).l2, f"g2s.{name}.l2"
        if asked is not None:
            decisions.append(Decision.as_given(key, asked))
        elif in_flight is not None and goes_through_once(in_flight, name):
            asked, stream = EVICT_FIRST, streams_of(in_flight)[name]
            each = "one CTA" if stream.readers == 1 else f"{stream.readers} CTAs at once"
            why = f"{in_flight.problem} reads {stream.bytes / 1e6:,.1f} MB of it, each row of tiles by {each}"
            decisions.append(Decision(key, asked, _WHY, for_problem=why))
        if asked == EVICT_FIRST:
            found.append(name)
    return tuple(found), tuple(decisions)


def streams_of(in_flight: InFlight) -> dict[str, Stream]:
    """A launch's reads of A and of B."""
    grid, passes = in_flight.grid, in_flight.passes
    return {
        "a": Stream(grid.tiles_m * grid.bytes_a * passes, grid.tiles_n),
        "b": Stream(grid.tiles_n * grid.bytes_b * passes, grid.tiles_m),
    }


def goes_through_once(in_flight: InFlight, name: str) -> bool:
    """Return whether L2 evicts an operand first: device memory is the limit, and a row is read by all at once."""
    streams = streams_of(in_flight)
    own, other = streams[name], streams["b" if name == "a" else "a"]
    larger = max(own, other, key=lambda each: each.bytes)
    memory_us = (own.bytes + other.bytes) / in_flight.gpu.memory_bytes_per_s * 1e6
    if larger.bytes < LEAST_BYTES or (in_flight.tensor_us is not None and memory_us <= in_flight.tensor_us):
        return False
    if own is larger and larger.readers == 1:
        return True
    if in_flight.grid.tiles_m * in_flight.grid.tiles_n * in_flight.passes > in_flight.ctas:
        return False
    if in_flight.slices > 1:
        return in_flight.slices >= SQUARE_SLICES and min(own.bytes, other.bytes) >= LEAST_BYTES
    return larger.readers == 2 and (own is larger or own.bytes + other.bytes > in_flight.gpu.l2_bytes)
