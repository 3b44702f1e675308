"""Rules for what a main loop tells L2: lines evicted first, prefetched k-tiles, the pace of copies, an early launch."""

import math
from dataclasses import dataclass

from cutegen.algebra import Extents
from cutegen.contract.launch import OPERANDS
from cutegen.hardware import Instruction, Target
from cutegen.hardware.rates import SM_RATES
from cutegen.plan.kernel.scheduler import SplitK
from cutegen.plan.schedule.order import InFlight
from cutegen.plan.values.decision import Decision
from cutegen.plan.values.gemm_plan import MmaPlan, Prefetch
from cutegen.spec import GemmSpec, Grouped
from cutegen.spec.values import WEIGHTS
from cutegen.support.words import literal

# Rule for the lines that the L2 cache evicts first: those that no CTA reads again after the CTAs in flight.
#
# All other lines are more useful. On an H200 this saves 1 to 4 % if one CTA reads each row of the larger operand's
# tiles, and for a deep K in slices, whose rows all readers read at the same time. On an H100 it saves 2 to 6 % for
# slices if one CTA reads each row. If two CTAs share rows of an operand that L2 does not hold, both operands must be
# evicted first: evicting only the larger gains nothing, since the later CTA misses.


EVICT_FIRST = "evict_first"
LEAST_BYTES = 8 << 20
"""Least bytes of an operand: smaller ones displace nothing."""
SQUARE_SLICES = 8
"""Slices of K from which both operands are streams."""
_WHY_EVICTED = "no CTA reads it again after those in flight, so L2 should keep its other lines"


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
            decisions.append(Decision(key, asked, _WHY_EVICTED, for_problem=why))
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


# Rule for prefetched k-tiles: the first ones of an operand that passes through L2 once.
#
# A launch of narrow tiles streams weights, and its warps first wait for the first tiles. Meanwhile they prefetch lines
# to L2 (`prefetch.global.L2`), one line per thread, faster than the copies, which are issued box after box. On an H100
# this saves 3.2 % for 25 narrow products in a graph, where the end of the previous launch hides it. Launched alone they
# take as long as before, and in graphs of a few launches on an idle GPU 71 kernels take 1.7 % more. If few CTAs read,
# the bandwidth into an SM is the limit, and they take 3 % longer (`docs/lab/hopper_experiments.md`).


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
_WHY_PREFETCHED = "they pass through L2 once, and warps that wait for copies can request them sooner than the copies do"


def choose_prefetch(
    spec: GemmSpec, mma: MmaPlan, in_flight: InFlight | None, evicted_first: tuple[str, ...]
) -> tuple[tuple[Prefetch, ...], tuple[Decision, ...]]:
    """Return what is prefetched, and the decisions on operands that have one.

    Raises SpecError if CTAs of a cluster share copies, of which no CTA knows its own part, and for groups.
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
        if asked and spec.problem.groups is not None:
            raise spec.error(
                key,
                found=f"{asked} with groups",
                expected="none: a CTA finds its first tile only after it has loaded their sizes",
                fix="leave the key out",
            )
        in_two_places = spec.epilogue.pairs is not None and name == spec.epilogue.pairs.value.operand
        if asked and in_two_places:
            raise spec.error(
                key,
                found=f"{asked} with epilogue.pairs",
                expected="nothing: prefetches take the rows of a tile one after the other, and its pairs are apart",
                fix="leave the key out",
            )
        if asked is not None:
            decisions.append(Decision.as_given(key, _k_tiles(asked)))
        elif in_two_places:
            continue
        elif in_flight is not None and not (mma.shares_copies or spec.problem.groups) and name in evicted_first:
            k_tiles = -(-in_flight.problem.k // (in_flight.slices * mma.cta_tile[2]))
            asked = min(k_tiles // SHARE, _most(in_flight, mma.cta_tile, name))
            if asked < LEAST:
                continue
            why = f"{in_flight.problem} has {k_tiles} k-tiles of {mma.cta_tile[2]} for each of {in_flight.at_once} CTAs"
            decisions.append(Decision(key, _k_tiles(asked), _WHY_PREFETCHED, for_problem=why))
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


# Rule for the pace of copies: clock cycles per k-tile, faster than which a CTA does not request a tile's k-tiles.
#
# Without a pace, the producer warp issues copies as soon as a stage is empty. Some kernels then request more than L2
# delivers, and take up to 1.5 times as long as at a pace slightly below the tensor cores' rate
# (`docs/lab/hopper_experiments.md`, "The pace of copies"). Kernels that plans select rarely gain, so only a spec or
# tuning sets it.


PACE = "schedule.pace"


def choose_pace(spec: GemmSpec, target: Target, mma: MmaPlan) -> tuple[int, tuple[Decision, ...]]:
    """Return the cycles per k-tile that the spec requests, 0 for none, and the decision if the key is given."""
    asked = spec.schedule.pace
    if asked is None:
        return 0, ()
    if asked == 0:
        return 0, (Decision.as_given(PACE, "none", "a stage is filled as soon as it is empty"),)
    cycles = tensor_cycles(target, mma.atom.instruction, mma.atom.a_dtype.name, mma.cta_tile)
    multiplied = "" if cycles is None else f"; the tensor cores multiply one in {cycles:.0f}"
    why = f"a CTA requests a tile's k-tiles at most one per N clock cycles{multiplied}"
    return asked, (Decision.as_given(PACE, f"{asked} cycles", why),)


def tensor_cycles(target: Target, instruction: Instruction, operands: str, cta_tile: Extents) -> float | None:
    """Return the cycles in which the tensor cores multiply a k-tile, M x N x K; None if their rate is not known."""
    flops = SM_RATES[target.name].flops_of(instruction, operands)
    return None if flops is None else 2 * math.prod(cta_tile) / flops


# Rule for programmatic dependent launch: a launch may begin while its predecessor on the stream runs.
#
# The kernel sets up its barriers meanwhile, and waits (`griddepcontrol.wait`) before it accesses memory, so results are
# the same. A successor gains only if it is launched this way too, and a predecessor only if it triggers early, which
# kernels without the key do not.


PROGRAMMATIC = "schedule.programmatic"


@dataclass(frozen=True, slots=True)
class Beginning:
    """Begin of a kernel: before its predecessor ends if `programmatic`, with copies of the operands `ahead`."""

    programmatic: bool = False
    ahead: tuple[str, ...] = ()


def choose_programmatic(spec: GemmSpec, mma: MmaPlan, split_k: SplitK | None) -> tuple[Beginning, tuple[Decision, ...]]:
    """Return how the spec lets the kernel begin, and the decision if the key is given. Raises SpecError if impossible.

    With "weights" no predecessor writes B: its first k-tiles, as many as there are stages, are copied before the wait.
    With groups they are prefetched to L2, since the ends decide which group's a CTA needs.
    """
    asked = spec.schedule.programmatic
    if asked is None:
        return Beginning(), ()
    grouped = spec.problem.groups
    if asked == WEIGHTS and grouped is not None:
        _check_weights_of_groups(spec, grouped, mma)
    if asked and split_k is not None and split_k.leaves_sums:
        raise spec.error(
            PROGRAMMATIC,
            found=f"{literal(asked)} with K in {split_k.slices} slices that use a workspace",
            expected="no workspace: in a graph such a launch follows a node that allocates memory, not a kernel",
            fix='reduction = "cluster", if all slices fit in one, or leave the key out',
        )
    why = "the kernel runs its prologue while its predecessor ends, and waits before it accesses memory"
    if asked == WEIGHTS:
        first = "copies its first k-tiles, as many as there are stages,"
        if grouped is not None:
            first = (
                "prefetches as many of its k-tiles to L2 as there are stages, as if each group had one row of tiles,"
            )
        why = (
            f"no predecessor writes B: the kernel {first} while its predecessor ends, and waits before it accesses any "
            "other memory"
        )
        decision = Decision.as_given(PROGRAMMATIC, WEIGHTS, why)
        return Beginning(programmatic=True, ahead=(spec.schedule.weights,)), (decision,)
    return Beginning(bool(asked)), (Decision.as_given(PROGRAMMATIC, str(asked).lower(), why if asked else ""),)


def _check_weights_of_groups(spec: GemmSpec, grouped: Grouped, mma: MmaPlan) -> None:
    """Raise SpecError where groups have no matrix of weights each, or where CTAs share its copies."""
    has_weights = grouped.of == ("m" if spec.schedule.weights == "b" else "n")
    if has_weights and not mma.shares_copies:
        return
    raise spec.error(
        PROGRAMMATIC,
        found='"weights" ' + ("in a cluster" if has_weights else "with groups that cut B"),
        expected="groups of m, with a matrix of B each, and no cluster",
        fix="programmatic = true",
    )
