"""Actors, as the watchers see them: a warp, or an agent that acts after an instruction's issue; and sites."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum
from typing import Protocol

import numpy as np
import numpy.typing as npt

from cutegen.ptx.text.syntax import Dim3
from cutegen.ptx.watch.violations import ViolationKind

# Agents: they access shared memory for an instruction after its issue. Their proxy, and what an early access is told.
#
# Source: PTX ISA, "Memory Consistency Model": "Proxies"; "Async proxy"; the asynchronous instructions. An instruction
# without an `Agent` has accessed memory when it is over, by the generic proxy.


class Proxy(Enum):
    """A path to memory; a `fence.proxy` orders accesses of one after those of another."""

    GENERIC = "generic"
    ASYNC = "async"


@dataclass(frozen=True, slots=True, kw_only=True)
class Agent:
    """The agent of an instruction: `noun` names it in messages.

    `early` is said of an access that does not wait for it, `pending` of one while it is in flight, with the words
    `{what}` (read or write), `{noun}`, `{did}` (wrote or read), `{who}` issued it, and `{place}`, its line.
    """

    noun: str
    proxy: Proxy
    kind: ViolationKind = ViolationKind.ASYNC_COPY
    early: str = "{what} of bytes without a wait for the {noun} that {did} them ({place})"
    pending: str = "{what} of bytes that the {noun} of {who} ({place}) has not been waited for"


BULK_COPY = Agent(noun="bulk copy", proxy=Proxy.ASYNC)


def tensor_core(noun: str, awaited_by: str) -> Agent:
    """The tensor core reads operands of `noun`; `awaited_by` is what must come before others write them."""
    return Agent(
        noun=noun,
        proxy=Proxy.ASYNC,
        kind=ViolationKind.ASYNC_MMA,
        early="{what} of bytes that the tensor core may still read ({place}): no " + awaited_by + " comes before",
    )


# Properties of an entry's instructions that the watchers of shared and global memory look up.
#
# Source: PTX ISA, "Memory Consistency Model": "Vector Data-types", "Packed Data-types", "Morally Strong Operations".


@dataclass(frozen=True, slots=True)
class SiteTable:
    """Columns by instruction: reach of its scope (0: it is weak), bytes of an element, and whether it is `.nc`.

    `agents` of those that access shared memory after their issue.
    """

    reach: npt.NDArray[np.int64]
    element_bytes: npt.NDArray[np.int64]
    expects_constant: npt.NDArray[np.bool_]
    agents: Mapping[int, Agent] = field(default_factory=dict)

    def morally_strong(
        self, site: int, others: npt.NDArray[np.integer], needed: npt.NDArray[np.int64]
    ) -> npt.NDArray[np.bool_]:
        """Mark the instructions `others` that do not race with `site` on the same bytes, ordered or not.

        Both are strong, of elements of one size, and each scope has the reach `needed` to include the other thread.
        """
        if self.reach[site] == 0:
            return np.zeros(others.shape, bool)
        both = np.minimum(self.reach[others], self.reach[site])
        return np.asarray((both >= needed) & (self.element_bytes[others] == self.element_bytes[site]))


# A warp as the watchers see it: its threads, its position, and its violation reports.


class Group(Protocol):
    """The CTA of an actor."""

    @property
    def place(self) -> Dim3:
        """Its index in the grid."""

    @property
    def rank(self) -> int:
        """Its index in its cluster, x fastest."""

    @property
    def first_thread(self) -> int:
        """The number of its first thread in the cluster."""

    def describe(self, site: int) -> str:
        """`line 12 'st.shared...'` of an instruction."""

    def fault(
        self,
        kind: ViolationKind,
        site: int,
        thread: int,
        message: str,
        address: int | None = None,
        *,
        always: bool = False,
    ) -> None:
        """Reports a violation of one of its threads."""


class Actor(Protocol):
    """A warp."""

    @property
    def index(self) -> int:
        """Its number in the cluster: the warps of its CTAs are numbered one CTA after the other, by rank."""

    @property
    def thread0(self) -> int:
        """The number of its first thread in the cluster."""

    @property
    def alive(self) -> npt.NDArray[np.bool_]:
        """The lanes that have not exited."""

    @property
    def mask(self) -> npt.NDArray[np.bool_]:
        """The lanes that are active."""

    @property
    def unwritten(self) -> npt.NDArray[np.bool_] | None:
        """The bytes that each lane has read although nobody wrote them, while that is noted in place of a report."""

    @property
    def cta(self) -> Group:
        """Its CTA."""

    def threads(self) -> npt.NDArray[np.int64]:
        """Numbers of the active threads in the cluster."""
