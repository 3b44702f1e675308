"""What a launch may be given, and what a kernel may name: the last value that is allowed, and the first that is not."""

from __future__ import annotations

import numpy as np
import pytest
from kernels import kernel, run_elements, run_report

from cutegen.errors import PtxSyntaxError
from cutegen.ptx import ExecutionFault, LaunchError, Program, TensorMap, ViolationKind
from cutegen.ptx.machine.arguments import MAX_ALLOCATIONS, extent
from cutegen.ptx.machine.memory import ALLOCATION_STRIDE
from cutegen.ptx.watch.traffic import Traffic, TrafficCounters, shared_wavefronts

STRUCT = ".param .u64 out, .param .align 8 .b8 parts[{size}]"


def launch(text: str, *args: object, **options: object) -> None:
    Program.parse(text).launch("k", grid=1, block=32, args=[np.zeros(32, np.uint32), *args], **options)


def words_of(struct: tuple[object, ...], size_bytes: int) -> np.ndarray:
    """The words that a kernel finds in a structure."""
    loads = "".join(
        f"setp.eq.u32 %p1, %r0, {i}; @%p1 ld.param.u32 %r3, [parts+{4 * i}];" for i in range(size_bytes // 4)
    )
    text = kernel(f"mov.u32 %r3, 0; {loads}", parameters=STRUCT.format(size=size_bytes))
    out = np.zeros(32, np.uint32)
    Program.parse(text).launch("k", grid=1, block=32, args=[out, struct])
    return out[: size_bytes // 4]


def test_members_of_a_structure_begin_at_multiples_of_their_size() -> None:
    """A byte, a word at 4, a double word at 8."""
    found = words_of((np.uint8(1), np.uint32(2), np.uint64(3 << 32)), 16)
    assert found.tolist() == [1, 2, 0, 3]


def test_a_structure_takes_no_array_without_modes() -> None:
    with pytest.raises(LaunchError, match="takes arrays and numpy scalars"):
        words_of((np.zeros((), np.uint32),), 8)


def test_as_many_arrays_as_there_are_addresses_for() -> None:
    arrays = tuple(np.zeros(1, np.uint32) for _ in range(MAX_ALLOCATIONS))
    assert MAX_ALLOCATIONS == 256
    text = kernel("mov.u32 %r3, 0;", parameters=STRUCT.format(size=8 * MAX_ALLOCATIONS))
    launch(text, arrays[1:])
    with pytest.raises(LaunchError, match="more than 256 arrays"):
        launch(text, arrays)


def test_an_array_that_reaches_too_far_is_refused() -> None:
    far = np.lib.stride_tricks.as_strided(np.zeros(1, np.uint8), (2,), (ALLOCATION_STRIDE,))
    with pytest.raises(LaunchError, match="argument 1 reaches over"):
        launch(kernel("mov.u32 %r3, 0;", parameters=".param .u64 out, .param .u64 far"), far)


def test_too_many_arguments_are_refused() -> None:
    with pytest.raises(LaunchError, match="k has 1 parameters, 2 arguments were given"):
        launch(kernel("mov.u32 %r3, 0;"), 5)


@pytest.mark.parametrize(
    ("shape", "step", "first", "size"), [((1,), 1, 0, 4), ((1, 1), 1, 0, 4), ((3,), 1, 0, 12), ((3,), -1, -8, 12)]
)
def test_memory_that_an_array_reaches(shape: tuple[int, ...], step: int, first: int, size: int) -> None:
    array = np.zeros(shape, np.uint32)[::step]
    assert extent(array) == (array.ctypes.data + first, size)


MAP = {"extents": (64, 8), "strides_bytes": (128,), "box": (64, 1)}


@pytest.mark.parametrize(
    "change",
    [
        {},
        {"array": np.zeros(1, np.float64), "box": (8, 1)},
        {"array": np.zeros(1, np.uint8), "box": (16, 256)},
        {"extents": (64, 1 << 32)},
        {"strides_bytes": ((1 << 40) - 16,)},
        {"strides_bytes": (0,)},
        {"extents": (64, 1, 1, 1, 1), "strides_bytes": (128,) * 4, "box": (8, 1, 1, 1, 1)},
        {"box": (64, 8), "swizzle_bytes": 128},
    ],
)
def test_a_tensor_map_that_the_driver_takes(change: dict[str, object]) -> None:
    fields = {"array": np.zeros(1, np.float16), **MAP, **change}
    assert TensorMap(**fields).box_bytes > 0  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"array": np.zeros(1, "V7"), "box": (16, 1)}, "elements of 7 bytes"),
        ({"array": np.zeros(1, np.complex128), "box": (8, 1)}, "elements of 16 bytes"),
        ({"extents": (64, (1 << 32) + 1)}, "extents"),
        ({"extents": (64, 0)}, "extents"),
        ({"strides_bytes": (1 << 40,)}, "strides"),
        ({"strides_bytes": (8,)}, "strides"),
        ({"strides_bytes": (-16,)}, "strides"),
        ({"box": (64, 0)}, "box"),
        ({"box": (64, 257)}, "box"),
        ({"box": (4, 1)}, "box row of 8 bytes"),
        ({"box": (32, 1), "swizzle_bytes": 128}, "swizzle of 128"),
        ({"box": (48, 1), "swizzle_bytes": 96}, "swizzle 96"),
        ({"extents": (1,) * 6, "strides_bytes": (16,) * 5, "box": (8, 1, 1, 1, 1, 1)}, "6 extents"),
    ],
)
def test_a_tensor_map_that_the_driver_refuses(change: dict[str, object], reason: str) -> None:
    fields = {"array": np.zeros(1, np.float16), **MAP, **change}
    with pytest.raises(LaunchError, match=reason):
        TensorMap(**fields)  # type: ignore[arg-type]


def test_static_shared_memory_goes_up_to_48_kib() -> None:
    store = "mov.u32 %r3, 0; st.shared.u32 [smem], %r3;"
    run_report(kernel(f"setp.eq.u32 %p1, %r0, 0; @%p1 {store}".replace("@%p1 mov", "mov"), shared_bytes=48 << 10))
    with pytest.raises((LaunchError, PtxSyntaxError), match="shared"):
        run_report(kernel("mov.u32 %r3, 0;", shared_bytes=(48 << 10) + 16))


def test_a_required_block_size_may_name_one_extent() -> None:
    text = kernel("mov.u32 %r3, 5;").replace("out)\n{", "out)\n.reqntid 32\n{")
    assert ".reqntid 32" in text
    assert (run_elements(text, np.uint32) == 5).all()
    with pytest.raises(LaunchError):
        run_elements(text, np.uint32, block=64)


def test_progress_counts_ctas_from_one() -> None:
    seen: list[tuple[int, int]] = []
    text = kernel("mov.u32 %r3, 5; mov.u32 %r4, %ctaid.x; setp.ne.u32 %p1, %r4, 0; @%p1 exit;")
    Program.parse(text).launch(
        "k", grid=3, block=32, args=[np.zeros(32, np.uint32)], progress=lambda *x: seen.append(x)
    )
    assert seen == [(1, 3), (2, 3), (3, 3)]


def test_ctas_that_communicate_run_in_one_of_two_processes_never() -> None:
    body = "atom.global.add.u32 %r4, [%rd0], 1; mov.u32 %r3, 0; exit;"
    with pytest.raises(LaunchError, match="1 for a kernel whose CTAs communicate"):
        run_elements(kernel(body), np.uint32, jobs=2)


TABLE = ".global .align 4 {declaration};"
VARIABLES = [
    ("table[] = {7, 8, 9}", ".u32", 8),
    ("table[3] = {7, 8, 9}", ".u32", 8),
    ("table[2] = {0f3F800000, 0f40000000}", ".f32", 0x40000000),
    ("table[2][2] = {{7, 8}, {9}}", ".u32", 8),
    ("table[2][1] = {{7}, {8}}", ".u32", 8),
    ("table[][2] = {{7}, {9, 10}}", ".u32", 0),
    ("table[4] = {7, 8}", ".u32", 8),
    ("table[2] = {-1, -2}", ".s32", 0xFFFFFFFE),
]


@pytest.mark.parametrize(("declaration", "kind", "second"), VARIABLES)
def test_initialized_variables_hold_their_values(declaration: str, kind: str, second: int) -> None:
    before = TABLE.format(declaration=f"{kind} {declaration}")
    assert (run_elements(kernel("ld.global.b32 %r3, [table+4];", before=before), np.uint32) == second).all()


@pytest.mark.parametrize(
    ("declaration", "reason"),
    [
        ("table[2] = {1, 2, 3}", "more than 2 initial values for an array of length 2"),
        ("table[2][2] = {{1}, {2}, {3}}", "more than 2 initial values"),
        ("table[2][2] = {1, 2}", "expected '{', found '1'"),
        ("table[2] = {{1, 2}}", "expected a number, found '{'"),
        ("table = {1}", "expected a number, found '{'"),
        ("table[2][] = {{1}, {2}}", "expected a number, found ']'"),
        ("table[] = {}", "variable table has no size"),
    ],
)
def test_initial_values_fit_their_variable(declaration: str, reason: str) -> None:
    """As ptxas 13.0 reads them."""
    with pytest.raises(PtxSyntaxError, match=reason):
        Program.parse(kernel("", before=TABLE.format(declaration=f".u32 {declaration}")))


def test_missing_initial_values_of_a_row_are_zero() -> None:
    loads = "".join(f"ld.global.u32 %r{4 + i}, [table+{4 * i}];" for i in range(4))
    body = loads + "mad.lo.u32 %r4, %r4, 1000, %r5; mad.lo.u32 %r6, %r6, 10, %r7; add.u32 %r3, %r4, %r6;"
    text = kernel(body, before=".global .u32 table[2][2] = {{1}, {2}};")
    assert (run_elements(text, np.uint32) == 1020).all()


FORMS = [
    ("fence.bogus.gpu;", "fence.acq_rel.gpu;"),
    ("fence.acq_rel;", "fence.gpu;"),
    ("fence.proxy.nonsense;", "fence.proxy.alias;"),
    ("fence.proxy.async.generic;", "fence.proxy.async;"),
    ("fence.acquire.sync_restrict::shared::cluster.cluster;", "fence.cluster.acq_rel;"),
    ("fence.proxy.tensormap::generic.acquire.gpu;", "fence.proxy.tensormap::generic.acquire.gpu [%rd0], 128;"),
    ("fence.acq_rel.gpu [%rd0], 128;", "fence.proxy.tensormap::generic.release.gpu;"),
    ("membar.gpu;", "membar.gl;"),
    ("prefetch.banana [%rd0];", "prefetch.global.L2 [%rd0];"),
    ("prefetch.global.L1;", "prefetch.L1 [%rd0];"),
    ("griddepcontrol.foo;", "griddepcontrol.wait;"),
    ("griddepcontrol.wait 1;", "griddepcontrol.launch_dependents;"),
    ("applypriority.global.L2::evict_normal [%rd0];", "applypriority.global.L2::evict_normal [%rd0], 128;"),
    ("discard.global.L2 [%rd0], 128;", "prefetchu.L1 [%rd0];"),
    ("nanosleep.u64 20;", "nanosleep.u32 20;"),
    ("st.global.u32 [%rd1], %r0, %rd1;", "st.global.L2::cache_hint.u32 [%rd1], %r0, %rd1;"),
    ("st.global.L2::cache_hint.u32 [%rd1], %r0, %r0;", "st.global.u32 [%rd1], %r0;"),
    ("ld.global.L2::cache_hint.u32 %r3, [%rd1];", "ld.global.L2::cache_hint.u32 %r3, [%rd1], %rd1;"),
    ("ld.global.u32 %r3, [%rd1], %rd1;", "ld.global.u32 %r3, [%rd1];"),
]


@pytest.mark.parametrize(("wrong", "right"), FORMS)
def test_modifiers_and_operands_that_ptx_does_not_have(wrong: str, right: str) -> None:
    """As ptxas 13.0 reads them, except that `.sync_restrict` and `discard` are not modeled."""
    run_elements(kernel("mov.u32 %r3, 0;" + right), np.uint32)
    with pytest.raises(PtxSyntaxError, match=r"is not PTX, or not supported|operands, found|discard|has 32 bits"):
        run_elements(kernel("mov.u32 %r3, 0;" + wrong), np.uint32)


@pytest.mark.parametrize(
    ("directive", "block", "reason"),
    [
        (".maxntid 32", 64, r"has 64 threads; k allows 32 \(\.maxntid\)"),
        (".maxntid 32", (8, 8, 1), "has 64 threads; k allows 32"),
        (".maxntid 8, 4", (32, 2, 1), "has 64 threads; k allows 32"),
        ("", (1, 1, 65), "has 65 threads along z; at most 64"),
        (".maxntid 8, 4", (32, 1, 1), ""),
        ("", (1, 1, 64), ""),
    ],
)
def test_a_block_is_as_large_as_its_entry_and_cuda_allow(directive: str, block: object, reason: str) -> None:
    program = Program.parse(kernel("mov.u32 %r3, 5;").replace("out)\n{", f"out)\n{directive}\n{{"))
    args = [np.zeros(64, np.uint32)]
    if not reason:
        program.launch("k", grid=1, block=block, args=args, raise_on=())
        return
    with pytest.raises(LaunchError, match=reason):
        program.launch("k", grid=1, block=block, args=args)


REFUSED = [
    ("mov.u32 %r99, 0;", "", "%r99"),
    ("mov.u32 %r3, %r99;", "", "%r99"),
    ("mov.u32 %r3, 0;", ".global .v2 .f32 pair[2];", "v2 variables are not supported"),
    ("mov.u32 %r3, 0;", ".global .u32 table[1] = {0f3F800000};", "float cannot initialize"),
    ("bra INNER; { INNER: mov.u32 %r3, 0; }", "", "no label INNER is visible"),
    ("bra NOWHERE;", "", "no label NOWHERE"),
    ("ld.global.u32 %r3, [%rd1+9223372036854775808];", "", "64-bit integer"),
    ("ld.global.u32 %r3, [table];", ".const .align 4 .u32 table = 1;", "in const memory, the access in global"),
    ("mov.f32 %f0, 1;", "", "integer literal cannot be a .f32"),
    ("add.u32 %r3, %r0, {%r1, %r2};", "", "not allowed here"),
    ("bar.warp.sync;", "", "member mask"),
    ("bar.warp -1;", "", r"expected one of \.sync"),
    ("cp.async.bulk.commit_group 5;", "", "has no operands"),
    ("mov.b64 %rd2, 0f3F800000;", "", "float literal cannot be a .b64"),
    ("cvt.sat.s32.u8 %r3, %h0;", "", "not PTX"),
    ("fma.f32 %f0, %f1, %f2, %f3;", "", r"the nearest that is: fma\.r[nzmp]\.f32"),
    ("max.xorsign.f32 %f0, %f1, %f2;", "", "max.xorsign.f32"),
]


@pytest.mark.parametrize("access", ["ld.{}.global.u32 %r3, [%rd1];", "mov.u32 %r3, 0; st.{}.global.u32 [%rd1], %r3;"])
def test_an_access_to_a_device_is_relaxed_at_scope_sys(access: str) -> None:
    """`.mmio` exists with `.relaxed.sys` alone, and `.volatile` without a scope, says ptxas 13.0."""
    for words in ("mmio.relaxed.sys", "relaxed.mmio.sys", "volatile"):
        run_elements(kernel(access.format(words)), np.uint32)
    for words in ("mmio.sys", "mmio", "mmio.relaxed.gpu", "mmio.acquire.sys", "mmio.release.sys", "volatile.gpu"):
        with pytest.raises(
            PtxSyntaxError, match=r"\.mmio needs \.relaxed\.sys|modifier \.(gpu|acquire|release) is not"
        ):
            run_elements(kernel(access.format(words)), np.uint32)


@pytest.mark.parametrize(("body", "before", "reason"), REFUSED)
def test_what_cannot_be_named_is_refused(body: str, before: str, reason: str) -> None:
    with pytest.raises(PtxSyntaxError, match=reason):
        run_elements(kernel(body, before=before), np.uint32)


@pytest.mark.parametrize("cut", [1, 2, 30])
def test_a_text_that_ends_too_early_is_refused_at_its_last_line(cut: int) -> None:
    text = kernel("mov.u32 %r3, 0;").rstrip()[:-cut]
    with pytest.raises(PtxSyntaxError) as caught:
        Program.parse(text)
    assert caught.value.line == text.rstrip().count("\n") + 1


def test_addresses_of_variables_take_offsets() -> None:
    body = """
    mov.u32 %r4, smem+8; mov.u32 %r5, smem; sub.u32 %r3, %r4, %r5;
    """
    assert (run_elements(kernel(body, shared_bytes=16), np.uint32) == 8).all()


def test_a_generic_address_of_shared_memory_is_aligned_as_the_shared_one() -> None:
    body = """
    mov.u32 %r4, smem; cvt.u64.u32 %rd2, %r4; cvta.shared.u64 %rd2, %rd2;
    cvt.u32.u64 %r3, %rd2; sub.u32 %r3, %r3, %r4; and.b32 %r3, %r3, 255;
    """
    assert (run_elements(kernel(body, shared_bytes=16), np.uint32) == 0).all()


LOCAL = ".local .align 8 .b8 mine[16];"


def in_local(body: str) -> str:
    """A kernel with 16 bytes of local memory for each thread."""
    return kernel(f"{LOCAL} mov.u64 %rd2, mine; {body}")


def test_each_lane_has_local_memory_of_its_own() -> None:
    body = "st.local.u32 [mine], %r0; mul.lo.u32 %r4, %r0, 3; st.local.u32 [mine+12], %r4; ld.local.u32 %r5, [mine];"
    found = run_elements(in_local(f"{body} ld.local.u32 %r6, [mine+12]; add.u32 %r3, %r5, %r6;"), np.uint32)
    assert found.tolist() == [4 * lane for lane in range(32)]


@pytest.mark.parametrize(
    ("body", "kind", "message"),
    [
        ("ld.local.u32 %r3, [mine+16];", ViolationKind.OUT_OF_BOUNDS, "4-byte access to 16 bytes of local"),
        ("mov.u32 %r3, 0; st.local.u32 [mine+16], %r3;", ViolationKind.OUT_OF_BOUNDS, "4-byte access to 16 bytes"),
        ("mov.u32 %r3, 0; st.local.u32 [mine+2], %r3;", ViolationKind.MISALIGNED, "4-byte access to local memory"),
        ("ld.local.u32 %r3, [mine];", ViolationKind.UNINITIALIZED, "never written"),
        ("st.local.u32 [mine], %r0; ld.local.u64 %rd3, [mine];", ViolationKind.UNINITIALIZED, "8-byte read of local"),
        (".local .b32 one; st.local.u64 [one], 0;", ViolationKind.OUT_OF_BOUNDS, "8-byte access to 20 bytes"),
        (
            "cvta.local.u64 %rd2, %rd2; atom.add.u32 %r3, [%rd2+16], 1;",
            ViolationKind.OUT_OF_BOUNDS,
            "4-byte atomic access to 16 bytes of local memory",
        ),
        (
            "cvta.local.u64 %rd2, %rd2; atom.add.u32 %r3, [%rd2+2], 1;",
            ViolationKind.OUT_OF_BOUNDS,
            "4-byte atomic access",
        ),
    ],
)
def test_faults_in_local_memory_name_the_first_lane(body: str, kind: ViolationKind, message: str) -> None:
    with pytest.raises(ExecutionFault, match=message) as caught:
        run_elements(in_local(body), np.uint32)
    violation = caught.value.violation
    assert (violation.kind, violation.thread) == (kind, 0)


def test_an_atomic_of_a_generic_address_reaches_local_memory() -> None:
    body = "st.local.u32 [mine], %r0; cvta.local.u64 %rd2, %rd2; atom.add.u32 %r3, [%rd2], 5; ld.u32 %r3, [%rd2];"
    assert run_elements(in_local(body), np.uint32).tolist() == [lane + 5 for lane in range(32)]


def test_lanes_of_one_instruction_may_reach_several_arrays() -> None:
    """Even lanes have the one array, odd lanes the other: each access is looked at lane by lane."""
    body = """
    ld.param.u64 %rd2, [other]; and.b32 %r4, %r0, 1; setp.eq.u32 %p1, %r4, 0;
    mul.wide.u32 %rd3, %r0, 4; add.s64 %rd3, %rd2, %rd3; selp.b64 %rd4, %rd1, %rd3, %p1;
    ld.global.u32 %r5, [%rd4]; add.u32 %r5, %r5, 100; st.global.u32 [%rd4], %r5; mov.u32 %r3, %r5;
    """
    out, other = np.arange(32, dtype=np.uint32), np.arange(32, dtype=np.uint32) + 1000
    text = kernel(body, parameters=".param .u64 out, .param .u64 other")
    Program.parse(text).launch("k", grid=1, block=32, args=[out, other])
    lanes = np.arange(32)
    assert (out == np.where(lanes % 2, lanes + 1100, lanes + 100)).all()
    assert (other == np.where(lanes % 2, lanes + 1100, lanes + 1000)).all()


def test_a_launch_without_arrays_says_so_where_memory_is_touched() -> None:
    text = kernel("mov.u32 %r3, 0;", parameters=".param .u64 out")
    with pytest.raises(ExecutionFault, match="the launch has no buffers"):
        Program.parse(text).launch("k", grid=1, block=32, args=[0])


LANES = np.arange(32)


def counted(method: str, *arguments: object, **options: object) -> Traffic:
    counters = TrafficCounters([Traffic()])
    getattr(counters, method)(0, *arguments, **options)
    getattr(counters, method)(0, *arguments, **options)
    return counters.sites[0]


@pytest.mark.parametrize("start", [0, 128, 4096 + 64])
def test_two_requests_to_global_memory_are_two(start: int) -> None:
    """32 words from a multiple of 32 bytes on: 4 sectors each."""
    found = counted("device", start + 4 * LANES, 4)
    assert (found.global_requests, found.sectors, found.global_bytes) == (2, 8, 256)


def test_sectors_of_lanes_in_falling_order() -> None:
    """From byte 28 down to -96: of 31 words the last begins a sector of its own."""
    found = counted("device", 1024 + 28 - 4 * LANES, 4)
    assert found.sectors == 2 * 4


def test_two_requests_to_shared_memory_are_two() -> None:
    """32 words 8 bytes apart: two banks' words each, and one row of banks would do."""
    found = counted("shared", 256 + 8 * LANES, LANES, 4)
    assert (found.shared_requests, found.wavefronts, found.ideal_wavefronts, found.shared_bytes) == (2, 4, 2, 256)


@pytest.mark.parametrize(
    ("units", "wavefronts"),
    [
        (LANES // 2, 1),  # each with lane ^ 1
        (LANES // 4 * 2 + LANES % 2, 1),  # each with lane ^ 2
        (LANES // 4, 1),
        (LANES, 2),
        (np.where(LANES < 28, LANES // 4, LANES - 21), 2),  # the last four share with nobody
    ],
)
def test_two_phases_of_a_load_merge_where_all_lanes_share_in_one_way(units: np.ndarray, wavefronts: int) -> None:
    found, _ = shared_wavefronts(units * 8, LANES, 8, merges=True)
    assert found == wavefronts
