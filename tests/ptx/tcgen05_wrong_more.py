"""One mistake each in kernels with block factors, A in tensor memory, loads and stores, and roles."""

from __future__ import annotations

from collections.abc import Iterator

from tcgen05_more import FromTensorMemory, RoundTrip, Scaled
from tcgen05_ring import EMPTY, FULL, SUMS_EMPTY, SUMS_FULL, Ring
from tcgen05_wrong import PLAIN_WRONG, K, Wrong, wrong

MX = Scaled(kind="mxf8f6f4", m=128, n=64, a="e4m3", b="e4m3")
MX4 = Scaled(kind="mxf4", m=128, n=64, a="e2m1", b="e2m1", blocks=2)
NV = Scaled(kind="mxf4nvf4", m=128, n=64, a="e2m1", b="e2m1", blocks=4, factors="ue4m3")
SPLIT = Scaled(kind="mxf8f6f4", m=128, n=64, a="e4m3", b="e4m3", ctas=2)
STORED = FromTensorMemory(kind="f16", m=128, n=64, a="f16", b="f16", swizzles=(0, 128))
TRIP = RoundTrip(shape="16x128b", times=8, stores=True)
LOADED = RoundTrip(shape="16x128b", times=8, stores=False)
RING = Ring()
EMPTY_TILES = Ring(n=32, k_tiles=(2, 1, 0, 0, 3), ctas=1)
COMMIT = "tcgen05.commit.cta_group::1.mbarrier::arrive::one.shared::cluster.b64"
WAIT_LD, WAIT_ST = "tcgen05.wait::ld.sync.aligned;", "tcgen05.wait::st.sync.aligned;"
BEFORE, AFTER = "tcgen05.fence::before_thread_sync;", "tcgen05.fence::after_thread_sync;"


def factors() -> Iterator[Wrong]:
    """Block factors and their copies."""
    copies = MX.copies()
    last = copies[copies.rindex("    add.u32 %r40") :]
    yield wrong("no copy of B's factors", K.UNINITIALIZED, "never written since", (last, ""), right=MX)
    again = ("// commit", last + "// commit")
    yield wrong("factors copied again behind the mma that reads them", K.CONVENTION, "issued before", again, right=MX)
    fence = ("fence.proxy.async.shared::cta;", "")
    yield wrong("factors of threads without a proxy fence", K.RACE, "this tcgen05.cp", fence, right=MX)
    ids = (f"{MX.idesc((1, 1)):#x}", f"{MX.idesc((2, 2)):#x}")
    yield wrong("another factor's byte", None, "", ids, right=MX)
    odd = (f"{MX4.idesc((0, 0)):#x}", f"{MX4.idesc((1, 0)):#x}")
    yield wrong("an odd byte for two factors", K.TENSOR_MEMORY, "begin at 0 or 2", odd, right=MX4)
    kind = (f"{NV.idesc():#x}", f"{NV.idesc() | 1 << 23:#x}")
    yield wrong("factors of another type", None, "", kind, right=NV)
    reserved = (f"{MX.idesc((0, 0)):#x}", f"{MX.idesc((0, 0)) | 1 << 24:#x}")
    yield wrong("a row count below 128", K.TENSOR_MEMORY, "bit 24, which kind::mxf8f6f4 reserves", reserved, right=MX)
    wide = (".block16", ".block32")
    yield wrong("ue4m3 for blocks of 32", K.TENSOR_MEMORY, "they take 4", wide, right=NV)
    swapped = ("[%r42], [%r43]", "[%r43], [%r42]")
    yield wrong("A's factors for B's", None, "", swapped, right=MX)
    quarters = ("32x128b.warpx4", "64x128b.warpx2::01_23")
    yield wrong("factors of 64 rows of 32", K.OUT_OF_BOUNDS, "16-byte access", quarters, right=MX)
    same = ("64x128b.warpx2::01_23", "32x128b.warpx4")
    yield wrong("one half's factors for both", None, "", same, right=SPLIT)
    lane = ("add.u32 %r42, %r20,", "or.b32 %r42, %r20, 0x10000; add.u32 %r42, %r42,")
    yield wrong("factors at lane 1", K.TENSOR_MEMORY, "expected lane 0", lane, right=MX)
    first = copies[copies.index("%r40, %r63, ") : copies.index("; shr.u32 %r40")]
    moved = (first, f"%r40, %r63, {int(first.rsplit(' ', 1)[1]) + 16}")
    yield wrong("factors from 16 bytes further on", None, "", moved, right=MX)
    swizzled = ("or.b64 %rd12, %rd12, 0x400800000000", "or.b64 %rd12, %rd12, 0x4000400800000000")
    yield wrong("a swizzled copy of factors", K.OUT_OF_BOUNDS, "16-byte access", swizzled, right=MX)


def stored() -> Iterator[Wrong]:
    """A in tensor memory."""
    yield wrong("no wait for stores", K.TENSOR_MEMORY, "may still write", (WAIT_ST, ""), right=STORED)
    other = (WAIT_ST, WAIT_LD)
    yield wrong("a wait for loads after stores", K.TENSOR_MEMORY, "may still write", other, right=STORED)
    meet = f"{BEFORE}\n    bar.sync 0;\n    {AFTER}\n    add"
    yield wrong(
        "no fence before the barrier",
        K.CONVENTION,
        "before_thread_sync",
        (meet, meet.replace(BEFORE, "")),
        right=STORED,
    )
    yield wrong(
        "no fence behind the barrier", K.CONVENTION, "after_thread_sync", (meet, meet.replace(AFTER, "")), right=STORED
    )
    alone = (meet, meet.replace("bar.sync 0;", ""))
    yield wrong(
        "no barrier behind the stores", K.TENSOR_MEMORY, "may still write", alone, right=STORED, also=(K.UNINITIALIZED,)
    )
    yield wrong(
        "A where D is", K.UNINITIALIZED, "", ("add.u32 %r44, %r20, 64;", "add.u32 %r44, %r20, 0;"), right=STORED
    )
    yield wrong(
        "A at lane 16",
        K.TENSOR_MEMORY,
        "expected 0",
        ("add.u32 %r44, %r20, 64;", "add.u32 %r44, %r20, 0x100040;"),
        right=STORED,
    )
    yield wrong(
        "A that is not K-major",
        K.TENSOR_MEMORY,
        "not K-major",
        (f"{STORED.idesc():#x}", f"{STORED.idesc() | 1 << 15:#x}"),
        right=STORED,
    )
    yield wrong("A of the step before", None, "", ("add.u32 %r44, %r20, 80;", "add.u32 %r44, %r20, 72;"), right=STORED)
    beyond = "tcgen05.st.sync.aligned.32x32b.x8.b32 [%r24+88]"
    yield wrong(
        "a store beyond the columns", K.OUT_OF_BOUNDS, "", (beyond, beyond.replace("+88", "+128")), right=STORED
    )


def trips() -> Iterator[Wrong]:
    """Loads and stores."""
    text = TRIP.text()
    first = text[text.index("    tcgen05.st.sync.aligned.32x32b") :]
    first = first[: first.index(WAIT_ST) + len(WAIT_ST)]
    unwaited = (first, first.removesuffix(WAIT_ST))
    yield wrong("two stores to one place", K.CONVENTION, "issued before", unwaited, right=TRIP)
    last = f"{WAIT_ST}\n    tcgen05.ld"
    yield wrong("a load behind a store", K.TENSOR_MEMORY, "may still write", (last, "tcgen05.ld"), right=TRIP)
    lane = ("[%r24+1048576]", "[%r24+524288]")
    yield wrong("a store at lane 8", K.TENSOR_MEMORY, "multiple of 16", lane, right=TRIP)
    over = f"tcgen05.st.sync.aligned.32x32b.x1.b32 [%r24], {{%d63}};\n    {WAIT_LD}"
    yield wrong("a store onto a load in flight", K.TENSOR_MEMORY, "may still read", (WAIT_LD, over), right=LOADED)
    narrow = LOADED.text()
    begin = narrow.index("    tcgen05.st.sync")
    whole = narrow[begin : narrow.index(";", begin) + 1]
    yield wrong("a load of what nobody stored", K.UNINITIALIZED, "never written since", (whole, ""), right=LOADED)
    unlike = (
        "shl.b32 %r24, %r1, 21; add.u32 %r24, %r24, %r20;",
        "shl.b32 %r24, %r1, 21; add.u32 %r24, %r24, %r20; add.u32 %r24, %r24, %r0;",
    )
    yield wrong("an address of each lane's own", K.DIVERGENCE, "differs between lanes", unlike, right=LOADED)
    packed = (".16x128b.x8.b32", ".16x128b.x8.pack::16b.b32")
    yield wrong("a packed load of whole words", None, "", packed, right=LOADED, also=(K.UNINITIALIZED,))


def roles() -> Iterator[Wrong]:
    """The persistent kernel: its pipelines, its tiles, its accumulators."""
    yield wrong(
        "sums released while their loads are in flight", K.TENSOR_MEMORY, "may still read", (WAIT_LD, ""), right=RING
    )
    other = (WAIT_LD, WAIT_ST)
    yield wrong("a wait for stores after loads", K.TENSOR_MEMORY, "may still read", other, right=RING)
    text = RING.text()
    stores = text[
        text.index("    st.global.b32 [%rd7+0]") : text.index(
            "    add.u32 %r6, %r6, 1; add.u32 %r2, %r2, %r62; bra STORE;"
        )
    ]
    address = text[text.index("    shl.b32 %r21, %r2, 7;") : text.index("    st.global.b32 [%rd7+0]")]
    early = ((WAIT_LD, ""), (stores, ""), (address, ""), ("S_RELEASE:\n", "S_RELEASE:\n" + address + stores))
    yield wrong("sums released after their use without a wait", K.CONVENTION, "no tcgen05.wait::ld", *early, right=RING)
    zero = "setp.eq.u32 %p4, %r4, 0; @%p4 bra S_ZERO;"
    yield wrong("a tile without k-tiles stores old sums", None, "", (zero, ""), right=EMPTY_TILES)
    free = f"{COMMIT} [%r9+{EMPTY}];"
    arrive = f"mbarrier.arrive.shared.b64 _, [%r9+{EMPTY}];"
    yield wrong("a stage released by an arrival", K.ASYNC_MMA, "tensor core may still read", (free, arrive), right=RING)
    yield wrong("a stage never released", K.BARRIER, "waits for the mbarrier", (free, ""), right=RING)
    waits = {
        name: text[text.index(f"{name}: mbarrier") : text.index(f"bra {name};") + len(f"bra {name};")]
        for name in ("P_WAIT", "M_WAIT", "M_FULL", "S_WAIT")
    }
    yield wrong("a stage loaded while it is in use", K.BARRIER, "arrival", (waits["P_WAIT"], ""), right=RING)
    yield wrong(
        "sums overwritten before they are loaded", K.TENSOR_MEMORY, "may still read", (waits["M_WAIT"], ""), right=RING
    )
    yield wrong(
        "operands that have not landed",
        K.ASYNC_COPY,
        "bulk copy",
        (waits["M_FULL"], ""),
        right=RING,
        also=(K.UNINITIALIZED,),
    )
    yield wrong("sums that are not complete", K.UNINITIALIZED, "never written", (waits["S_WAIT"], ""), right=RING)
    twice = (f", {RING.stage_bytes};\n    mul", f", {2 * RING.stage_bytes};\n    mul")
    yield wrong("twice the bytes expected", K.BARRIER, "tx-count", twice, right=RING)
    yield wrong(
        "a phase that never was",
        K.BARRIER,
        "waits for",
        ("xor.b32 %r8, %r8, 1;\n    shl.b32 %r9", "shl.b32 %r9"),
        right=RING,
    )
    warps = (f"[%r63+{SUMS_EMPTY}], 128;", f"[%r63+{SUMS_EMPTY}], 4;")
    yield wrong("a count of warps for arrivals of threads", K.BARRIER, "", warps, right=RING)
    half = ("mul.lo.u32 %r17, %r15, 64;", "mul.lo.u32 %r17, %r15, 32;")
    yield wrong("accumulators that overlap", K.ASYNC_MMA, "may still write", half, right=RING)
    yield wrong(
        "a first sum that adds",
        K.UNINITIALIZED,
        "never written",
        ("setp.ne.b32 %p6, %r0, %r0;", "setp.eq.b32 %p6, %r0, %r0;"),
        right=RING,
    )
    other = (
        "and.b32 %r7, %r5, 1; shr.u32 %r8, %r5, 1; and.b32 %r8, %r8, 1; shl.b32 %r9, %r7, 3;",
        "and.b32 %r7, %r5, 1; shr.u32 %r8, %r5, 1; and.b32 %r8, %r8, 1; shl.b32 %r9, %r7, 3; xor.b32 %r7, %r7, 1;",
    )
    yield wrong(
        "the operands of the other stage", K.ASYNC_COPY, "bulk copy", other, right=RING, also=(K.UNINITIALIZED,)
    )
    done = f"{BEFORE}\n    bar.sync 0;\n    {AFTER}\n    @%p2 tcgen05.dealloc"
    yield wrong(
        "columns freed before the last loads",
        K.TENSOR_MEMORY,
        "frees",
        (done, "@%p2 tcgen05.dealloc"),
        right=RING,
        also=(K.OUT_OF_BOUNDS, K.ASYNC_MMA),
    )
    release = f"S_RELEASE:\n    {BEFORE}"
    yield wrong("no fence before the release", K.CONVENTION, "before_thread_sync", (release, "S_RELEASE:"), right=RING)
    fence = (f"bra S_WAIT;\n    {AFTER}", "bra S_WAIT;")
    yield wrong("no fence behind the wait for sums", K.CONVENTION, "after_thread_sync", fence, right=RING)
    full = f"{COMMIT} [%r16+{SUMS_FULL}];"
    yield wrong("sums never complete", K.BARRIER, "waits for the mbarrier", (full, ""), right=RING)
    sums = (f"{COMMIT} [%r16+{SUMS_FULL}];", f"mbarrier.arrive.shared.b64 _, [%r16+{SUMS_FULL}];")
    yield wrong("sums said to be complete by an arrival", K.ASYNC_MMA, "tcgen05.commit", sums, right=RING)
    assert FULL == 0, "the producer's mbarriers come first"


WRONG = (*PLAIN_WRONG, *factors(), *stored(), *trips(), *roles())
