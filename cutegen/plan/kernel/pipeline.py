"""Roles and the pipelines that join them: warps that run one program, and rings of stages that they fill and use."""

from collections.abc import Iterable
from dataclasses import dataclass
from enum import StrEnum

from cutegen.hardware.units import WARP

# A role: warps of a CTA that run one program, such as the producer, or the warps that multiply.


THREADS, PRODUCER, MMA, IDLE = "threads", "producer", "mma", "idle"
"""Names of roles. `threads` is the only role of a CTA: all copy, multiply and store. `idle` warps fill a warpgroup, of
which the hardware reallocates registers as a whole.
"""


class Turns(StrEnum):
    """Work that groups of a role do one after the other: tiles of their own (ping-pong), or the end of one tile."""

    TILES = "tiles"
    LAST_K_TILES = "last k-tiles"


@dataclass(frozen=True, slots=True, kw_only=True)
class Role:
    """Consecutive warps that run one program.

    `groups` of equally many threads run it independently: with `turns` they wait for each other. `registers` is the
    number per thread that `setmaxnreg` sets when the role begins; None keeps those of the launch.
    """

    name: str
    threads: int
    groups: int = 1
    turns: Turns | None = None
    registers: int | None = None

    @property
    def alternates(self) -> bool:
        """True if each group has a tile of its own: of a CTA's tiles, every `groups`-th."""
        return self.turns is Turns.TILES

    @property
    def warps(self) -> int:
        """Warps of all groups."""
        return self.threads // WARP

    @property
    def group_threads(self) -> int:
        """Threads of one group."""
        return self.threads // self.groups


# A pipeline: a ring of stages that some roles fill and others use, with the barriers by which they tell each other.
#
# ```text
#             acquire     fill, commit
# producers  --------->  stage  ---------> full ------> consumers: wait, use
#     ^                                                     |
#     +------------------- empty <-------- release ---------+
# ```
#
# A wait is for an item: the k-tile, tile, turn or sub-tile that a stage holds next. Item i is in stage i mod `stages`.


MBARRIER_BYTES = 8
AB, OF_FACTORS, TURN, C_STORE, SLICES = "ab", "factors", "turn", "c_store", "slices"
"""Names of pipelines: k-tiles of A and B; their factors, unless these come with them; turns of warpgroups, sub-tiles of
C, sums of slices that a cluster adds.
"""


class Sync(StrEnum):
    """Mechanism of a barrier, by the instruction that waits for it."""

    MBARRIER = "mbarrier.try_wait"
    NAMED = "bar.sync"
    CLUSTER = "barrier.cluster.wait"
    COPY_GROUPS = "cp.async.wait_group"
    STORE_GROUPS = "cp.async.bulk.wait_group.read"


class By(StrEnum):
    """Cause of one arrival: each thread, one thread of each warp, a copy's bytes, or the end of multiplications.

    A thread's own copies may arrive for it: when those that it issued before have landed.
    """

    THREAD = "thread"
    WARP = "warp"
    COPY = "bytes of a copy"
    THREAD_COPIES = "cp.async.mbarrier.arrive"
    MMA = "tcgen05.commit"


class Scope(StrEnum):
    """Threads that share a pipeline: a group of a role, which has its own, a CTA, a pair of CTAs, or a cluster."""

    GROUP = "group"
    CTA = "cta"
    PAIR = "cta pair"
    CLUSTER = "cluster"


class Item(StrEnum):
    """Content of a stage. A turn has none: it permits the group that waits for it to go on."""

    K_TILE = "k-tile"
    TILE = "tile"
    TURN = "turn"
    SUB_TILE = "sub-tile"


@dataclass(frozen=True, slots=True)
class Arrival:
    """Arrivals of `role` at one barrier for one item: of each group that has the item, in each of `ctas`."""

    role: str
    by: By
    ctas: int = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class Barrier:
    """A barrier of each stage. A phase ends after `count` arrivals; `credits` are the items that need none."""

    sync: Sync
    count: int
    arrivals: tuple[Arrival, ...]
    credits: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Pipeline:
    """A ring of `stages` from roles to roles; `payload_bytes` is what arrives in a stage.

    `full` ends when an item has arrived, `empty` when all have used it; without `empty` nothing needs to be free. The
    stages may lie in the memory `within` another pipeline's, which is then empty.
    """

    name: str
    producers: tuple[str, ...]
    consumers: tuple[str, ...]
    holds: Item
    stages: int
    payload_bytes: int = 0
    full: Barrier
    empty: Barrier | None = None
    scope: Scope = Scope.CTA
    within: str | None = None

    @property
    def barriers(self) -> dict[str, Barrier]:
        """Its barriers by name, in the order of memory."""
        return {"full": self.full, **({} if self.empty is None else {"empty": self.empty})}

    @property
    def mbarriers(self) -> tuple[Barrier, ...]:
        """Those of each stage that are objects in shared memory."""
        return tuple(each for each in self.barriers.values() if each.sync is Sync.MBARRIER)

    @property
    def mbarriers_bytes(self) -> int:
        """Shared memory of its barriers."""
        return MBARRIER_BYTES * self.stages * len(self.mbarriers)


def mbarriers_bytes(pipelines: Iterable[Pipeline]) -> int:
    """Return the shared memory of all barriers."""
    return sum(each.mbarriers_bytes for each in pipelines)


def initial_counts(pipelines: Iterable[Pipeline]) -> dict[str, tuple[int, int]]:
    """Return the mbarriers that a kernel initializes, by name: their number, and the arrivals that each counts."""
    return {
        f"{each.name}.{name}": (each.stages, barrier.count)
        for each in pipelines
        for name, barrier in each.barriers.items()
        if barrier.sync is Sync.MBARRIER
    }
