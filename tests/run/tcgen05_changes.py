"""Kinds of mistakes in the PTX of kernels that multiply by `tcgen05`, each a rule for one line of the text.

A row of `HANDSHAKES` or `VALUES` finds a place on a line, and says what may stand there instead. A row of `NUMBERS`
finds a number, written or held by a register that is set once, and says which numbers may stand there instead. To add a
kind of mistake, add a row.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from functools import partial

from tests.run.ptx_mutants import Mutant, mutated

DROPPED = (
    "tcgen05.fence::before_thread_sync", "tcgen05.fence::after_thread_sync", "fence.mbarrier_init",
    "fence.proxy.async", "bar.sync", "bar.warp.sync", "barrier.cluster.arrive", "barrier.cluster.wait",
    "mbarrier.init", "mbarrier.arrive.expect_tx", "mbarrier.arrive.shared", "tcgen05.alloc", "tcgen05.dealloc",
    "tcgen05.relinquish_alloc_permit", "tcgen05.commit", "tcgen05.cp", "cp.async.bulk.tensor",
    "cp.async.bulk.commit_group", "cp.async.bulk.wait_group", "st.shared", "st.global",
)  # fmt: skip
"""Instructions that a kernel may be without, by the beginning of their names, where each is a line of its own."""
TWICE = ("mbarrier.arrive", "tcgen05.commit", "tcgen05.alloc", "tcgen05.dealloc", "cp.async.bulk.tensor", "tcgen05.cp")
"""Instructions that may be there twice."""

_OTHER = {"lt": "le", "le": "lt", "gt": "ge", "ge": "gt", "eq": "ne", "ne": "eq"}
_WAIT = r"mbarrier\.try_wait(\S+) (\w+), \[(%\w+)\], (%\w+)"
_MMA = r"(tcgen05\.mma\S+) \[(%\w+)\], (%\w+), (%\w+), (%\w+)"
_COPY = r"(cp\.async\.bulk\.tensor\S*)"


Replacement = str | Callable[[re.Match[str]], str]
HANDSHAKES: tuple[tuple[str, str, Replacement], ...] = (
    ("wait for a barrier dropped", rf"{_WAIT}[^;]*;", r"setp.eq.u32 \2, 0, 0;"),
    ("wait for the even phases", _WAIT, r"mbarrier.try_wait\1 \2, [\3], 0"),
    ("wait for the odd phases", _WAIT, r"mbarrier.try_wait\1 \2, [\3], 1"),
    ("wait at the next barrier", _WAIT, r"mbarrier.try_wait\1 \2, [\3+8], \4"),
    ("wait that acquires nothing", r"\.acquire\.cluster", ".relaxed.cluster"),
    ("wait that acquires in a CTA", r"\.acquire\.cluster", ".acquire.cta"),
    ("parity that does not turn", r"^(xor\.b32 .*), 1;", r"\1, 0;"),
    ("fence on the wrong side", r"fence::before_thread_sync", "fence::after_thread_sync"),
    ("fence on the wrong side", r"fence::after_thread_sync", "fence::before_thread_sync"),
    ("fence of another proxy's memory", r"fence\.proxy\.async\.shared::cta", "fence.proxy.async.global"),
    ("fence of barriers that is one of data", r"fence\.mbarrier_init\.release\.cluster", "fence.acq_rel.cta"),
    ("cluster's arrival that releases nothing", r"barrier\.cluster\.arrive;", "barrier.cluster.arrive.relaxed;"),
    ("wait for one group too few", r"(wait_group\S*\s+)0;", r"\g<1>1;"),
    ("barrier of a warp alone", r"bar\.sync[^;]*;", "bar.warp.sync -1;"),
    ("barrier of fewer threads", r"(bar\.sync\s+\d+), 128;", r"\1, 96;"),
    ("barrier of more threads", r"(bar\.sync\s+\d+), 128;", r"\1, 160;"),
    ("arrival that expects no bytes", r"mbarrier\.arrive\.expect_tx(\S* \S+ \[\S+\]), %\w+;", r"mbarrier.arrive\1;"),
    ("bytes expected without an arrival", r"mbarrier\.arrive\.expect_tx\.shared\.b64 \S+ (\[\S+\], %\w+;)",
     r"mbarrier.expect_tx.relaxed.cta.shared::cta.b64 \1"),
    ("arrival at another barrier", r"^(mbarrier\.arrive.*\[\S+\+)(\d+)\]", lambda x: f"{x[1]}{int(x[2]) + 8}]"),
    ("another barrier initialized", r"^(mbarrier\.init.*\[\S+\+)(\d+)\]", lambda x: f"{x[1]}{int(x[2]) + 8}]"),
    ("commit at another barrier", r"^(tcgen05\.commit\S+ \[%\w+)\]", r"\1+8]"),
    ("commit that is an arrival", r"^tcgen05\.commit\S+ \[(%\w+)\].*;", r"mbarrier.arrive.shared.b64 _, [\1];"),
    ("commit to one CTA", r"^(tcgen05\.commit\S+)\.multicast::cluster(\S+ \[%\w+\]), %\w+;", r"\1\2;"),
    ("commit to another mask", r"^(tcgen05\.commit.*), %\w+;", r"\1, 1;"),
    ("commit to another mask", r"^(tcgen05\.commit.*), %\w+;", r"\1, 2;"),
    ("permit relinquished before", r"^(tcgen05\.alloc\.cta_group::(\d).*)",
     r"tcgen05.relinquish_alloc_permit.cta_group::\2.sync.aligned; \1"),
    ("another group of CTAs", r"\.cta_group::1", ".cta_group::2"),
    ("another group of CTAs", r"\.cta_group::2", ".cta_group::1"),
    ("copy for a CTA and not for a pair", rf"^{_COPY}\.cta_group::2", r"\1"),
    ("barrier of this CTA, not of the pair's", r"^(and\.b32 .*), -16777224;", r"\1, -8;"),
    ("wait for loads of sums dropped", r"tcgen05\.wait::ld\.sync\.aligned;", ""),
    ("wait for stores of sums", r"tcgen05\.wait::ld", "tcgen05.wait::st"),
    ("copy that tells another barrier", rf"^({_COPY}.*complete_tx.*\}}\], \[%\w+)\]", r"\1+8]"),
)  # fmt: skip
"""What orders a role before another: kind, place, and what stands there instead."""
VALUES: tuple[tuple[str, str, Replacement], ...] = (
    ("multiplication dropped", r"tcgen05\.mma[^;]*;", ""),
    ("operands exchanged", _MMA, r"\1 [\2], \4, \3, \5"),
    ("sums in other columns", _MMA, r"\1 [\2+16], \3, \4, \5"),
    ("sums always added to", r"setp\.ne\.b32 add, %\w+, 0;", "setp.ne.b32 add, 1, 0;"),
    ("sums never added to", r"setp\.ne\.b32 add, %\w+, 0;", "setp.ne.b32 add, 0, 0;"),
    ("another kind of multiplication", r"kind::f16", "kind::tf32"),
    ("another kind of multiplication", r"kind::mxf4nvf4\.block_scale\.block16", "kind::mxf4.block_scale.block32"),
    ("factors of A and B exchanged", r"\[(%\w+)\], \[(%\w+)\], add", r"[\2], [\1], add"),
    ("factors of A for B", r"\[(%\w+)\], \[(%\w+)\], add", r"[\1], [\1], add"),
    ("factors of other columns", r"\[(%\w+)\], \[(%\w+)\], add", r"[\1+4], [\2], add"),
    ("factors copied to other columns", r"^(tcgen05\.cp\S+ \[%\w+)\]", r"\1+4]"),
    ("factors copied by another shape", r"32x128b\.warpx4", "128x128b"),
    ("sums of the next columns", r"^(\{ tcgen05\.ld.*\}, \[%\w+)\]", r"\1+1]"),
    ("sums of other lanes", r"^(\{ tcgen05\.ld.*\}, \[%\w+)\]", r"\1+2097152]"),
    ("coordinates exchanged", r"(?<={)([^,{}]+), ([^,{}]+), ([^{}]+)}(?=\], \[)", r"\2, \1, \3}"),
    ("coordinates exchanged", r"(?<={)([^,{}]+), ([^,{}]+), ([^{}]+)}(?=\], \[)", r"\1, \3, \2}"),
    ("coordinate of the next mode", r"(?<={)([^,{}]+), ([^,{}]+), ([^{}]+)}(?=\], \[)", r"\1, \2, \2}"),
    ("copy to other bytes", rf"^{_COPY} \[(%\w+)\+?(\d*)\], \[%",
     lambda x: f"{x[1]} [{x[2]}+{int(x[3] or 0) + 128}], [%"),
    ("copy to bytes before", rf"^{_COPY} \[(%\w+)\+(\d+)\], \[%", lambda x: f"{x[1]} [{x[2]}+{int(x[3]) - 128}], [%"),
    ("store of other bytes", rf"^({_COPY}.*bulk_group.*\}}\], \[%\w+)\+?(\d*)\]",
     lambda x: f"{x[1]}+{int(x[3] or 0) + 16}]"),
    ("every lane elected", r"^elect\.sync \S+\|(%p\d+), -1;", r"mov.pred \1, -1;"),
    ("no lane elected", r"^elect\.sync \S+\|(%p\d+), -1;", r"mov.pred \1, 0;"),
    ("comparison off by one", r"^setp\.(lt|le|gt|ge|eq|ne)\.(?=[sub])", lambda x: f"setp.{_OTHER[x[1]]}."),
    ("selection exchanged", r"^(selp\.\S+ %\w+), ([^,]+), ([^,]+), (%p\d+);", r"\1, \3, \2, \4;"),
    ("branch taken on the other condition", r"^@(%p\d+) bra", r"@!\1 bra"),
    ("branch always taken", r"^@%p\d+ bra", "bra.uni"),
    ("branch never taken", r"^@%p\d+ bra.*", ""),
    ("condition dropped", r"^@!?%p\d+ (?!bra)", ""),
    ("halves exchanged", r"^(cvt\.rn\.\w+x2\.f32 %\w+), (%\w+), (%\w+);", r"\1, \3, \2;"),
    ("vector turned around", r"\{(%\w+), (%\w+), (%\w+), (%\w+)\};$", r"{\4, \3, \2, \1};"),
    ("one of two conditions", r"^(?:and|or)\.pred (%p\d+), (%p\d+), (%p\d+);", r"mov.pred \1, \2;"),
    ("one of two conditions", r"^(?:and|or)\.pred (%p\d+), (%p\d+), (%p\d+);", r"mov.pred \1, \3;"),
    ("and for or", r"^and\.pred", "or.pred"),
    ("and for or", r"^or\.pred", "and.pred"),
    ("least for most", r"^min\.", "max."),
    ("least for most", r"^max\.", "min."),
    ("sign of a term", r"^add\.s32 (%\w+), (%\w+), (%\w+);", r"sub.s32 \1, \2, \3;"),
    ("sign of a term", r"^sub\.s32 (%\w+), (%\w+), (%\w+);", r"add.s32 \1, \2, \3;"),
)  # fmt: skip
"""What is computed, copied and stored: kind, place, and what stands there instead."""

_DESCRIPTOR = r"^or\.b64 .*, (?P<n>\d{10,});"
_ANY = r"^(?:add|sub|mul|mad|shl|shr|and|or|min|max|selp|mov|xor|shfl)\.\S+ [^\"]*?(?<![\w.%])(?P<n>-?\d{1,8})(?=[,;])"
_BITS = (3, 4, 5, 6, 7, 8, 10, 11, 13, 14, 15, 16, 17, 18, 23, 24, 25, 27, 28, 29, 30, 31)


def _flips(*bits: int) -> tuple[Callable[[int], int], ...]:
    return tuple(partial(int.__xor__, 1 << bit) for bit in bits)


NUMBERS: tuple[tuple[str, str, tuple[Callable[[int], int], ...]], ...] = (
    ("number of arrivals", r"^mbarrier\.init.*, (?P<n>%\w+);", (lambda n: n + 1, lambda n: n - 1)),
    ("bytes expected", r"^mbarrier\.arrive\.expect_tx.*, (?P<n>%\w+);", (lambda n: n + 16, lambda n: n - 16)),
    ("columns allocated", r"^tcgen05\.alloc.*, (?P<n>%\w+);", (lambda n: n // 2, lambda n: n * 2)),
    ("columns freed", r"^tcgen05\.dealloc.*, (?P<n>%\w+);", (lambda n: n // 2, lambda n: n * 2)),
    ("stride of a descriptor", _DESCRIPTOR, _flips(33, 37, 38)),
    ("leading stride of a descriptor", _DESCRIPTOR, _flips(16, 20)),
    ("version of a descriptor", _DESCRIPTOR, _flips(46)),
    ("base offset of a descriptor", _DESCRIPTOR, _flips(49)),
    ("swizzle of a descriptor", _DESCRIPTOR, _flips(61, 62, 63)),
    ("bit of an instruction", r"tcgen05\.mma\S+ \[%\w+\], %\w+, %\w+, (?P<n>%\w+)", _flips(*_BITS)),
    ("step of a descriptor", r"^add\.s64 .*, (?P<n>\d+);", (lambda n: n + 1, lambda n: n - 1, lambda _: 0)),
    ("distance of a shuffle", r"^shfl\.sync\.up\.b32 %\w+, %\w+, (?P<n>\d+),", (lambda n: n * 2, lambda n: n // 2)),
    ("number in a comparison", r"^setp\.\w+\.[sub]\d+ %p\d+, %\w+, (?P<n>-?\d+);", (lambda n: n + 1, lambda n: n - 1)),
    ("number", _ANY, (lambda n: n + 1, lambda n: n - 1)),
    ("number halved", _ANY, (lambda n: n // 2,)),
)  # fmt: skip
"""Kind, the place of a number `n`, and what may stand there instead."""


ORDER_KINDS = frozenset(
    {kind for kind, *_ in HANDSHAKES}
    | {f"{name} dropped" for name in DROPPED if not name.startswith("st.")}
    | {f"{name} twice" for name in TWICE}
    | {"number of arrivals", "bytes expected", "columns allocated", "columns freed"}
)
"""Kinds that break a handshake, or the life of tensor memory: an executor sees them whatever a kernel computes."""


def mutants(text: str) -> Iterator[Mutant]:
    """Every mistake of every kind."""
    return mutated(text, partial(_changes, constants=_constants(text), others=_others(text)))


def _constants(text: str) -> Mapping[str, int]:
    """Numbers that registers hold which are set once."""
    times = Counter(re.findall(r"^\s*(?:@\S+\s+)?[\w.:]+\s+(%\w+)[,|]", text, re.MULTILINE))
    found = re.findall(r"mov\.b(?:16|32|64)\s+(%\w+), (-?\d+);", text)
    return {name: int(number) for name, number in found if times[name] == 1}


def _others(text: str) -> Mapping[str, tuple[str, ...]]:
    """Of each tensor map the others, and of each extent: what is exchanged where one is read."""
    maps = sorted(set(re.findall(r"cvta\.param\.u64\s+%\w+, (%\w+);", text)))
    extents = re.findall(r"ld\.param\.b32\s+%\w+, (\[\w+\]);", text)
    return {each: tuple(x for x in of if x != each) for of in (maps, sorted(set(extents))) for each in of}


def _changes(
    line: str, _: list[str], constants: Mapping[str, int], others: Mapping[str, tuple[str, ...]]
) -> Iterator[tuple[str, str]]:
    if dropped := next((name for name in DROPPED if line.startswith(name)), None):
        yield f"{dropped} dropped", ""
    if twice := next((name for name in TWICE if line.startswith(name)), None):
        yield f"{twice} twice", f"{line} {line}"
    for kind, place, instead in (*HANDSHAKES, *VALUES):
        yield kind, re.sub(place, instead, line, count=1)
    for kind, place, changed in NUMBERS:
        for found in re.finditer(place, line):
            name = found["n"]
            if (number := constants.get(name) if name.startswith("%") else int(name)) is not None:
                start, end = found.span("n")
                yield from ((kind, f"{line[:start]}{change(number)}{line[end:]}") for change in changed)
    if line.startswith(("cvta.param", "ld.param.b32")):
        read = line.rstrip(";").rsplit(" ", 1)[1]
        for other in others.get(read, ()):
            yield "another parameter", line.replace(f"{read};", f"{other};")
