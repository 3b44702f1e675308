"""Bulk tensor copies: where a box's bytes go, what lies outside of the tensor, and what must be ordered around them."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from bulk_kernels import POLICIES, READY, SMEM_BYTES, dump, expect, fault, launch, load, store, wait
from kernels import kernel

from cutegen.errors import PtxSyntaxError
from cutegen.ptx import ExecutionFault, LaunchError, LaunchReport, Program, TensorMap, ViolationKind

Array = np.ndarray[Any, Any]


def matrix_map(array: Array, box: tuple[int, int], swizzle_bytes: int = 0) -> TensorMap:
    """The map of a row-major matrix."""
    rows, columns = array.shape
    strides = (array.strides[0],)
    return TensorMap(array=array, extents=(columns, rows), strides_bytes=strides, box=box, swizzle_bytes=swizzle_bytes)


def words(rng: np.random.Generator, rows: int, columns: int) -> Array:
    return rng.integers(1, 1 << 16, (rows, columns)).astype(np.uint16)


def loaded(tensor_map: TensorMap, corner: tuple[int, ...], policy: str = "in-order", *, to: int = 0) -> Array:
    """The shared memory that one load leaves behind, from byte `to` on."""
    size = tensor_map.box_bytes
    body = READY + expect(size) + load(corner, to=to) + wait() + f"add.s32 %r4, %r4, {to};" + dump(size)
    result: Array = launch(body, tensor_map, out_bytes=size, policy=policy)[0]
    return result


# PTX ISA, "Swizzling modes": rows of 128, 64 and 32 bytes; in which 16-byte chunk of its row chunk c of row r lies.
PATTERNS = {
    128: lambda r, c: c ^ r % 8,
    64: lambda r, c: c ^ r // 2 % 4,
    32: lambda r, c: c ^ r // 4 % 2,
    0: lambda r, c: c,
}


@pytest.mark.parametrize("policy", POLICIES)
@pytest.mark.parametrize("swizzle_bytes", PATTERNS)
def test_each_swizzle_moves_chunks_as_the_isa_draws_it(swizzle_bytes: int, policy: str) -> None:
    array = words(np.random.default_rng(swizzle_bytes), 40, 72)
    columns = (swizzle_bytes or 48) // 2
    box = array[5:37, 8 : 8 + columns]
    chunks = box.copy().view("V16").reshape(32, -1)
    expected = np.zeros_like(chunks)
    for r in range(32):
        for c in range(chunks.shape[1]):
            expected[r, PATTERNS[swizzle_bytes](r, c)] = chunks[r, c]
    got = loaded(matrix_map(array, (columns, 32), swizzle_bytes), (8, 5), policy)
    assert got.tobytes() == expected.tobytes()


def test_a_swizzle_goes_by_addresses_not_by_rows_of_the_box() -> None:
    array = words(np.random.default_rng(0), 8, 64)
    got = loaded(matrix_map(array, (64, 8), 128), (0, 0), to=384).view("V16").reshape(8, 8)
    chunks = array.view("V16").reshape(8, 8)
    for r in range(8):
        for c in range(8):
            assert got[r, c ^ (r + 3) % 8].tobytes() == chunks[r, c].tobytes()


@pytest.mark.parametrize("policy", POLICIES)
@pytest.mark.parametrize("corner", [(-8, 0), (-8, -5), (24, 10), (32, -1), (16, 18), (40, 0), (0, -16), (-104, 3)])
def test_what_is_outside_of_the_tensor_is_zero(corner: tuple[int, int], policy: str) -> None:
    array = words(np.random.default_rng(1), 20, 40)
    padded = np.zeros((20 + 256, 40 + 256), np.uint16)
    padded[128:148, 128:168] = array
    x, y = corner
    expected = padded[128 + y : 144 + y, 128 + x : 160 + x]
    got = loaded(matrix_map(array, (32, 16)), corner, policy)
    assert (got.view(np.uint16).reshape(16, 32) == expected).all()


@pytest.mark.parametrize("corner", [-3, 1, 4, 12, 39])
def test_a_box_begins_at_a_multiple_of_16_bytes(corner: int) -> None:
    array = words(np.random.default_rng(1), 20, 40)
    with pytest.raises(ExecutionFault, match=f"coordinate {corner} of elements of 16 bits; expected a multiple of 8"):
        loaded(matrix_map(array, (32, 16)), (corner, 0))


def test_a_box_of_three_modes() -> None:
    rng = np.random.default_rng(2)
    array = rng.standard_normal((5, 9, 12), np.float32)
    tensor_map = TensorMap(array=array, extents=(12, 9, 5), strides_bytes=(48, 432), box=(8, 4, 3), swizzle_bytes=32)
    got = loaded(tensor_map, (8, 7, 3)).view("V16").reshape(12, 2)
    padded = np.zeros((6, 11, 16), np.float32)
    padded[:5, :9, :12] = array
    box = np.ascontiguousarray(padded[3:6, 7:11, 8:16]).reshape(12, 8)
    for row in range(12):
        for chunk in range(2):
            expected = box[row, 4 * chunk : 4 * chunk + 4].tobytes()
            assert got[row, PATTERNS[32](row, chunk)].tobytes() == expected


def test_modes_may_overlap_or_stand_still() -> None:
    array = np.arange(64, dtype=np.uint16)
    tensor_map = TensorMap(array=array, extents=(16, 6, 2), strides_bytes=(16, 0), box=(16, 6, 2))
    got = loaded(tensor_map, (0, 0, 0)).view(np.uint16).reshape(2, 6, 16)
    assert (got == (np.arange(6) * 8)[:, None] + np.arange(16)).all()


FILL = "shl.b32 %r6, %r0, 2; add.s32 %r6, %r6, %r4;" + "".join(
    f"add.s32 %r7, %r0, {1000 + 32 * i}; st.shared.b32 [%r6+{128 * i}], %r7;" for i in range(16)
)
"""A warp writes 1000, 1001, ... to the first 2 KiB."""
FENCED = FILL + "fence.proxy.async.shared::cta; bar.sync 0;"
DONE = "@%p0 cp.async.bulk.wait_group.read 0;"


@pytest.mark.parametrize("policy", POLICIES)
@pytest.mark.parametrize("corner", [(0, 0), (4, 3), (16, 12), (28, 30), (40, 0)])
@pytest.mark.parametrize("swizzle_bytes", [0, 128])
def test_a_store_is_clipped_to_the_tensor(corner: tuple[int, int], swizzle_bytes: int, policy: str) -> None:
    tensor = np.full((24, 36), 7, np.uint32)
    launch(READY + FENCED + store(corner) + DONE, matrix_map(tensor, (32, 16), swizzle_bytes), policy=policy)
    box = (1000 + np.arange(512, dtype=np.uint32)).reshape(16, 32)
    if swizzle_bytes:
        chunks = box.reshape(16, 8, 4)
        box = np.stack([chunks[r][np.arange(8) ^ r % 8] for r in range(16)]).reshape(16, 32)
    padded = np.full((24 + 128, 36 + 128), 7, np.uint32)
    padded[64 + corner[1] : 80 + corner[1], 64 + corner[0] : 96 + corner[0]] = box
    assert (tensor == padded[64:88, 64:100]).all()


def test_a_store_begins_inside_the_tensor() -> None:
    tensor = np.zeros((24, 36), np.uint32)
    with pytest.raises(ExecutionFault, match="a store begins at coordinate -4; expected 0 or more"):
        launch(READY + FENCED + store((-4, 0)) + DONE, matrix_map(tensor, (32, 16)))


def test_traffic_counts_boxes_bytes_and_sectors() -> None:
    array = words(np.random.default_rng(3), 24, 72)
    tensor_map = matrix_map(array, (64, 16), 128)
    body = READY + expect(2 * 2048) + load((0, 0)) + load((40, 20), to=2048) + wait() + dump(128)
    _, report = launch(body, tensor_map, out_bytes=128)
    loads = "cp.async.bulk.tensor"
    assert report.boxes(loads) == report.executed(loads) == 2
    assert report.shared_bytes(loads) == 2 * 2048
    assert report.global_bytes(loads) == 16 * 128 + 4 * 64
    # Rows are 144 bytes apart, so every second one begins in the middle of a sector.
    assert report.sectors(loads) == (8 * 4 + 8 * 5) + (2 * 3 + 2 * 2)


def test_lanes_that_store_the_same_count_each() -> None:
    tensor = np.zeros((16, 32), np.uint32)
    body = READY + FENCED + store((0, 0), guard="") + "cp.async.bulk.wait_group.read 0;"
    _, report = launch(body, matrix_map(tensor, (32, 16)))
    assert report.boxes("cp.async.bulk.tensor") == 32
    assert (tensor == 1000 + np.arange(512).reshape(16, 32)).all()


SOURCE = np.arange(64 * 64, dtype=np.uint16).reshape(64, 64)
BOX = matrix_map(SOURCE, (64, 16), 128)
READ = "ld.shared.b32 %r3, [%r4];"


@pytest.mark.parametrize(
    ("body", "kind", "words_of_message"),
    [
        (expect(2048) + load((0, 0)) + READ + wait(), ViolationKind.ASYNC_COPY, "bulk copy"),
        (expect(2048) + load((0, 0)) + "st.shared.b32 [%r4+64], %r0;" + wait(), ViolationKind.ASYNC_COPY, "bulk copy"),
        (expect(2048) + load((0, 0)) + wait(guard="@!%p0") + READ, ViolationKind.ASYNC_COPY, "bulk copy"),
        (expect(2048) + load((0, 0)), ViolationKind.ASYNC_COPY, "nobody has waited"),
        (expect(2048) + load((0, 0), to=64) + wait(), ViolationKind.MISALIGNED, "multiple of 128"),
        (expect(2048) + load((0, 0), to=15360) + wait(), ViolationKind.OUT_OF_BOUNDS, "shared memory"),
        (expect(2048) + load((0, 0), to=14336) + wait(), ViolationKind.BARRIER, "hold an mbarrier"),
        (FILL + "bar.sync 0;" + expect(2048) + load((0, 0)) + wait(), ViolationKind.RACE, "no fence.proxy.async"),
        (expect(4096) + load((0, 0)) + load((0, 8)) + wait(), ViolationKind.ASYNC_COPY, "write of bytes"),
        (expect(2048) + load((0, 0, 0)) + wait(), ViolationKind.OUT_OF_BOUNDS, "3 coordinates"),
        (expect(2048) + load((0, 0)).replace("[%rd3,", "[%rd3+8,") + wait(), ViolationKind.MISALIGNED, "tensor map"),
    ],
)
def test_wrong_loads_are_found(body: str, kind: ViolationKind, words_of_message: str) -> None:
    violation = fault(READY + body, BOX)
    assert violation.kind is kind
    assert words_of_message in violation.message


def test_the_mbarrier_of_a_load_needs_a_fence() -> None:
    unfenced = READY.replace("@%p0 fence.mbarrier_init.release.cluster;", "")
    violation = fault(unfenced + expect(2048) + load((0, 0)) + wait(), BOX)
    assert violation.kind is ViolationKind.RACE
    fenced = READY.replace("fence.mbarrier_init.release.cluster", "fence.proxy.async")
    launch(fenced + expect(2048) + load((0, 0)) + wait() + READ, BOX)


def test_a_wait_of_one_thread_reaches_the_others_through_a_barrier() -> None:
    body = READY + expect(2048) + load((0, 0)) + wait(guard="@!%p0")
    for policy in POLICIES:
        launch(body + "bar.warp.sync -1;" + READ, BOX, policy=policy)
        launch(body + "bar.sync 0;" + READ, BOX, policy=policy, block=64)


def test_what_others_may_still_read_must_not_be_overwritten() -> None:
    """Warp 1 reads the first box while warp 0 copies the second one to the same place."""
    first = READY + expect(2048) + load((0, 0)) + wait(0, name="W0") + READ
    second = expect(2048) + load((0, 16)) + wait(1, name="W1")
    violation = fault(first + second, BOX, block=64)
    assert violation.kind is ViolationKind.RACE
    assert "write without a barrier after the read" in violation.message
    for policy in POLICIES:
        launch(first + "bar.sync 0;" + second, BOX, block=64, policy=policy)


WRITE = "setp.eq.u32 %p3, %r0, 40; @%p3 st.global.u32 [%rd5], 9;"
ALL_WAIT, FIRST_WAITS = wait(name="W1"), wait(guard="@!%p0", name="W0")


def overwritten(body: str, policy: str, **options: Any) -> LaunchReport:
    """A launch of two warps per CTA, where `%rd5` is the source of the load."""
    parameters = ".param .align 64 .b8 map[128], .param .u64 source, .param .u64 out"
    text = kernel(f"{READY} ld.param.u64 %rd5, [source]; {body}", shared_bytes=SMEM_BYTES, parameters=parameters)
    source = np.zeros((16, 64), np.uint16)
    args = [matrix_map(source, (64, 16), 128), source, np.zeros(64, np.uint32)]
    options = {"grid": 1, "raise_on": (), **options}
    return Program.parse(text.replace("st.global.b32 [%rd1], %r3;", "")).launch(
        "k", block=64, args=args, policy=policy, **options
    )


@pytest.mark.parametrize("policy", POLICIES)
@pytest.mark.parametrize(
    ("after", "races"),
    [
        (WRITE + ALL_WAIT, True),
        ("bar.sync 0;" + WRITE + ALL_WAIT, True),
        ("@%p0 st.global.u32 [%rd5], 9;" + ALL_WAIT, True),
        (FIRST_WAITS + WRITE, True),
        (ALL_WAIT + WRITE, False),
        (FIRST_WAITS + "bar.sync 0;" + WRITE, False),
    ],
)
def test_the_source_of_a_load_may_be_written_after_a_wait_for_it(after: str, races: bool, policy: str) -> None:
    report = overwritten(expect(2048) + load((0, 0)) + after, policy)
    assert {found.kind for found in report.violations} == ({ViolationKind.RACE} if races else set())
    if races and policy == "in-order":
        assert "not ordered after the read by a bulk copy of CTA number 0 (line" in str(report.violations[0])


@pytest.mark.parametrize("policy", POLICIES)
@pytest.mark.parametrize(("first", "last", "races"), [(FIRST_WAITS, "", False), ("", FIRST_WAITS, True)])
def test_a_release_after_the_wait_tells_another_cta(first: str, last: str, races: bool, policy: str) -> None:
    body = f"""
    mov.u32 %r8, %ctaid.x; setp.ne.u32 %p1, %r8, 0; @%p1 bra OTHER;
    {expect(2048)} {load((0, 0))} {first} @%p0 st.release.gpu.global.u32 [%rd0], 1; {last} bra END;
    OTHER: @!%p0 bra END; ld.acquire.gpu.global.u32 %r9, [%rd0]; setp.eq.u32 %p2, %r9, 0; @%p2 bra OTHER;
    st.global.u32 [%rd5], 9;
    END:
    """
    report = overwritten(body, policy, grid=2)
    assert {found.kind for found in report.violations} == ({ViolationKind.RACE} if races else set())


def test_the_source_of_a_load_may_not_be_written_by_another_process() -> None:
    body = f"""
    mov.u32 %r8, %ctaid.x; setp.ne.u32 %p1, %r8, 0; @%p1 bra OTHER;
    {expect(2048)} {load((0, 0))} {ALL_WAIT} bra END;
    OTHER: @%p0 st.global.u32 [%rd5], 9;
    END:
    """
    report = overwritten(body, "in-order", grid=2, jobs=2)
    assert [found.kind for found in report.violations] == [ViolationKind.RACE]
    assert "not ordered after the read by a bulk copy of CTA number 0 (line" in str(report.violations[0])


TARGET_BOX = (32, 16)


@pytest.mark.parametrize(
    ("body", "kind", "words_of_message"),
    [
        (FILL + "bar.sync 0;" + store((0, 0)) + DONE, ViolationKind.RACE, "no fence.proxy.async"),
        (FILL + "fence.proxy.async;" + store((0, 0)) + DONE, ViolationKind.RACE, "read without a barrier"),
        (FENCED + store((0, 0)), ViolationKind.ASYNC_COPY, "exits before"),
        (FENCED + store((0, 0)) + "bar.sync 0; st.shared.b32 [%r6], 1;" + DONE, ViolationKind.ASYNC_COPY, "reading"),
        (FENCED + store((0, 0)) + DONE + "st.shared.b32 [%r6], 1;", ViolationKind.RACE, "after the read"),
        (
            FENCED + store((0, 0)).replace("@%p0 cp.async.bulk.commit_group;", "") + DONE,
            ViolationKind.ASYNC_COPY,
            "exits",
        ),
        ("bar.sync 0;" + store((0, 0)) + DONE, ViolationKind.UNINITIALIZED, "never written"),
    ],
)
def test_wrong_stores_are_found(body: str, kind: ViolationKind, words_of_message: str) -> None:
    tensor = np.zeros((16, 32), np.uint32)
    violation = fault(READY + body, matrix_map(tensor, TARGET_BOX))
    assert violation.kind is kind
    assert words_of_message in violation.message


def test_the_fence_may_stand_on_either_side_of_the_barrier() -> None:
    for body in (FENCED, FILL + "bar.sync 0; fence.proxy.async;"):
        launch(READY + body + store((0, 0)) + DONE, matrix_map(np.zeros((16, 32), np.uint32), TARGET_BOX))


def test_the_source_may_be_written_again_after_the_wait_and_a_barrier() -> None:
    again = FENCED + store((0, 0)) + DONE + "bar.sync 0;" + FENCED + store((0, 16)) + DONE
    tensor = np.zeros((32, 32), np.uint32)
    for policy in POLICIES:
        tensor[:] = 0
        launch(READY + again, matrix_map(tensor, TARGET_BOX), policy=policy)
        assert (tensor[16:] == tensor[:16]).all()
        assert tensor[0, 0] == 1000


def test_all_but_the_newest_groups_are_waited_for() -> None:
    tensor = np.zeros((32, 32), np.uint32)
    two = FENCED + store((0, 0)) + store((0, 16)) + "@%p0 cp.async.bulk.wait_group.read 1;"
    assert fault(READY + two, matrix_map(tensor, TARGET_BOX)).kind is ViolationKind.ASYNC_COPY
    launch(READY + two + DONE, matrix_map(tensor, TARGET_BOX))


def test_two_ctas_must_not_store_to_the_same_place() -> None:
    parameters = ".param .align 64 .b8 map[128], .param .u64 out"
    text = kernel(READY + FENCED + store((0, 0)) + DONE, shared_bytes=SMEM_BYTES, parameters=parameters)
    tensor, out = np.zeros((16, 32), np.uint32), np.zeros(32, np.uint32)
    report = Program.parse(text).launch("k", grid=2, block=32, args=[matrix_map(tensor, TARGET_BOX), out], raise_on=())
    assert ViolationKind.RACE in {violation.kind for violation in report.violations}


def test_a_read_only_tensor_is_not_stored_to() -> None:
    tensor = np.zeros((16, 32), np.uint32)
    tensor.flags.writeable = False
    assert fault(READY + FENCED + store((0, 0)) + DONE, matrix_map(tensor, TARGET_BOX)).kind is ViolationKind.READ_ONLY


MATRIX = np.zeros((64, 64), np.uint16)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"extents": (64,) * 6, "strides_bytes": (128,) * 5, "box": (8,) * 6}, "6 extents"),
        ({"strides_bytes": (2, 128)}, "2 strides"),
        ({"strides_bytes": (120,)}, "multiples of 16"),
        ({"box": (64,)}, "box of 1 modes"),
        ({"box": (64, 257)}, "1 to 256"),
        ({"box": (12, 8)}, "24 bytes"),
        ({"swizzle_bytes": 48}, "0, 32, 64 or 128"),
        ({"box": (32, 8), "swizzle_bytes": 128}, "only equal"),
        ({"array": np.zeros((64, 64), np.complex128)}, "elements of 16 bytes"),
        ({"extents": (0, 64)}, "1 to 2^32"),
    ],
)
def test_a_tensor_map_that_the_driver_would_refuse(changes: dict[str, Any], message: str) -> None:
    right = {"array": MATRIX, "extents": (64, 64), "strides_bytes": (128,), "box": (64, 8), "swizzle_bytes": 0}
    TensorMap(**right)
    with pytest.raises(LaunchError, match=message.replace("^", r"\^")):
        TensorMap(**(right | changes))


@pytest.mark.parametrize("policy", POLICIES)
def test_a_map_may_describe_more_than_its_array_but_no_box_may_leave_it(policy: str) -> None:
    """As the driver knows nothing of arrays. The rows from each row on, as kernels for groups of rows have it."""
    array = words(np.random.default_rng(2), 64, 64)
    rows = TensorMap(array=array, extents=(64, 64, 64), strides_bytes=(128, 128), box=(64, 8, 1))
    assert (loaded(rows, (0, 30, 26), policy).view(np.uint16).reshape(8, 64) == array[56:64]).all()
    for each in (load, store):
        found = fault(READY + expect(1024) + each((0, 31, 26)), rows)
        assert found.kind is ViolationKind.OUT_OF_BOUNDS
        assert "the box at (0, 31, 26) reaches 128 bytes beyond" in str(found)


def test_a_tensor_lies_at_a_multiple_of_16_bytes() -> None:
    shifted = TensorMap(array=MATRIX.reshape(-1)[4:], extents=(64, 60), strides_bytes=(128,), box=(64, 8))
    with pytest.raises(LaunchError, match="multiple of 16 bytes"):
        launch(READY, shifted)


@pytest.mark.parametrize(
    ("instruction", "message"),
    [
        (load((0, 0)).replace(".tensor.2d", ""), "modifier .tile is not supported"),
        ("cp.async.bulk.prefetch.tensor.2d.L2.global.tile::gather4 [%rd3, {0, 0}];", "gather4"),
        (load((0, 0)).replace("::bytes", "::bytes.multicast::cluster"), "multicast::cluster"),
        (load((0, 0, 0)).replace(".tile", ".im2col"), "im2col"),
        (load((0, 0)).replace("2d", "3d"), "3 coordinates"),
        (load((0, 0)).replace("shared::cta.global", "global.shared::cta"), "expected .shared::cta.global"),
        ("cp.reduce.async.bulk.tensor.2d.global.shared::cta.add.tile.bulk_group [%rd3, {0, 0}], [%r4];",
         "bulk reductions of tensors"),
        ("setmaxnreg.dec.sync.aligned.u32 16;", "multiple of 8 from 24 to 256"),
        ("setmaxnreg.inc.sync.aligned.u32 20;", "multiple of 8 from 24 to 256"),
        ("setmaxnreg.dec.sync.aligned.u32 44;", "multiple of 8 from 24 to 256"),
        ("mbarrier.arrive.noComplete.shared.b64 %rd4, [%r5], 1;", "noComplete"),
        ("mbarrier.complete_tx.shared.b64 [%r5], 1;", "expected mbarrier"),
    ],
)  # fmt: skip
def test_what_is_not_modeled_is_refused(instruction: str, message: str) -> None:
    with pytest.raises(PtxSyntaxError, match=message.replace(".", r"\.")):
        launch(READY + instruction, BOX)
