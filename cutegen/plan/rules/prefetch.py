"""Rule for which k-tiles are prefetched: the first of an operand that comes from device memory and one CTA reads.

A launch of narrow tiles is a stream of weights, and it begins with warps that wait for the first of them. Meanwhile
they ask L2 for lines (`prefetch.global.L2`), a line a thread, faster than the copies do, which ask for one box after
the other. On an H100 25 narrow products take 3.2 % less so in a graph, and launched alone as long as before. Where few
CTAs read, what a multiprocessor takes in decides, and they take 3 % longer (`docs/hopper_experiments.md`).
"""

from __future__ import annotations

from cutegen.plan.rules.tile_order import InFlight
from cutegen.plan.values.decision import Decision
from cutegen.plan.values.gemm_plan import Prefetch
from cutegen.plan.values.multiplied import Multiplied
from cutegen.spec import GemmSpec

SHARE = 4
"""One k-tile in so many of a CTA's K is prefetched: of 8 two are best, of 16 four, of 20 and more six."""
LEAST, MOST = 2, 6
"""K-tiles. Of four, two gain nothing; of 32 and more, eight and twelve gain no more than six."""
CTA_BYTES_PER_S = 85e9
"""What device memory may have for each CTA at most: on an H100 48 CTAs (70 GB/s) gain 6 %, 32 (105 GB/s) lose 3 %."""
_WHY = "no other CTA reads them, and warps that wait for copies ask for them sooner than copies do"


def choose_prefetch(
    spec: GemmSpec, by: Multiplied, in_flight: InFlight | None, evicted_first: tuple[str, ...]
) -> tuple[tuple[Prefetch, ...], tuple[Decision, ...]]:
    """Return what is prefetched, and the decision on each operand of which anything is to be said.

    Raises SpecError where CTAs of a cluster share copies, of which none knows its own.
    """
    found: list[Prefetch] = []
    decisions: list[Decision] = []
    shares_copies = by.cluster[:2] != (1, 1)
    for name in "ab":
        copy = getattr(spec.g2s, name)
        asked, key = copy.prefetch if copy else None, f"g2s.{name}.prefetch"
        if asked and shares_copies:
            raise spec.error(
                key,
                found=f"{asked} in clusters of {by.cluster[0]}x{by.cluster[1]} tiles",
                expected="no cluster along M or N: its CTAs share what they copy, and each would ask for all of it",
                fix="leave the key out, or schedule.cluster = [1, 1]",
            )
        if asked is not None:
            decisions.append(Decision(key, _k_tiles(asked), "given", given=True))
        elif in_flight is not None and not shares_copies and evicted_first == (name,):
            k_tiles = -(-in_flight.problem.k // (in_flight.passes // in_flight.problem.batch * by.cta_tile[2]))
            asked = min(k_tiles // SHARE, MOST) if _is_read_by_enough(in_flight, name) else 0
            if asked < LEAST:
                continue
            why = f"{in_flight.problem} has {k_tiles} k-tiles of {by.cta_tile[2]} for each of {in_flight.at_once} CTAs"
            decisions.append(Decision(key, _k_tiles(asked), _WHY, for_problem=why))
        if asked:
            found.append(Prefetch(name, asked))
    return tuple(found), tuple(decisions)


def _is_read_by_enough(in_flight: InFlight, name: str) -> bool:
    """Return whether one CTA reads each row of an operand's tiles, and there are enough of those for the memory."""
    grid = in_flight.grid
    readers = {"a": grid.tiles_n, "b": grid.tiles_m}[name]
    return readers == 1 and in_flight.gpu.memory_bytes_per_s <= in_flight.at_once * CTA_BYTES_PER_S


def _k_tiles(count: int) -> str:
    return "none" if count == 0 else f"the first {count} k-tiles" if count > 1 else "the first k-tile"
