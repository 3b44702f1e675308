"""PTX text is read as the ISA defines it, and what cannot be read is refused with its line and instruction."""

from __future__ import annotations

import numpy as np
import pytest
from kernels import kernel, run_elements

from cutegen.errors import PtxSyntaxError
from cutegen.ptx import Program


def test_scopes_hide_registers_and_labels() -> None:
    text = kernel(
        """
        mov.u32 %r1, 5;
        {
            .reg .b32 %r1, inner;
            mov.u32 %r1, 7;
            mov.u32 inner, 1;
            bra DONE;
            mov.u32 inner, 2;
        DONE:
            add.u32 %r2, %r1, inner;
        }
        {
            bra DONE;
            mov.u32 %r2, 0;
        DONE:
        }
        add.u32 %r3, %r2, %r1;
        """
    )
    assert run_elements(text, np.uint32)[0] == 7 + 1 + 5


@pytest.mark.parametrize(
    ("literal", "value"),
    [
        ("0x1F", 31),
        ("017", 15),
        ("0b101", 5),
        ("-1", 0xFFFFFFFF),
        ("4000000000U", 4000000000),
        ("0f3F800000", 0x3F800000),
        ("-0f3F800000", 0xBF800000),
        ("0fFF800001", 0xFF800001),  # a signaling NaN
    ],
)
def test_literals(literal: str, value: int) -> None:
    assert run_elements(kernel(f"mov.b32 %r3, {literal};"), np.uint32)[0] == value


def test_debug_lines_sections_and_functions_are_read_over() -> None:
    text = kernel("mov.u32 %r3, 9;\n.loc 1 53 5, function_name $L__info_string0, inlined_at 1 53 5\n")
    text += '.file 1 "a b.cu"\n.section .debug_str\n{\n.b8 1,2\n}\n.func helper(.param .b32 x)\n{\n  { ret; }\n}\n'
    assert run_elements(text, np.uint32)[0] == 9


@pytest.mark.parametrize(
    ("body", "message"),
    [
        ("tcgen05.mma.ws.cta_group::1.kind::f16 [%r1], %rd1, %rd1, %r1, %p1;", ".ws is not supported"),
        ("add.s32.foo %r1, %r1, 1;", "add.s32.foo is not PTX, or not supported here; the nearest that is: add.s32"),
        ("add.s32 %r1, %r1;", "expected 3 operands, found 2"),
        ("add.s64 %r1, %r1, 1;", "has 32 bits, type .s64 has 64"),
        ("add.s32 %r99, %r1, 1;", "%r99 is not one"),
        ("bra NOWHERE;", "no label NOWHERE"),
        ("shfl.sync.b32 %r1, %r9;", "expected 5 operands|expected one of"),
        ("shfl.sync.bfly.b32;", "expected 5 operands"),
        ("vote.sync.ballot.b32 %r9;", "expected 3 operands"),
        ("setp.lt %p1, %r9, %r1;", "setp.lt is not PTX"),
        ("createpolicy.fractional.L2::evict_last.b32 %r1;", "is not PTX"),
        ("createpolicy.range.L2::evict_last.b64 %rd1, [%rd1], 1;", "expected 4 operands, found 3"),
        ("selp.b32 %r1, %r9;", "expected 4 operands"),
        ("mov.u64 %rd1, %pm0;", "%pm0 is neither declared"),
        ("ld.global.v3.u32 {%r1, %r1, %r1}, [%rd1];", "a type is missing|modifier .v3"),
        ("cp.async.cg.shared.global [%r1], [%rd1], 8;", "16 bytes"),
        ("mma.sync.aligned.m16n8k16.row.col.f32.f16.bf16.f32 {%r1,%r1,%r1,%r1}, {%r1,%r1,%r1,%r1}, {%r1,%r1}, "
         "{%r1,%r1,%r1,%r1};", "f16 .bf16"),
        ("wmma.mma.sync.aligned.row.col.m16n16k16.f32 {%r1}, {%r1}, {%r1}, {%r1};", "wmma is not supported: .* mma"),
        ("st.bulk.weak.shared::cta [%rd1], 16, 0;", "st.bulk is not supported: .* st.shared"),
        ("red.async.relaxed.cluster.add.u32 [%r1], %r1, [%r1];", "red.async is not supported: write st.async"),
        ("tex.2d.v4.f32.f32 {%f1, %f1, %f1, %f1}, [t, {%f1, %f1}];", "tex is not supported: textures"),
        ("mma.sp.sync.aligned.m16n8k32.row.col.f16.f16.f16.f16 {%r1}, {%r1}, {%r1}, {%r1}, %r1, 0;", "mma.sp is not"),
        ("multimem.red.add.u32 [%rd1], %r1;", "multimem is not supported: a launch has one GPU"),
        ("setp.lo.s32 %p1, %r1, %r1;", "is not PTX, or not supported here; the nearest that is: setp.lo.u32"),
        ("@%r1 mov.u32 %r1, 0;", "not a predicate"),
    ],
)  # fmt: skip
def test_unknown_instructions_are_refused_with_line_and_text(body: str, message: str) -> None:
    with pytest.raises(PtxSyntaxError, match=message) as caught:
        Program.parse(kernel("mov.u32 %r1, 0;\n" + body)).prepare("k")
    assert caught.value.line == kernel("").count("\n", 0, kernel("").index("// body")) + 2 + 1


NESTED = "{ .reg .b32 q; .entry f() { ret; } }"


@pytest.mark.parametrize(
    ("body", "message"),
    [
        (NESTED, r"directive \.entry is not supported in a body"),
        ("mov.u32 %r1, 5", "expected ',', found '}'"),
        ("bra NOWHERE;", "no label NOWHERE is visible"),
        (".reg .b256 %q;", r"\.b256 is not a type that is known here"),
    ],
)
def test_a_body_that_cannot_be_read_keeps_no_other_from_running(body: str, message: str) -> None:
    before = f".visible .entry first() {{\n.reg .b32 %r<4>;\n{body}\n}}\n"
    text = kernel("mov.u32 %r3, 9;", before=before)
    assert (run_elements(text, np.uint32) == 9).all()
    program = Program.parse(text)
    assert list(program.entries) == ["first", "k"]
    with pytest.raises(PtxSyntaxError, match=message) as caught:
        program.launch("first", grid=1, block=1, args=[])
    assert caught.value.line in (7, 8)


def test_a_body_without_end_is_refused_at_its_first_error() -> None:
    before = ".visible .entry first() {\n.reg .b32 %r<4>;\n{ mov.u32 %r1, 5\n}\n"
    with pytest.raises(PtxSyntaxError, match="expected ',', found '}'") as caught:
        Program.parse(kernel("mov.u32 %r3, 9;", before=before))
    assert caught.value.line in (7, 8)


TWO_TABLES = """
    mov.u32 %r1, 1;
    { ts: .branchtargets A, B; brx.idx %r1, ts; }
    A: mov.u32 %r2, 1; bra M;
    B: mov.u32 %r2, 2;
    M: { ts: .branchtargets C, D; brx.idx %r1, ts;
    C: mov.u32 %r4, 10; bra N;
    D: mov.u32 %r4, 20;
    N: }
    add.u32 %r3, %r2, %r4;
"""


def test_tables_of_branch_targets_belong_to_their_scopes() -> None:
    """The second table has labels of its own scope; ptxas 13.0 takes both."""
    assert (run_elements(kernel(TWO_TABLES), np.uint32) == 22).all()


@pytest.mark.parametrize(
    ("body", "message"),
    [
        ("ts: .branchtargets A; { brx.idx %r1, ts; A: }", r"no label A is visible at this \.branchtargets"),
        ("{ ts: .branchtargets A; } brx.idx %r1, ts; A:", r"no \.branchtargets ts is visible here"),
        ("ts: .branchtargets A; ts: .branchtargets A; brx.idx %r1, ts; A:", "label ts is defined twice"),
        ("ts: .branchtargets A; ts: brx.idx %r1, ts; A:", "label ts is defined twice"),
    ],
)
def test_tables_that_ptxas_refuses(body: str, message: str) -> None:
    with pytest.raises(PtxSyntaxError, match=message):
        run_elements(kernel("mov.u32 %r1, 0; mov.u32 %r3, 0;" + body), np.uint32)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "add.s32 %r1, %r2;",
        ".version 8.0",
        ".version 8.0\n.target sm_80\n.entry k() {",
        ".version 8.0\n.target sm_80\n.entry k() { .reg .b32 %r<99999999999>; ret; }",
        ".version 8.0\n.target sm_80\n.address_size 32\n",
        ".version 8.0\n.target sm_80\n.entry k() { ret; }\n.entry k() { ret; }",
        ".version 8.0\n.target sm_80\n.shared .b8 big[99999999];\n",
        '.version 8.0\n.target sm_80\n.entry k() { mov.u32 "x", 1; }',
        ".version 8.0\n.target sm_80\n/* no end",
    ],
)
def test_broken_modules_are_refused(text: str) -> None:
    with pytest.raises(PtxSyntaxError):
        Program.parse(text).prepare("k")


def test_initialized_constants_and_globals_are_read() -> None:
    text = ".const .align 4 .b32 table[4] = {10, 20, 30, 40};\n.global .align 4 .u32 counter = 7;\n"
    body = "ld.const.u32 %r1, [table+8]; ld.global.u32 %r2, [counter]; add.u32 %r3, %r1, %r2;"
    assert run_elements(kernel(body, before=text), np.uint32)[0] == 37
