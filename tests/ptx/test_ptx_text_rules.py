"""What PTX text may say of scopes, variables and literals, and what a launch may pass."""

from __future__ import annotations

import pickle

import numpy as np
import pytest
from kernels import kernel, run_elements

from cutegen.errors import PtxSyntaxError
from cutegen.ptx import ExecutionFault, LaunchError, Policy, Program, ViolationKind
from cutegen.ptx.machine.memory import Bytes
from cutegen.ptx.machine.tensor_map import TensorMap
from cutegen.ptx.text.syntax import Instruction
from cutegen.ptx.watch.violations import Monitor

HEAD = ".version 8.0\n.target sm_90\n.address_size 64\n"


def test_a_kernel_may_run_off_its_end() -> None:
    text = kernel("mov.u32 %r3, 7;").replace("    ret;\n", "")
    assert "ret" not in text
    assert (run_elements(text, np.uint32) == 7).all()


def test_a_pragma_may_stand_before_the_body() -> None:
    text = kernel("mov.u32 %r3, 7;").replace("\n{\n", '\n.pragma "nounroll";\n{\n', 1)
    assert '.pragma "nounroll";\n{' in text
    assert (run_elements(text, np.uint32) == 7).all()


def test_a_register_lives_in_its_scope() -> None:
    """PTX ISA, "Scoping": names declared between braces hide outer ones, and end with the braces."""
    inner = "{ .reg .b32 %t; mov.u32 %t, 5; add.u32 %r3, %r3, %t; }"
    body = f".reg .b32 %t; mov.u32 %t, 1; mov.u32 %r3, %r0; {inner} {inner} add.u32 %r3, %r3, %t;"
    assert run_elements(kernel(body), np.uint32).tolist() == [lane + 11 for lane in range(32)]
    with pytest.raises(PtxSyntaxError, match="%t"):
        run_elements(kernel("{ .reg .b32 %t; } mov.u32 %t, 5;"), np.uint32)


def test_a_vector_register_is_its_elements() -> None:
    """PTX ISA, "Vectors": `.reg .v4 .s32 v` has the elements v.x to v.w, and stands for them where a vector may."""
    store = ".shared .align 16 .b8 room[16]; st.shared.v4.s32 [room], v; ld.shared.b32 %r3, [room+8];"
    moves = "".join(f"add.s32 v.{each}, %r0, {10 * i};" for i, each in enumerate("xyzw"))
    body = "bar.warp.sync -1; setp.ne.u32 %p1, %r0, 5; @%p1 bra NOT;" + store + "NOT:"
    text = kernel(".reg .v4 .s32 v; mov.u32 %r3, 0;" + moves + body)
    assert run_elements(text, np.uint32).tolist() == [25 * (lane == 5) for lane in range(32)]
    pair = kernel("{ .reg .v2 .b32 v; mov.b32 v.x, 3; mov.b32 v.y, 4; add.u32 %r3, v.x, v.y; }")
    assert (run_elements(pair, np.uint32) == 7).all()
    with pytest.raises(PtxSyntaxError, match=r"v\.z"):
        run_elements(kernel("{ .reg .v2 .b32 v; mov.b32 v.z, 3; }"), np.uint32)
    with pytest.raises(PtxSyntaxError, match="expected a register as the destination"):
        run_elements(kernel(".reg .v4 .s32 v; add.s32 v, %r0, %r0;"), np.uint32)


@pytest.mark.parametrize(
    ("text", "value"), [("017", 15), ("0", 0), ("10", 10), ("0x1F", 31), ("0b101", 5), ("017U", 15), ("-010", -8)]
)
def test_a_leading_zero_makes_a_literal_octal(text: str, value: int) -> None:
    assert (run_elements(kernel(f"mov.s32 %r3, {text};"), np.int32) == value).all()


@pytest.mark.parametrize(
    ("declared", "reason"),
    [
        (".global .align 12 .b8 t[16];", "the alignment is 12; expected a power of two"),
        (".global .align 0 .b8 t[16];", "the alignment is 0; expected a power of two"),
        (".global .b32 t[];", "variable t has no size"),
        (".global .b8 t[16777217];", "16777217"),
    ],
)
def test_a_variable_has_a_size_and_an_alignment(declared: str, reason: str) -> None:
    with pytest.raises(PtxSyntaxError, match=reason):
        Program.parse(HEAD + declared)


@pytest.mark.parametrize(
    ("directives", "reason"),
    [
        (".maxntid 128 .minnctapersm 0", r"\.minnctapersm is 0; expected an integer in 1\.\."),
        (".maxntid 0", r"\.maxntid is 0"),
        (".reqntid 32, 0", r"\.reqntid is 0"),
        (".maxnreg 0", r"\.maxnreg is 0"),
        (".reqnctapercluster 0", r"\.reqnctapercluster is 0"),
    ],
)
def test_numbers_of_directives_are_positive(directives: str, reason: str) -> None:
    with pytest.raises(PtxSyntaxError, match=reason):
        Program.parse(f"{HEAD}.visible .entry k() {directives} {{ ret; }}")
    Program.parse(f"{HEAD}.visible .entry k() {directives.replace(' 0', ' 1')} .maxclusterrank 0 {{ ret; }}")


@pytest.mark.parametrize(
    ("declared", "bits"),
    [(".f32 g = 1e300", 0x7F800000), (".f32 g = -1e300", 0xFF800000), (".f32 g = 0d3FB999999999999A", 0x3DCCCCCD),
     (".f32 g = 1.5", 0x3FC00000), (".f32 g = 0", 0), (".f32 g = 0f7F812345", 0x7F812345)],
)  # fmt: skip
def test_an_initial_value_is_rounded_to_its_type(declared: str, bits: int) -> None:
    text = kernel("ld.global.b32 %r3, [g];", before=f".global {declared};")
    assert (run_elements(text, np.uint32) == bits).all()


def test_an_integer_is_no_initial_value_of_a_float() -> None:
    with pytest.raises(PtxSyntaxError, match=r"an integer cannot initialize a variable of type \.f32; write 0f"):
        Program.parse(HEAD + ".global .f32 g = 1;")


@pytest.mark.parametrize(
    ("body", "said"),
    [
        ("mov.b128 %rd2, %rd3;", "register %rd3 has 64 bits, type .b128 has 128"),
        ("mov.b128 %rd2, smem;", "register %rd2 has 64 bits, type .b128 has 128"),
    ],
)
def test_128_bits_do_not_fit_a_register_of_64(body: str, said: str) -> None:
    with pytest.raises(PtxSyntaxError, match=said):
        run_elements(kernel(body, shared_bytes=16), np.uint32)


def test_a_variable_takes_16_mib() -> None:
    Program.parse(HEAD + ".global .b8 t[16777216];\n.visible .entry k() { ret; }")


def test_b128_takes_16_bytes() -> None:
    body = ".shared .b128 a; .shared .b128 b; mov.u32 %r4, a; mov.u32 %r5, b; sub.u32 %r3, %r5, %r4;"
    assert (run_elements(kernel(body), np.uint32) == 16).all()


@pytest.mark.parametrize(("block", "fits"), [((32, 32, 1), True), ((32, 32, 2), False), ((16, 16, 16), False)])
def test_the_threads_of_a_block_are_its_extents_multiplied(block: tuple[int, int, int], fits: bool) -> None:
    program = Program.parse(HEAD + ".visible .entry k() { ret; }")
    if fits:
        program.launch("k", grid=1, block=block, args=[])
    else:
        with pytest.raises(LaunchError, match=f"{np.prod(block)} threads; at most 1024"):
            program.launch("k", grid=1, block=block, args=[])


@pytest.mark.parametrize("smem_bytes", [-1, -100, 227 * 1024 + 1])
def test_dynamic_shared_memory_is_a_count_up_to_the_most(smem_bytes: int) -> None:
    program = Program.parse(HEAD + ".visible .entry k() { ret; }")
    program.launch("k", grid=1, block=32, args=[], dynamic_smem_bytes=227 * 1024)
    with pytest.raises(LaunchError, match="bytes of shared memory"):
        program.launch("k", grid=1, block=32, args=[], dynamic_smem_bytes=smem_bytes)


@pytest.mark.parametrize("text", ["in-order:3", "reversed:1", "random:", "random:x"])
def test_only_random_has_a_seed(text: str) -> None:
    with pytest.raises(LaunchError, match="expected in-order, reversed, random or random:SEED"):
        Policy.parse(text)
    assert Policy.parse("random:5").seed == 5


@pytest.mark.parametrize(("value", "fits"), [(-128, True), (-129, False), (255, True), (256, False), (5.0, True)])
def test_8_bits_hold_signed_and_unsigned_integers(value: float, fits: bool) -> None:
    out = np.zeros(32, np.int32)
    program = Program.parse(kernel("ld.param.s8 %r3, [n];", parameters=".param .u64 out, .param .s8 n"))
    if fits:
        program.launch("k", grid=1, block=32, args=[out, value])
        assert (out == np.int64(value).astype(np.int8)).all()
    else:
        with pytest.raises(LaunchError, match=f"argument 1 is {value}; .* takes integers from -128 to 255"):
            program.launch("k", grid=1, block=32, args=[out, value])


def test_an_array_of_one_byte_has_that_byte() -> None:
    one = np.array([9], np.uint8)
    body = "ld.param.u64 %rd2, [one]; ld.global.u8 %r3, [%rd2]; add.u32 %r4, %r3, 1; st.global.u8 [%rd2], %r4;"
    out = np.zeros(1, np.uint32)
    program = Program.parse(kernel(body, parameters=".param .u64 out, .param .u64 one"))
    program.launch("k", grid=1, block=1, args=[out, one])
    assert (out[0], one[0]) == (9, 10)


def test_an_empty_array_is_an_argument() -> None:
    program = Program.parse(kernel("mov.u32 %r3, 4;", parameters=".param .u64 out, .param .u64 none"))
    out = np.zeros(32, np.uint32)
    program.launch("k", grid=1, block=32, args=[out, np.zeros(0, np.float16)])
    assert (out == 4).all()


def test_a_structure_is_bytes_or_a_tuple() -> None:
    program = Program.parse(kernel("mov.u32 %r3, 4;", parameters=".param .u64 out, .param .align 8 .b8 s[8]"))
    for wrong in (7, "text", bytes(9)):
        with pytest.raises(LaunchError, match="must be at most 8 bytes, or a tuple"):
            program.launch("k", grid=1, block=32, args=[np.zeros(32, np.uint32), wrong])


@pytest.mark.parametrize(("declared", "fits"), [("64", True), ("128", True), ("32", False), ("8", False)])
def test_a_tensor_map_parameter_is_aligned_as_the_driver_asks(declared: str, fits: bool) -> None:
    """CUtensorMap is 128 bytes at a multiple of 64."""
    array = np.zeros((16, 64), np.float16)
    tensor = TensorMap(array=array, extents=(64, 16), strides_bytes=(128,), box=(64, 8), swizzle_bytes=128)
    text = f"{HEAD}.visible .entry k(.param .align {declared} .b8 m[128]) {{ ret; }}"
    if fits:
        Program.parse(text).launch("k", grid=1, block=32, args=[tensor])
    else:
        with pytest.raises(LaunchError, match="argument 0"):
            Program.parse(text).launch("k", grid=1, block=32, args=[tensor])


def test_fewer_bytes_than_an_access_have_no_place_for_it() -> None:
    data = Bytes(np.zeros(5, np.uint8))
    assert [len(data.window(size)) for size in (1, 2, 4, 8, 16)] == [5, 4, 2, 0, 0]


def test_a_fault_survives_pickling_and_conventions_are_told_apart() -> None:
    instruction = Instruction(line=3, text="x;", guard=None, parts=("x",), operands=())
    monitor = Monitor((instruction,), ())
    for kind in (ViolationKind.RACE, ViolationKind.CONVENTION):
        monitor.report(kind, 0, "it is so", cta=(0, 0, 0), thread=1, address=None)
    assert [found.kind for found in monitor.violations] == [ViolationKind.RACE]
    assert [found.kind for found in monitor.conventions] == [ViolationKind.CONVENTION]
    fault = ExecutionFault(monitor.violations[0])
    again = pickle.loads(pickle.dumps(fault))
    assert (again.violation, str(again), again.line) == (fault.violation, str(fault), 3)
