"""Agents: they access shared memory for an instruction after its issue. Their proxy, and what an early access is told.

Source: PTX ISA, "Memory Consistency Model": "Proxies"; "Async proxy"; the asynchronous instructions. An instruction
without an `Agent` has accessed memory when it is over, by the generic proxy.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum

from cutegen.ptx.watch.violations import ViolationKind


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
