"""A role: warps of a CTA that run one program, such as the producer, or the warps that multiply."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from cutegen.hardware.units import WARP

THREADS, PRODUCER, MMA, IDLE = "threads", "producer", "mma", "idle"
"""Names of roles. `threads` is the only role of a CTA: all copy, multiply and store. `idle` warps fill a warpgroup, of
which the hardware reallocates registers as a whole.
"""


class Turns(StrEnum):
    """Work that groups of a role do one after the other: tiles of their own (ping-pong), k-tiles of one, or its end."""

    TILES = "tiles"
    K_TILES = "k-tiles"
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
