"""Rule for prefetched k-tiles: the first ones of an operand that passes through L2 once.

A launch of narrow tiles streams weights, and its warps first wait for the first tiles. Meanwhile they prefetch lines to
L2 (`prefetch.global.L2`), one line per thread, faster than the copies, which are issued box after box. On an H100 this
saves 3.2 % for 25 narrow products in a graph, where the end of the previous launch hides it. Launched alone they take
as long as before, and in graphs of a few launches on an idle GPU 71 kernels take 1.7 % more. If few CTAs read, the
bandwidth into an SM is the limit, and they take 3 % longer (`docs/hopper_experiments.md`).
"""

from __future__ import annotations

from cutegen.algebra import Extents
from cutegen.contract.launch import OPERANDS
from cutegen.plan.rules.eviction import streams_of
from cutegen.plan.rules.tile_order import InFlight
from cutegen.plan.values.decision import Decision
from cutegen.plan.values.gemm_plan import Prefetch
from cutegen.plan.values.mma import MmaPlan
from cutegen.spec import GemmSpec

SHARE = 4
"""One in so many of a CTA's k-tiles is prefetched: of 8 two are best, of 16 four, of 20 and more six."""
LEAST = 2
"""Least k-tiles: two of four gain nothing."""
MOST = {1: 6, 2: 4}
"""Most k-tiles, by the CTAs that read each row of tiles: more do not help (eight and twelve for one CTA, six for two).
"""
MOST_BESIDE = 64
"""Most rows of the other operand in a tile. On an H100 all 61 kernels with that many or fewer gain, 3.8 % on average in
a long graph; ten with more take 2 % less to 5 % more, and 2 % more launched alone.
"""
NARROW = 4
"""Least ratio of a tile's extent along its operand to that along the other one."""
CTA_BYTES_PER_S = 85e9
"""Most device memory bandwidth per CTA: on an H100 48 CTAs (70 GB/s) gain 6 %, 32 (105 GB/s) lose 3 %."""
_WHY = "they pass through L2 once, and warps that wait for copies can request them sooner than the copies do"


def choose_prefetch(
    spec: GemmSpec, mma: MmaPlan, in_flight: InFlight | None, evicted_first: tuple[str, ...]
) -> tuple[tuple[Prefetch, ...], tuple[Decision, ...]]:
    """Return what is prefetched, and the decisions on operands that have one.

    Raises SpecError if CTAs of a cluster share copies: no CTA knows its own part.
    """
    found: list[Prefetch] = []
    decisions: list[Decision] = []
    for name in OPERANDS:
        asked, key = spec.g2s.of(name).prefetch, f"g2s.{name}.prefetch"
        if asked and mma.shares_copies:
            raise spec.error(
                key,
                found=f"{asked} in clusters of {mma.cluster[0]}x{mma.cluster[1]} tiles",
                expected="no cluster along M or N: its CTAs share copies, and each would prefetch all of them",
                fix="leave the key out, or schedule.cluster = [1, 1]",
            )
        if asked is not None:
            decisions.append(Decision.as_given(key, _k_tiles(asked)))
        elif in_flight is not None and not mma.shares_copies and name in evicted_first:
            k_tiles = -(-in_flight.problem.k // (in_flight.slices * mma.cta_tile[2]))
            asked = min(k_tiles // SHARE, _most(in_flight, mma.cta_tile, name))
            if asked < LEAST:
                continue
            why = f"{in_flight.problem} has {k_tiles} k-tiles of {mma.cta_tile[2]} for each of {in_flight.at_once} CTAs"
            decisions.append(Decision(key, _k_tiles(asked), _WHY, for_problem=why))
        if asked:
            found.append(Prefetch(name, asked))
    return tuple(found), tuple(decisions)


def _most(in_flight: InFlight, cta_tile: Extents, name: str) -> int:
    """Return the most k-tiles that gain: none unless one or two CTAs read each row, and there are many CTAs.

    None gain if a tile has many rows of the other operand, which L2 supplies too. Two CTAs must copy equally much: a
    CTA whose tile the problem does not fill runs ahead, and the other then misses L2 (8 or 16 of 64 rows: 30 % longer).
    It does not if the rest of a stage is negligible.
    """
    readers = streams_of(in_flight)[name].readers
    modes = (cta_tile[0], in_flight.problem.m), (cta_tile[1], in_flight.problem.n)
    (own, own_extent), (other, other_extent) = modes if name == "a" else reversed(modes)
    if min(other, other_extent) > MOST_BESIDE or in_flight.gpu.memory_bytes_per_s > in_flight.at_once * CTA_BYTES_PER_S:
        return 0
    even = own_extent % own == 0 and (other_extent % other == 0 or own >= NARROW * other)
    return MOST.get(readers, 0) if readers == 1 or even else 0


def _k_tiles(count: int) -> str:
    return "none" if count == 0 else f"the first {count} k-tiles" if count > 1 else "the first k-tile"
