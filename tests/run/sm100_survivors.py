"""Mutants of family sm100's kernels that nothing shows, and why: what stands there is the same for every launch, or for
those that are tried.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from tests.run.ptx_mutants import Mutant

LINES_NEAR = 12


@dataclass(frozen=True, slots=True)
class Survivors:
    """Mutants of some `kinds` whose line begins with `before`, `near` other lines, and why they may survive.

    `before` and `near` are patterns; `near` is looked for in the lines around.
    """

    kinds: tuple[str, ...]
    before: str
    why: str
    near: str = ""


_BEFORE, _AFTER = "tcgen05.fence::before_thread_sync", "tcgen05.fence::after_thread_sync"
_FENCES = (f"{_BEFORE} dropped", f"{_AFTER} dropped", "fence on the wrong side")

EXPLAINED: tuple[Survivors, ...] = (
    Survivors(
        _FENCES,
        "tcgen05.fence::(before|after)",
        "at the begin nothing asynchronous has been issued, and what comes next is behind a fence of its own",
        near=r"tcgen05\.alloc",
    ),
    Survivors(
        _FENCES,
        "tcgen05.fence::(before|after)",
        "at the end: tcgen05.dealloc is no asynchronous operation, and the loads before it are complete and ordered",
        near=r"tcgen05\.dealloc",
    ),
    Survivors(
        _FENCES,
        "tcgen05.fence::after",
        "one fence behind the waits for an empty buffer and for a full stage is enough: it orders tensor memory, and a "
        "stage is shared memory, which its barrier orders",
        near=r"(?s)try_wait.*tcgen05\.fence::after.*(shl\.b32|elect\.sync)",
    ),
    Survivors(
        ("tcgen05.relinquish_alloc_permit dropped",),
        "",
        "one CTA is on an SM: no other waits to allocate",
    ),
    Survivors(
        ("cluster's arrival that releases nothing",),
        "",
        "at the begin fence.mbarrier_init.release.cluster releases what the barriers need",
        near=r"fence\.mbarrier_init",
    ),
    Survivors(
        ("number in a comparison", "comparison off by one", "number"),
        r"setp\.gt\.s32 %p\d+, %r\d+, -1;",
        "an extent is at least 0, and no problem has none of it",
    ),
    Survivors(
        ("and for or", "one of two conditions"),
        r"(and|or)\.pred %p\d+, %p\d+, %p\d+;",
        "a short cut of the order of tiles: with one row or one column of tiles the long way has the same result",
        near=r"setp\.lt\.s32 %p\d+, %r\d+, 2;",
    ),
    Survivors(
        ("and for or", "one of two conditions"),
        r"(and|or)\.pred %p\d+, %p\d+, %p\d+;",
        "rounds a quotient up for extents of either sign, and they are at least 0",
        near=r"setp\.gt\.s32 %p\d+, %r\d+, -1;",
    ),
)


def reason(text: str, mutant: Mutant) -> str | None:
    """Why a mutant of a kernel's text may survive, or None if it is not known to."""
    around = "\n".join(text.split("\n")[max(0, mutant.line - LINES_NEAR) : mutant.line + LINES_NEAR])
    for row in EXPLAINED:
        if mutant.kind in row.kinds and re.match(row.before, mutant.before) and re.search(row.near, around):
            return row.why
    return None
