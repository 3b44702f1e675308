"""Kernels with `tcgen05` and one mistake each: changes of right ones, and what says so."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from tcgen05_kernels import Kernel, Product

from cutegen.ptx import ViolationKind

K = ViolationKind
POLICIES = ("in-order", "reversed", "random:1", "random:2", "random:3")


@dataclass(frozen=True, slots=True, kw_only=True)
class Wrong:
    """A mistake: `change` replaces words of the text of `right`, each of which it has.

    A violation of `kind` that `says` so is found in the orders `caught`, or in some of them one of `also`, which the
    mistake leads to; where `kind` is None the product is wrong.
    """

    name: str
    right: Kernel
    change: tuple[tuple[str, str], ...]
    kind: ViolationKind | None
    says: str = ""
    also: tuple[ViolationKind, ...] = ()
    caught: tuple[str, ...] = POLICIES[:3]

    @property
    def text(self) -> str:
        """The PTX with the mistake."""
        text = self.right.text()
        for old, new in self.change:
            assert old in text, (self.name, old)
            text = text.replace(old, new)
        return text


PLAIN = Product(kind="f16", m=128, n=64, a="f16", b="f16")
PAIR = Product(kind="f16", m=256, n=64, a="f16", b="f16", ctas=2)
PAIR_128 = Product(kind="f16", m=128, n=64, a="f16", b="f16", ctas=2)
HALF = Product(kind="f16", m=64, n=32, a="f16", b="f16")
COMMIT = "@%p1 tcgen05.commit.cta_group::1.mbarrier::arrive::one.shared::cluster.b64 [%r63];"
PAIR_COMMIT = (
    "@%p1 tcgen05.commit.cta_group::2.mbarrier::arrive::one.shared::cluster.multicast::cluster.b64 [%r63], %rs1;"
)
WAIT = "mbarrier.try_wait.parity.acquire.cluster.shared::cta.b64 %p5, [%r63], 0; @!%p5 bra WAIT;"
FENCE_AFTER = "    tcgen05.fence::after_thread_sync;\n// store"
FENCE_BEFORE = "    tcgen05.fence::before_thread_sync;\n    bar.sync 0;"
WAIT_LD = "tcgen05.wait::ld.sync.aligned;"
ALLOC = "tcgen05.alloc.cta_group::1.sync.aligned.shared::cta.b32 [%r63+16], 64;"
RELINQUISH = "tcgen05.relinquish_alloc_permit.cta_group::1.sync.aligned;"
DEALLOC = "@%p2 tcgen05.dealloc.cta_group::1.sync.aligned.b32 %r20, 64;"
CLUSTER = "barrier.cluster.arrive.aligned; barrier.cluster.wait.aligned;"


def wrong(
    name: str,
    kind: ViolationKind | None,
    says: str,
    *change: tuple[str, str],
    right: Kernel = PLAIN,
    also: tuple[ViolationKind, ...] = (),
) -> Wrong:
    """One row."""
    return Wrong(name=name, right=right, change=change, kind=kind, says=says, also=also)


def order() -> Iterator[Wrong]:
    """Waits, commits and fences."""
    yield wrong("no commit", K.BARRIER, "waits for", (COMMIT, ""))
    yield wrong("no wait", K.ASYNC_MMA, "no wait for a tcgen05.commit", (WAIT, ""), also=(K.UNINITIALIZED,))
    yield wrong(
        "a wait for the other parity",
        K.ASYNC_MMA,
        "tcgen05.commit",
        (", [%r63], 0;", ", [%r63], 1;"),
        also=(K.BARRIER, K.UNINITIALIZED),
    )
    yield wrong("a count of two commits", K.BARRIER, "1 of 2 arrivals", ("b64 [%r63], 1;", "b64 [%r63], 2;"))
    other = COMMIT.replace("@%p1", "setp.eq.u32 %p6, %r0, 32; @%p6")
    yield wrong("a commit of a thread that multiplied nothing", K.ASYNC_MMA, "tcgen05.mma of thread 0", (COMMIT, other))
    last = PLAIN._step(3)
    yield wrong(
        "a commit before the last mma",
        K.ASYNC_MMA,
        "tcgen05.mma of thread 0",
        (last, COMMIT),
        ("// commit\n    " + COMMIT, last),
    )
    yield wrong("no fence after the wait", K.CONVENTION, "fence::after_thread_sync", (FENCE_AFTER, "// store"))
    yield wrong("no wait for loads whose registers are used", K.CONVENTION, "no tcgen05.wait::ld", (WAIT_LD, ""))
    yield wrong(
        "a wait for loads behind the use of their registers",
        K.CONVENTION,
        "of which this instruction uses a register",
        (WAIT_LD, ""),
        (FENCE_BEFORE, f"    {WAIT_LD}\n{FENCE_BEFORE}"),
    )
    unused = "st.global.b32 [%rd7+128], %d0;"
    yield wrong(
        "no wait for a load of which one register is not used",
        K.TENSOR_MEMORY,
        "may still read",
        (WAIT_LD, ""),
        (unused, ""),
    )
    moved = "mov.b32 %r50, %d0;"
    yield wrong(
        "no wait for a load of which one register is moved alone",
        K.TENSOR_MEMORY,
        "may still read",
        (WAIT_LD, ""),
        (unused, moved),
    )
    barrier = FENCE_BEFORE.removesuffix("bar.sync 0;")
    yield wrong(
        "columns freed while other warps load",
        K.TENSOR_MEMORY,
        "frees tensor memory",
        (FENCE_BEFORE, barrier),
        also=(K.OUT_OF_BOUNDS,),
    )
    touched = "@%p3 st.shared.b32 [%r63+1024], %r0;\n" + "WAIT:"
    yield wrong("operands written before the commit", K.ASYNC_MMA, "tensor core may still read", ("WAIT:", touched))
    yield wrong("no proxy fence", K.RACE, "no fence.proxy.async", ("fence.proxy.async.shared::cta;", ""))
    yield wrong(
        "no barrier after the allocation",
        K.RACE,
        "tcgen05.alloc",
        ("ALLOCATED:\n    bar.sync 0;", "ALLOCATED:"),
        also=(K.UNINITIALIZED,),
    )
    yield wrong(
        "every lane multiplies", K.ASYNC_MMA, "tcgen05.mma of thread 0", ("@%p1 tcgen05.mma", "@%p2 tcgen05.mma")
    )


def allocation() -> Iterator[Wrong]:
    """Columns: their number, their owner, their end."""
    given = ("ld.shared.b32 %r20, [%r63+16]; add.u32", "mov.b32 %r20, 0; add.u32")
    yield Wrong(
        name="columns taken for granted",
        right=PLAIN,
        change=(given,),
        kind=K.OUT_OF_BOUNDS,
        says="is not allocated",
        caught=("reversed",),
    )
    fewer = [(text, text.replace(" 64;", " 32;")) for text in (ALLOC, DEALLOC)]
    yield wrong("too few columns", K.OUT_OF_BOUNDS, "is not allocated", *fewer, also=(K.TENSOR_MEMORY,))
    yield wrong(
        "columns that are no power of two", K.TENSOR_MEMORY, "power of two", (ALLOC, ALLOC.replace(" 64;", " 96;"))
    )
    yield wrong("fewer than 32 columns", K.TENSOR_MEMORY, "power of two", (ALLOC, ALLOC.replace(" 64;", " 16;")))
    yield wrong("an allocation without a permit", K.TENSOR_MEMORY, "relinquish", (ALLOC, RELINQUISH + ALLOC))
    yield wrong("columns never freed", K.TENSOR_MEMORY, "has not freed", (DEALLOC, ""))
    yield wrong(
        "columns freed in part", K.TENSOR_MEMORY, "64 columns are allocated", (DEALLOC, DEALLOC.replace(" 64;", " 32;"))
    )
    yield wrong("columns freed twice", K.TENSOR_MEMORY, "no tcgen05.alloc has returned", (DEALLOC, DEALLOC + DEALLOC))
    yield wrong(
        "columns freed at another address",
        K.TENSOR_MEMORY,
        "no tcgen05.alloc has returned",
        (DEALLOC, "add.u32 %r20, %r20, 32;" + DEALLOC),
    )
    yield wrong("columns freed by some lanes", K.DIVERGENCE, "all 32 lanes", (DEALLOC, DEALLOC.replace("@%p2", "@%p3")))
    yield wrong(
        "a second allocation that never fits",
        K.BARRIER,
        "columns of tensor memory",
        (RELINQUISH, ALLOC.replace(" 64;", " 512;")),
    )


def forms() -> Iterator[Wrong]:
    """Descriptors, shapes, lanes, and what D begins with."""
    yield wrong(
        "a sum that begins with what nobody wrote", K.UNINITIALIZED, "never written since", (", %p7;", ", %p0;")
    )
    idesc = f"{PLAIN.idesc():#x}"
    wider = f"{PLAIN.idesc() | 1 << 21:#x}"
    yield wrong("a product wider than its columns", K.OUT_OF_BOUNDS, "", (idesc, wider), also=(K.TENSOR_MEMORY,))
    yield wrong("an M that does not exist", K.TENSOR_MEMORY, "M is 192", (idesc, f"{PLAIN.idesc() + (4 << 24):#x}"))
    yield wrong("a sparse A", K.TENSOR_MEMORY, "sparse", (idesc, f"{PLAIN.idesc() | 4:#x}"))
    yield wrong(
        "types of another kind",
        K.TENSOR_MEMORY,
        "which kind::f16 does not have",
        (idesc, f"{PLAIN.idesc() | 2 << 7:#x}"),
    )
    yield wrong(
        "a bit that the instruction reserves",
        K.TENSOR_MEMORY,
        "bit 23, which kind::f16 reserves",
        (idesc, f"{PLAIN.idesc() | 1 << 23:#x}"),
    )
    yield wrong("an operand said to be M-major", None, "", (idesc, f"{PLAIN.idesc() | 1 << 15:#x}"))
    yield wrong("bf16 in place of f16", None, "", (idesc, f"{PLAIN.idesc() | 1 << 7:#x}"))
    rest = PLAIN.tiles()[0][0].descriptor(0)[1]
    yield wrong("a descriptor of wgmma", K.TENSOR_MEMORY, "version 0", (f"{rest:#x}", f"{rest ^ 1 << 46:#x}"))
    yield wrong("a bit that a descriptor reserves", K.TENSOR_MEMORY, "reserved", (f"{rest:#x}", f"{rest ^ 1 << 60:#x}"))
    yield wrong("another swizzle", None, "", (f"{rest:#x}", f"{rest ^ 6 << 61:#x}"))
    yield wrong(
        "32-byte atoms of 16-bit elements", K.TENSOR_MEMORY, "32-byte atoms", (f"{rest:#x}", f"{rest ^ 3 << 61:#x}")
    )
    yield wrong(
        "the lanes of warp 0 in every warp",
        K.CONVENTION,
        "upper bits of the lane",
        ("shl.b32 %r24, %r1, 21;", "mov.b32 %r24, 0;"),
    )
    yield wrong(
        "a load by some lanes",
        K.DIVERGENCE,
        "all 32 lanes",
        ("    tcgen05.ld", "    @%p3 tcgen05.ld"),
        also=(K.UNINITIALIZED,),
    )
    yield wrong("a load at lane 8", K.TENSOR_MEMORY, "multiple of 32", ("[%r24+0]", "[%r24+524288]"))
    yield wrong(
        "M of 64 at lane 8",
        K.TENSOR_MEMORY,
        "0 or 16",
        ("add.u32 %r20, %r20, 0;", "add.u32 %r20, %r20, 0x80000;"),
        right=HALF,
    )
    yield wrong("groups that differ", K.TENSOR_MEMORY, "a kernel has one", (COMMIT, COMMIT.replace("::1.", "::2.")))


def pairs() -> Iterator[Wrong]:
    """Two CTAs that multiply together."""
    both = ("or.b32 %r3, %r0, %r2;", "or.b32 %r3, %r0, %r0;")
    yield wrong("both CTAs multiply", K.ASYNC_MMA, "tcgen05.mma of thread 0", both, right=PAIR)
    alone = PAIR_COMMIT.replace(".multicast::cluster", "").replace(", %rs1", "")
    yield wrong("a commit to the leader alone", K.BARRIER, "waits for the mbarrier", (PAIR_COMMIT, alone), right=PAIR)
    yield wrong(
        "a commit beyond the cluster",
        K.OUT_OF_BOUNDS,
        "multicast mask",
        ("mov.b16 %rs1, 3;", "mov.b16 %rs1, 7;"),
        right=PAIR,
    )
    local = ("ALLOCATED:\n    " + CLUSTER, "ALLOCATED:\n    bar.sync 0;")
    early = (
        "fence.mbarrier_init.release.cluster;\n    " + CLUSTER,
        "fence.mbarrier_init.release.cluster;\n    bar.sync 0;",
    )
    yield wrong("no cluster barrier", K.RACE, "may not have begun", local, early, right=PAIR)
    alloc = "tcgen05.alloc.cta_group::2.sync.aligned.shared::cta.b32 [%r63+16], "
    yield wrong(
        "an allocation of one CTA",
        K.BARRIER,
        "the other CTA of its pair",
        (alloc, "setp.eq.u32 %p6, %r2, 0; @%p6 " + alloc),
        right=PAIR,
    )
    unlike = (alloc + "64;", "mov.u32 %r41, 64; shl.b32 %r41, %r41, %r2; " + alloc + "%r41;")
    yield wrong("allocations that differ", K.TENSOR_MEMORY, "the CTAs of a pair allocate", unlike, right=PAIR)
    yield wrong(
        "a group of one CTA in a pair's kernel",
        K.TENSOR_MEMORY,
        "a kernel has one",
        ("tcgen05.mma.cta_group::2", "tcgen05.mma.cta_group::1"),
        right=PAIR,
    )
    last = f"    {CLUSTER}\n    tcgen05.fence::after_thread_sync;\n    ld.shared.b32 %r20, [%r63+16];"
    yield wrong(
        "columns of a pair freed while the other CTA loads",
        K.TENSOR_MEMORY,
        "tcgen05.dealloc.cta_group::2",
        (last, last.replace(CLUSTER, "bar.sync 0;")),
        right=PAIR_128,
    )
    yield wrong(
        "no wait in the pair", K.ASYNC_MMA, "tcgen05.commit", (WAIT, ""), right=PAIR_128, also=(K.UNINITIALIZED,)
    )


PLAIN_WRONG = (*order(), *allocation(), *forms(), *pairs())
