"""cp.async that arrive at mbarriers, bulk copies of runs of bytes, bulk reductions: results, and wrong twins."""

from __future__ import annotations

import numpy as np
import pytest
from bulk_kernels import READY, expect, wait
from kernels import cuda_program, kernel

from cutegen.errors import PtxSyntaxError
from cutegen.ptx import ExecutionFault, Program, ViolationKind

POLICIES = ("in-order", "reversed", "random:1", "random:2", "random:3")
K = ViolationKind
TEXT = cuda_program("async_copies").text
EVERY_POLICY = pytest.mark.parametrize("policy", POLICIES)


def sum_of_tiles(text: str, policy: str) -> None:
    tiles = np.random.default_rng(2).integers(-9, 9, (7, 128, 4)).astype(np.float32)
    sums = np.full((128, 4), np.nan, np.float32)
    Program.parse(text).launch("sum_of_tiles", grid=1, block=128, args=[tiles, sums, 7], policy=policy)
    assert (sums == tiles.sum(axis=0)[::-1]).all()


def mirror(text: str, policy: str) -> None:
    tile = np.arange(512, dtype=np.float32).reshape(128, 4)
    out = np.full((128, 4), np.nan, np.float32)
    Program.parse(text).launch("mirror", grid=1, block=128, args=[tile, out], policy=policy)
    assert (out == tile[::-1]).all()


def scale_rows(text: str, policy: str) -> None:
    rows = np.random.default_rng(4).integers(-9, 9, (3, 256)).astype(np.float32)
    out = np.full_like(rows, np.nan)
    Program.parse(text).launch("scale_rows", grid=3, block=64, args=[rows, out, 2.0], policy=policy)
    assert (out == 2 * rows).all()


def add_scaled_rows(text: str, policy: str) -> None:
    rows = np.random.default_rng(4).integers(-9, 9, (5, 256)).astype(np.float32)
    total = np.ones(256, np.float32)
    Program.parse(text).launch("add_scaled_rows", grid=5, block=64, args=[rows, total, 2.0], policy=policy)
    assert (total == 1 + 2 * rows.sum(axis=0)).all()


@EVERY_POLICY
@pytest.mark.parametrize("run", [sum_of_tiles, mirror, scale_rows, add_scaled_rows], ids=lambda run: run.__name__)
def test_the_right_ones_run(run: object, policy: str) -> None:
    run(TEXT, policy)  # type: ignore[operator]


NOINC, COUNTING = "cp.async.mbarrier.arrive.noinc.shared.b64", "cp.async.mbarrier.arrive.shared.b64"
STORE = "cp.async.bulk.global.shared::cta.bulk_group"
LOAD = "cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%r10], [%rd4], %r11"
READ_WAIT = "cp.async.bulk.wait_group.read 0;"
EXPECT = "mbarrier.arrive.expect_tx.shared.b64 _, [%r5], %r11;"
MISTAKES = [
    ("an ordinary arrival in place of one that waits for the copies", sum_of_tiles,
     (NOINC, "mbarrier.arrive.shared.b64 _,"), {K.ASYNC_COPY}),
    ("arrivals that the phase does not expect", sum_of_tiles, (NOINC, COUNTING), {K.BARRIER}),
    ("no arrival for the copies", mirror, (f"{COUNTING} [%r5];", ""), {K.ASYNC_COPY}),
    ("an arrival that counts twice", mirror, (COUNTING, NOINC), {K.BARRIER, K.ASYNC_COPY, K.UNINITIALIZED}),
    ("no wait for the copies", mirror, ("@!done bra again;", ""), {K.ASYNC_COPY, K.UNINITIALIZED}),
    ("no wait for a run of bytes", scale_rows, ("@!done bra again;", ""), {K.ASYNC_COPY}),
    ("too many bytes expected", scale_rows, (EXPECT, "add.u32 %r6, %r11, 16; " + EXPECT.replace("%r11", "%r6")),
     {K.BARRIER}),
    ("a run of too few bytes", scale_rows, (LOAD, LOAD.replace("%r11", "1008")), {K.BARRIER}),
    ("a run of no multiple of 16 bytes", scale_rows, (LOAD, LOAD.replace("%r11", "1020")), {K.MISALIGNED}),
    ("a source of no multiple of 16 bytes", scale_rows, (LOAD, LOAD.replace("%rd4", "%rd4+4")), {K.MISALIGNED}),
    ("a destination of no multiple of 16 bytes", scale_rows, (LOAD, LOAD.replace("%r10", "%r10+8")), {K.MISALIGNED}),
    ("a run past the array's end", scale_rows, (LOAD, LOAD.replace("%rd4", "%rd4+16")), {K.OUT_OF_BOUNDS}),
    ("a prefetch past the array's end", scale_rows, ("L2.global [%rd4]", "L2.global [%rd4+16]"), {K.OUT_OF_BOUNDS}),
    ("no fence between a write and a store of it", scale_rows, ("fence.proxy.async.shared::cta;", ""), {K.RACE}),
    ("a store past the array's end", scale_rows, (f"{STORE} [%rd6]", f"{STORE} [%rd6+1024]"), {K.OUT_OF_BOUNDS}),
    ("an exit before the store has read its bytes", scale_rows, (READ_WAIT, ""), {K.ASYNC_COPY}),
    ("stores of blocks in place of sums", add_scaled_rows,
     ("cp.reduce.async.bulk.global.shared::cta.bulk_group.add.f32", STORE), {K.RACE}),
]  # fmt: skip


@EVERY_POLICY
@pytest.mark.parametrize(("name", "run", "change", "kinds"), MISTAKES, ids=[row[0] for row in MISTAKES])
def test_the_wrong_ones_are_caught(
    name: str, run: object, change: tuple[str, str], kinds: set[ViolationKind], policy: str
) -> None:
    assert change[0] in TEXT
    with pytest.raises(ExecutionFault) as caught:
        run(TEXT.replace(*change), policy)  # type: ignore[operator]
    assert caught.value.violation.kind in kinds


COPY = (
    "shl.b32 %r6, %r0, 4; add.u32 %r6, %r6, %r4; shl.b32 %r7, %r0, 4; cvt.u64.u32 %rd2, %r7; add.s64 %rd2, %rd3, %rd2;"
)
COPY += "cp.async.cg.shared.global [%r6], [%rd2], 16;"
COMPLETE = "mbarrier::complete_tx::bytes"
ARRIVE = "cp.async.mbarrier.arrive.noinc.shared.b64 [%r5];"


def copy_and(body: str, *, arrivals: int = 32, more: str = "") -> str:
    """32 threads copy 16 bytes each of `words`, then do `body`; thread 0 may store them by a bulk copy."""
    start = READY.replace("[%r5], 1;", f"[%r5], {arrivals};") + "ld.param.u64 %rd3, [words];" + COPY
    return kernel(start + more + body, shared_bytes=16384, parameters=".param .u64 out, .param .u64 words").replace(
        "sm_80", "sm_90a"
    )


BULK = "@%p0 cp.async.bulk.global.shared::cta.bulk_group [%rd0], [%r4], 512; @%p0 cp.async.bulk.commit_group;"
BULK += "@%p0 cp.async.bulk.wait_group 0; ret;"


def run_copy(text: str, policy: str) -> np.ndarray:
    words, out = np.arange(128, dtype=np.uint32), np.zeros(128, np.uint32)
    Program.parse(text).launch("k", grid=1, block=32, args=[out, words], policy=policy, max_steps=20_000)
    return out


@EVERY_POLICY
def test_a_cp_async_is_in_the_generic_proxy(policy: str) -> None:
    """An mbarrier orders it, and a bulk copy of its bytes needs a fence on top, as after an ordinary store."""
    fence = "fence.proxy.async.shared::cta;"
    assert (run_copy(copy_and(ARRIVE + wait() + fence + BULK), policy) == np.arange(128)).all()
    with pytest.raises(ExecutionFault, match=r"no fence\.proxy\.async between the write"):
        run_copy(copy_and(ARRIVE + wait() + BULK), policy)


OWN, OTHER = "ld.shared.u32 %r3, [%r6];", "xor.b32 %r6, %r6, 16; ld.shared.u32 %r3, [%r6];"


@EVERY_POLICY
def test_a_wait_for_the_group_is_enough_for_ones_own_bytes(policy: str) -> None:
    group = "cp.async.commit_group; cp.async.wait_group 0;"
    assert run_copy(copy_and(ARRIVE + OWN, more=group), policy)[1] == 4
    assert run_copy(copy_and(group + OWN, more=ARRIVE), policy)[1] == 4
    assert run_copy(copy_and(wait() + OTHER, more=ARRIVE), policy)[1] == 0
    assert run_copy(copy_and(wait() + OTHER, more=ARRIVE + group), policy)[1] == 0


@pytest.mark.parametrize("policy", [policy for policy in POLICIES if policy != "in-order"])
def test_a_wait_for_the_group_is_not_enough_for_the_bytes_of_others(policy: str) -> None:
    """Under `in-order` the copies have landed at the mbarrier, one clock for all of its bytes."""
    group = "cp.async.commit_group; cp.async.wait_group 0;"
    with pytest.raises(ExecutionFault, match=r"read without a barrier|has not been waited for|without a wait"):
        run_copy(copy_and(group + OTHER, more=ARRIVE), policy)


@EVERY_POLICY
def test_an_arrival_waits_for_all_earlier_copies_of_its_thread(policy: str) -> None:
    """Copies of which an mbarrier was told before are there too once a second one completes."""
    second = "add.s32 %r9, %r5, -8; @%p0 mbarrier.init.shared.b64 [%r9], 32; bar.sync 0;"
    body = second + ARRIVE + ARRIVE.replace("%r5", "%r9") + wait().replace("%r5", "%r9") + OTHER
    assert run_copy(copy_and(body), policy)[1] == 0


@EVERY_POLICY
def test_the_source_may_not_be_written_before_the_copy_has_landed(policy: str) -> None:
    write = "st.global.u32 [%rd2], %r0;"
    run_copy(copy_and(wait() + write + OWN, more=ARRIVE), policy)
    if policy != "in-order":
        with pytest.raises(ExecutionFault, match="may still be reading"):
            run_copy(copy_and(write + wait() + OWN, more=ARRIVE), policy)


@pytest.mark.parametrize(
    ("instruction", "message"),
    [
        ("cp.async.mbarrier.noinc.shared.b64 [%r5];", "expected one of .arrive"),
        ("cp.async.mbarrier.arrive.shared::cluster.b64 [%r5];", "shared::cluster is not supported"),
        ("cp.async.mbarrier.arrive.b64 [%r5], 1;", "expected 1 operand"),
        ("cp.reduce.async.bulk.global.shared::cta.bulk_group.add.f16 [%rd0], [%r4], 16;", "noftz"),
        ("cp.reduce.async.bulk.global.shared::cta.bulk_group.min.f32 [%rd0], [%r4], 16;", "type .f32 is not supported"),
        (f"cp.reduce.async.bulk.shared::cluster.shared::cta.{COMPLETE}.add.u32 [%r4], [%r4], 16, [%r5];",
         "expected a bulk reduction to .global"),
        ("cp.reduce.async [%rd0], [%r4], 16;", "expected cp.reduce.async.bulk"),
        ("cp.async.bulk.global.shared::cta.bulk_group.cp_mask [%rd0], [%r4], 16, %h0;", "cp_mask are not supported"),
        ("cp.async.bulk.global.global.bulk_group [%rd0], [%r4], 16;", "expected a bulk copy"),
    ],
)  # fmt: skip
def test_other_forms_are_refused(instruction: str, message: str) -> None:
    with pytest.raises(PtxSyntaxError, match=message.replace(".", r"\.")):
        Program.parse(copy_and(instruction)).prepare("k")


@EVERY_POLICY
@pytest.mark.parametrize(
    ("form", "dtype", "there", "added", "left"),
    [
        ("add.noftz.f16", np.float16, 1.5, 2, 3.5),
        ("min.s32", np.int32, 3, -4, -4),
        ("max.u64", np.uint64, 3, 1 << 63, 1 << 63),
        ("or.b32", np.uint32, 5, 10, 15),
        ("inc.u32", np.uint32, 7, 7, 0),
        ("add.f64", np.float64, 1, 0.5, 1.5),
    ],
)
def test_bulk_reductions(form: str, dtype: type, there: float, added: float, left: float, policy: str) -> None:
    bits = int.from_bytes(np.array(added, dtype).tobytes() * (8 // np.dtype(dtype).itemsize), "little")
    body = f"mov.b64 %rd2, {bits}; shl.b32 %r6, %r0, 3; add.u32 %r6, %r6, %r4; st.shared.b64 [%r6], %rd2;"
    body = READY + body + "fence.proxy.async; bar.sync 0;" + expect(0)
    store = BULK.replace(
        "cp.async.bulk.global.shared::cta.bulk_group", f"cp.reduce.async.bulk.global.shared::cta.bulk_group.{form}"
    )
    out = np.full(256 // np.dtype(dtype).itemsize, there, dtype)
    text = kernel(body + store.replace("512", "256"), shared_bytes=16384).replace("sm_80", "sm_90a")
    Program.parse(text).launch("k", grid=1, block=32, args=[out], policy=policy)
    assert (out == dtype(left)).all()


@EVERY_POLICY
def test_reductions_of_blocks_do_not_race_after_they_were_waited_for(policy: str) -> None:
    add_scaled_rows(TEXT.replace(READ_WAIT, "cp.async.bulk.wait_group 0;"), policy)


@EVERY_POLICY
def test_a_run_of_bytes_may_signal_an_mbarrier_whose_init_was_not_fenced(policy: str) -> None:
    """As in cuda::memcpy_async with a cuda::barrier: a convention, if a barrier of the CTA comes between."""
    unfenced = TEXT.replace("fence.mbarrier_init.release.cluster;", "")
    scale_rows(unfenced, policy)
    rows = np.ones((1, 256), np.float32)
    args = [rows, np.zeros_like(rows), 2.0]
    found = Program.parse(unfenced).launch("scale_rows", grid=1, block=64, args=args, policy=policy).conventions
    assert [each.instruction.split()[0] for each in found] == [LOAD.split()[0]]
    assert "no fence.mbarrier_init or fence.proxy.async" in found[0].message
    assert not Program.parse(TEXT).launch("scale_rows", grid=1, block=64, args=args, policy=policy).conventions
