"""Mutants of family sm100's kernels that nothing shows, and why.

What stands in their place is the same for every launch, or has no effect, or differs where no small problem comes.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from tests.run.ptx_mutants import Mutant

LABEL = re.compile(r"^\$\w+:", re.MULTILINE)


@dataclass(frozen=True, slots=True)
class Survivors:
    """Mutants of some `kinds`, on a line that begins with `before`, and why they may survive.

    The block of the line, from one label to the next, has `beside`, the lines around, from three before to two
    after, have `near`, and the text has `somewhere`: patterns all.
    """

    kinds: tuple[str, ...]
    before: str
    why: str
    beside: str = ""
    near: str = ""
    somewhere: str = ""


_BEFORE, _AFTER = "tcgen05.fence::before_thread_sync", "tcgen05.fence::after_thread_sync"
_FENCES = (f"{_BEFORE} dropped", f"{_AFTER} dropped", "fence on the wrong side")
_LOGIC = ("and for or", "one of two conditions")
_NUMBERS = ("number in a comparison", "comparison off by one", "number", "number halved")
_BRANCHES = ("branch always taken", "branch taken on the other condition", "branch never taken")
_CHOICES = (*_NUMBERS, "selection exchanged", "sign of a term", "branch always taken", "branch never taken")

EXPLAINED: tuple[Survivors, ...] = (
    Survivors(
        _FENCES,
        "tcgen05.fence",
        "at the begin nothing asynchronous has been issued, and what comes next is behind a fence of its own",
        r"bar\.sync\s+0;",
    ),
    Survivors(
        _FENCES,
        "tcgen05.fence",
        "at the end tcgen05.dealloc is no asynchronous operation, and the loads before it are complete and ordered",
        r"tcgen05\.dealloc",
    ),
    Survivors(
        _FENCES,
        _AFTER,
        "the fence behind the next wait, for a full stage, comes before every multiplication too",
        r"(?s)\A(?!.*tcgen05\.(ld|mma|dealloc)).*try_wait",
    ),
    Survivors(
        _FENCES,
        _AFTER,
        "the wait is for bytes in shared memory, which its barrier orders; a fence orders tensor memory, and the one "
        "behind the wait for an empty buffer does",
        r"tcgen05\.mma",
    ),
    Survivors(("tcgen05.relinquish_alloc_permit dropped",), "", "one CTA is on an SM: no other waits to allocate"),
    Survivors(
        ("cluster's arrival that releases nothing",),
        "",
        "fence.mbarrier_init.release.cluster releases what the others need: the barriers",
        r"(?s)fence\.mbarrier_init|\A(?!.*dealloc)",
    ),
    Survivors(
        ("fence.mbarrier_init dropped", "fence of barriers that is one of data"),
        "fence.mbarrier_init",
        "the warp that copies executes fence.proxy.async before its first copy, which orders the barriers too",
        somewhere=r"fence\.proxy\.async\.shared::cta;\s+elect\.sync(?:[^;:]*;){4}\s+mbarrier\.arrive\.expect_tx",
    ),
    Survivors(
        ("sums always added to",),
        "",
        "the predicate of every k-block but the first is the number 1",
        r"tcgen05\.mma",
    ),
    Survivors(
        ("leading stride of a descriptor",),
        "",
        "not read: a swizzled row of K holds all chunks of an instruction, and a row of factors is one chunk",
    ),
    Survivors(
        ("base offset of a descriptor",), "or.b64 .*, 70403103981568;", "it shifts a swizzle, and factors have none"
    ),
    Survivors(("another parameter",), "cvta.param", "a prefetch of a tensor map changes no value", "prefetch"),
    Survivors(
        ("number", "number halved"), r"mov\.b64 %rd\d+, 0;", "a cache policy changes no value", r"L2::cache_hint"
    ),
    Survivors(
        _LOGIC, "or.pred", "a short cut of the order of tiles: the long way gives the same", r"setp\.lt\.s32 .*, 2;"
    ),
    Survivors(
        ("one of two conditions",),
        "and.pred",
        "a quotient is rounded up where it has a remainder and is positive: no extent is negative",
        near=r"setp\.(gt\.s32 .*, -1|lt\.s32 .*, 0);\s+(and|or)\.pred.*\s+selp",
    ),
    Survivors(
        _LOGIC,
        "and.pred",
        "where groups are along M, the warp that multiplies needs to know only that its tile is in one of them",
        near=r"add\.s32 .*, 32;\s+setp\.lt.*\s+and\.pred",
    ),
    Survivors(
        ("number in a comparison", "comparison off by one"),
        r"setp\.(gt\.s32 .*, -1|lt\.s32 .*, 0);",
        "a quotient is rounded up where it has a remainder and is positive: no extent is negative, and 0 has none",
    ),
    Survivors(
        ("sign of a term", *_NUMBERS),
        r"(shr\.[su]32|add\.s32|sub\.s32) ",
        "a remainder by 4 of a place that counts from 0 to 3, and is not negative: what is subtracted is 0",
        near=r"and\.b32\s+%r\d+, %r\d+, 1073741820;",
    ),
    Survivors(
        _CHOICES,
        "",
        "a quotient of numbers from 2^21 on, in two steps: no small problem has so many tiles",
        "0f3F7FFFF8",
    ),
    Survivors(
        (*_NUMBERS, *_BRANCHES),
        r"(setp\.gt\.s32 .*, 2097151;|@%p\d+ bra)",
        "below 2^21 the way of larger numbers gives the same quotient",
        ", 2097151;",
    ),
    Survivors(
        (*_NUMBERS, *_BRANCHES),
        r"(setp\.ne\.b32 .*, 1;|@%p\d+ bra)",
        "any warp, or none, may prefetch tensor maps",
        "prefetch",
    ),
    Survivors(
        ("selection exchanged", "parity that does not turn", "wait for a barrier dropped", *_NUMBERS),
        "",
        "the warp that multiplies waits for both buffers, and at the end for the cluster, whose warps come later still",
        r"(?s)\A(?=.*try_wait)(?=.*mov\.pred\s+%p\d+, 0;)(?!.*tcgen05)",
    ),
)


def reason(text: str, mutant: Mutant) -> str | None:
    """Why a mutant of a kernel's text may survive, or None if it is not known to."""
    block = block_of(text, mutant.line)
    around = "\n".join(text.split("\n")[max(0, mutant.line - 4) : mutant.line + 2])
    for row in EXPLAINED:
        places = (row.beside, block), (row.near, around), (row.somewhere, text)
        if mutant.kind in row.kinds and re.match(row.before, mutant.before) and all(re.search(*x) for x in places):
            return row.why
    return None


def block_of(text: str, line: int) -> str:
    """The lines from one label to the next that have `line`, from 1."""
    lines = text.split("\n")
    before = sum(len(each) + 1 for each in lines[: line - 1])
    begin = max((found.start() for found in LABEL.finditer(text, 0, before + 1)), default=0)
    after = LABEL.search(text, before + 1)
    return text[begin : after.start() if after else len(text)]
