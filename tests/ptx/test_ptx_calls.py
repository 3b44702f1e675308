"""Calls in kernels of nvcc and by hand: values, frames, recursion, printf, assert; what is refused, and wrong twins."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from kernels import cuda_program, kernel

from cutegen.cli.main import main
from cutegen.errors import PtxSyntaxError
from cutegen.ptx import ExecutionFault, LaunchReport, Program, ViolationKind

POLICIES = ("in-order", "reversed", "random:1", "random:2", "random:3")
EVERY_POLICY = pytest.mark.parametrize("policy", POLICIES)
PROGRAM = cuda_program("calls")
K = ViolationKind


def run(entry: str, args: list[object], policy: str = "in-order", block: int = 64) -> LaunchReport:
    return PROGRAM.launch(entry, grid=1, block=block, args=args, policy=policy)  # type: ignore[arg-type]


@EVERY_POLICY
def test_structures_go_by_value_and_by_address(policy: str) -> None:
    out = np.zeros(64, np.float32)
    run("structures", [out, 10], policy)
    i = np.arange(64)
    assert (out == i / 2 + 10 + 10 * (i % 3)).all()


@EVERY_POLICY
def test_recursion_keeps_the_registers_of_each_level(policy: str) -> None:
    out, numbers = np.zeros(64, np.int32), [0, 1]
    while len(numbers) < 9:
        numbers.append(numbers[-1] + numbers[-2])
    run("recursion", [out], policy)
    assert out.tolist() == [numbers[i % 9] for i in range(64)]


@EVERY_POLICY
def test_each_level_has_its_own_variables(policy: str) -> None:
    numbers, out = np.random.default_rng(1).integers(-99, 99, 11).astype(np.int32), np.zeros(64, np.int32)
    run("halves", [numbers, out, 11], policy)
    assert (out == np.cumsum(numbers)[np.arange(64) % 11]).all()


@EVERY_POLICY
def test_functions_are_called_by_address(policy: str) -> None:
    """Virtual functions, by a table that is initialized with their addresses, and pointers that differ by lane."""
    out, i = np.zeros(64, np.int32), np.arange(64)
    run("by_address", [out, 20], policy)
    assert (out == np.where(i < 20, i * i, i) + np.where(i % 2, 3 * i, 2 * i)).all()


@EVERY_POLICY
def test_functions_synchronize_and_exit(policy: str) -> None:
    out, i = np.zeros(64, np.int32), np.arange(64)
    run("synchronized", [out], policy)
    assert (out == 10 * (i ^ 1)).all()
    numbers = np.random.default_rng(3).integers(-9, 9, 64).astype(np.int32)
    out[:] = -7
    run("leave_early", [numbers, out], policy)
    assert (out == np.where(numbers < 0, -7, numbers + 1)).all()


@EVERY_POLICY
def test_what_is_printed_is_in_the_report(policy: str) -> None:
    numbers = np.array([1, -2.5, 3, -4], np.float32)
    told: list[str] = []
    report = PROGRAM.launch("report", grid=1, block=4, args=[numbers, 4], policy=policy, printed=told.append)
    lines = {
        "1 of 4: -2.50 is negative, like -1 (x) 100%",
        "3 of 4: -4.00 is negative, like -1 (x) 100%",
        "1099511627776     7|-3   |ff 1.235e+04 0x10",
    }
    assert set(report.printed.splitlines()) == lines
    assert "".join(told) == report.printed


@EVERY_POLICY
def test_an_assertion_that_fails_ends_the_launch(policy: str) -> None:
    x, y, places = np.arange(8, dtype=np.float32), np.zeros(8, np.float32), np.arange(8, dtype=np.int32)[::-1].copy()
    run("gather", [x, places, y, 8], policy, block=32)
    assert (y == x[::-1]).all()
    places[5] = 8
    with pytest.raises(
        ExecutionFault, match=r"assertion `places\[i\] < n` failed \(calls\.cu:\d+, void gather"
    ) as caught:
        run("gather", [x, places, y, 8], policy, block=32)
    assert caught.value.violation.kind is K.TRAP
    assert caught.value.violation.thread == 5


def test_a_function_that_is_not_there_is_refused_by_name() -> None:
    with pytest.raises(PtxSyntaxError, match=r"does not define malloc, .* allocate on the host"):
        PROGRAM.prepare("allocate")
    run("recursion", [np.zeros(64, np.int32)])


@EVERY_POLICY
def test_a_recursion_without_end_is_a_fault(policy: str) -> None:
    numbers = np.array([0, 0, -1, -1], np.int32)
    run("overflow", [numbers, np.zeros(1, np.int32)], policy, block=1)
    numbers[2:] = 0
    with pytest.raises(ExecutionFault, match=r"_Z7endless.* calls itself without end, or too often") as caught:
        run("overflow", [numbers, np.zeros(1, np.int32)], policy, block=1)
    assert caught.value.violation.kind is K.OUT_OF_BOUNDS


ADD = """
.func (.param .b32 sum) add(.param .b32 a, .param .b32 b) {
    .local .align 4 .b8 place[8];
    .reg .b32 %r<4>; .reg .pred %p<2>; .reg .b64 %rd<2>;
    ld.param.b32 %r1, [a]; ld.param.b32 %r2, [b];
    add.u32 %r3, %r1, %r2;
    {middle}
    st.param.b32 [sum], %r3;
    ret;
}
"""


def call(
    name: str = "add", *, guard: str = "", arguments: str = "(p0, p1)", result: str = "(q), ", more: str = ""
) -> str:
    """Calls `add` of the thread and 5; the result is in %r3."""
    return f"""
    mov.u32 %r3, 77;
    {{
        .param .b32 p0; .param .b32 p1; .param .b32 q; .param .b64 wide;
        st.param.b32 [p0], %r0; st.param.b32 [p1], 5;
        {guard} call.uni {result}{name}, {arguments}{more};
        {guard} ld.param.b32 %r3, [q];
    }}
    """


def launch(body: str, *, middle: str = "", before: str = ADD, policy: str = "in-order", block: int = 32) -> np.ndarray:
    out = np.zeros(block, np.uint32)
    text = kernel(body, before=before.replace("{middle}", middle))
    Program.parse(text).launch("k", grid=1, block=block, args=[out], policy=policy, max_steps=100_000)
    return out


LANES = np.arange(32)


@EVERY_POLICY
@pytest.mark.parametrize(
    ("middle", "found"),
    [
        ("", LANES + 5),
        ("setp.gt.u32 %p1, %r1, 9; @%p1 mov.u32 %r3, 1;", np.where(LANES > 9, 1, LANES + 5)),
        ("setp.gt.u32 %p1, %r1, 9; @!%p1 bra GO; st.param.b32 [sum], 2; ret; GO:", np.where(LANES > 9, 2, LANES + 5)),
        ("st.local.u32 [place+4], %r3; ld.local.u32 %r1, [place+4]; add.u32 %r3, %r1, 1;", LANES + 6),
        ("mov.b64 %rd1, place; st.local.u32 [%rd1], 9; ld.local.u32 %r3, [place];", LANES * 0 + 9),
    ],
)
def test_bodies_of_functions(middle: str, found: np.ndarray, policy: str) -> None:
    assert (launch(call(), middle=middle, policy=policy) == found).all()


@EVERY_POLICY
def test_some_lanes_call(policy: str) -> None:
    body = "setp.lt.u32 %p1, %r0, 20;" + call(guard="@%p1") + call(guard="@!%p1") + "@%p1 add.u32 %r3, %r0, 5;"
    assert (launch(body, policy=policy) == LANES + 5).all()


@EVERY_POLICY
def test_names_and_registers_are_the_functions_own(policy: str) -> None:
    """Two functions with equal names of labels, variables and registers, one of which calls the other."""
    outer = ADD.replace("add(", "outer(").replace("{middle}", "{ .param .b32 a; .param .b32 b; .param .b32 sum;"
        "st.param.b32 [a], %r1; st.param.b32 [b], %r1; call (sum), add, (a, b); ld.param.b32 %r1, [sum]; }"
        "LOOP: add.u32 %r3, %r3, %r1;")  # fmt: skip
    found = launch(call("outer"), before=ADD + outer, middle="LOOP: mov.u32 %r1, 0;", policy=policy)
    assert (found == LANES + 5 + 2 * LANES).all()


MISTAKES = [
    ("no result", ("st.param.b32 [sum], %r3;", ""), K.UNINITIALIZED, "local memory that was never written"),
    ("a register that only another level wrote", ("add.u32 %r3, %r1, %r2;", ""), K.UNINITIALIZED, "32-bit register"),
    ("a variable of an earlier call", ("ret;", "ld.local.u32 %r1, [place]; st.local.u32 [place], %r1; ret;"),
     K.UNINITIALIZED, "local memory"),
    ("an access past the stack", ("ret;", "mov.b64 %rd1, place; ld.local.u32 %r1, [%rd1+65536]; ret;"),
     K.OUT_OF_BOUNDS, "bytes of local memory"),
    ("a barrier that half of the lanes call", ("ret;", "setp.gt.u32 %p1, %r1, 9; @%p1 ret; bar.sync 0; ret;"),
     K.DIVERGENCE, "not all lanes"),
]  # fmt: skip


@EVERY_POLICY
@pytest.mark.parametrize(("name", "change", "kind", "says"), MISTAKES, ids=[row[0] for row in MISTAKES])
def test_mistakes_in_functions(name: str, change: tuple[str, str], kind: ViolationKind, says: str, policy: str) -> None:
    twice = call() + call()
    assert (launch(twice, policy=policy) == LANES + 5).all()
    with pytest.raises(ExecutionFault, match=says) as caught:
        launch(twice, before=ADD.replace(*change, 1), policy=policy)
    assert caught.value.violation.kind is kind


def test_padding_of_a_structure_may_be_copied() -> None:
    """Compilers copy all bytes of an array, also those that nobody writes; what they move is not a number."""
    before = ".func (.param .align 4 .b8 s[8]) f() { st.param.b32 [s], 3; ret; }"
    body = "{ .param .align 4 .b8 q[8]; call.uni (q), f; ld.param.b32 %r3, [q]; ld.param.b32 %r4, [q+4]; } "
    assert (launch(body, before=before) == 3).all()
    assert (launch(body.replace("%r4, [q+4]", "%r3, [q+4]"), before=before) == 0xFFFFFFFF).all()


PROTOTYPE = "F: .callprototype (.param .b32 _) _ (.param .b32 _, .param .b32 _);"


@pytest.mark.parametrize(
    ("before", "body", "message"),
    [
        (ADD, call("sub"), "the file does not define sub, which is called here; define it in this file"),
        (ADD, call("__assert_fail"), "compile with -DNDEBUG"),
        (".extern .func (.param .b32 r) g(.param .b32 a);", call("g"), "does not define g, .* __forceinline__"),
        (ADD, call(arguments="(p0)"), r"the call passes \(4\) f\(4\) in bytes; add takes \(4\) f\(4, 4\)"),
        (ADD, call(arguments="(p0, wide)"), r"passes \(4\) f\(4, 8\) in bytes; add takes \(4\) f\(4, 4\)"),
        (ADD, call(result=""), r"the call passes \(\) f\(4, 4\)"),
        (ADD, call(arguments="(p0, %r1)"), r"are \.param variables"),
        (ADD, call("vprintf"), r"the call passes \(4\) f\(4, 4\) in bytes; vprintf takes \(4\) f\(8, 8\)"),
        (ADD, call(more=", (p0)"), r"expected call \{"),
        (ADD, call("%rd1"), "an indirect call takes a 64-bit register and a .callprototype"),
        (ADD, call("%rd1", more=", F"), "no .callprototype F is visible"),
        (ADD, call("%r1", more=", F") + PROTOTYPE, "an indirect call takes a 64-bit register"),
        (ADD, "F: .calltargets add;", r"a list of \.calltargets is not supported"),
        (ADD, "call add.cc;", "does not define add.cc"),
        (ADD, "call;", r"expected call \{"),
        (ADD.replace("{middle}", "tcgen05.x;"), call(), "line 11: instruction tcgen05 is not supported"),
        (ADD.replace("{middle}", "bra NOWHERE;"), call(), "line 11: no label NOWHERE"),
        (ADD.replace("ld.param.b32 %r1, [a];", "mov.b64 %rd1, place+4;"), call(), "add an offset to it by add"),
        (ADD.replace(".param .b32 a,", ".reg .b32 a,"), call(), "parameters in registers are not supported"),
        (ADD.replace(".param .b32 b)", ".param .b8 b[])"), call(), "a variable number of arguments"),
        (ADD + ADD, call(), "function add is defined twice"),
        (".global .u64 t[1] = {nothing};", "", "t is initialized with the address of nothing; expected a variable"),
        (".global .u32 t[1] = {t};", "", "an address initializes .u64, not .u32"),
    ],
)
def test_refusals_name_the_line_and_the_fix(before: str, body: str, message: str) -> None:
    with pytest.raises(PtxSyntaxError, match=message):
        launch(body, before=before)


def test_a_function_that_cannot_be_read_stops_only_its_callers() -> None:
    text = kernel("mov.u32 %r3, 6;", before=ADD.replace("{middle}", "add.u32 %r3"))
    out = np.zeros(32, np.uint32)
    Program.parse(text).launch("k", grid=1, block=32, args=[out])
    assert (out == 6).all()


@EVERY_POLICY
def test_an_address_that_is_not_a_functions_is_a_fault(policy: str) -> None:
    body = PROTOTYPE + "mov.b64 %rd2, {target};" + call("%rd2", more=", F")
    assert (launch(body.replace("{target}", "add"), policy=policy) == LANES + 5).all()
    with pytest.raises(ExecutionFault, match="no function with the prototype"):
        launch(body.replace("{target}", "64"), policy=policy)
    other = ".func other(.param .b32 a) { ret; }" + ADD
    with pytest.raises(ExecutionFault, match=r"no function with the prototype \(4\) f\(4, 4\)"):
        launch(body.replace("{target}", "other"), before=other, policy=policy)


@pytest.mark.parametrize(
    ("text", "values", "printed"),
    [
        ("%d|%i|%+d|% d", (-3, 4, 5, 6), "-3|4|+5| 6"),
        ("%5d|%-5d|%05d|%.3d", (7, 7, 7, 7), "    7|7    |00007|007"),
        ("%u|%x|%X|%o", (0xFFFFFFFF, 255, 255, 8), "4294967295|ff|FF|10"),
        ("%c%c%%", (65, 66), "AB%"),
        ("%*d|%.*d", (4, 7, 3, 7), "   7|007"),
        ("%hhd %n%s", (5,), None),
    ],
)
def test_formats(text: str, values: tuple[int, ...], printed: str | None) -> None:
    """Against C's rules, worked out by hand; a string that does not exist is out of bounds."""
    octets = ", ".join(map(str, [*text.encode(), 0]))
    stores = "".join(f"st.local.b32 [args+{4 * i}], {value};" for i, value in enumerate(values))
    body = (
        f"""
    .local .align 8 .b8 args[64]; {stores} st.local.b64 [args+8], 0;
    """
        if printed is None
        else f".local .align 8 .b8 args[64]; {stores}"
    )
    body += """
    mov.b64 %rd2, args; cvta.local.u64 %rd2, %rd2; mov.b64 %rd3, text; cvta.global.u64 %rd3, %rd3;
    { .param .b64 p0; .param .b64 p1; .param .b32 q; st.param.b64 [p0], %rd3; st.param.b64 [p1], %rd2;
      call.uni (q), vprintf, (p0, p1); ld.param.b32 %r3, [q]; }
    """
    out, before = np.zeros(1, np.uint32), f".global .align 1 .b8 text[{len(text) + 1}] = {{{octets}}};"
    program = Program.parse(kernel(body, before=before))
    if printed is None:
        with pytest.raises(ExecutionFault, match=r"out of bounds|never written"):
            program.launch("k", grid=1, block=1, args=[out])
        return
    assert program.launch("k", grid=1, block=1, args=[out]).printed == printed
    assert out[0] == len(values)


PRINTS = kernel(
    """
    .local .align 8 .b8 args[8]; st.local.b32 [args], %r0; mov.b64 %rd2, args; cvta.local.u64 %rd2, %rd2;
    mov.b64 %rd3, text; cvta.global.u64 %rd3, %rd3; { .param .b64 p0; .param .b64 p1; .param .b32 q;
    st.param.b64 [p0], %rd3; st.param.b64 [p1], %rd2; call.uni (q), vprintf, (p0, p1); ld.param.b32 %r3, [q]; }
    """,
    before=f".global .align 1 .b8 text[11] = {{{', '.join(map(str, b'thread %d'))}, 10}};",
)


def test_check_and_run_show_what_is_printed(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "k.ptx"
    path.write_text(PRINTS)
    options = [str(path), "--grid", "1", "--block", "2", "--arg", "u32[2]:zeros"]
    assert main(["check", *options]) == 0
    assert capsys.readouterr().out.endswith("printed in in-order:\n  thread 0\n  thread 1\n")
    assert main(["run", "--ptx", *options]) == 0
    assert "printed in in-order:\n  thread 0\n  thread 1\n" in capsys.readouterr().out
    path.write_text(path.read_text().replace("st.global.b32 [%rd1], %r3;", "trap;"))
    assert main(["run", "--ptx", *options]) != 0
    said = capsys.readouterr()
    assert said.err.startswith("thread 0\nthread 1\n")
    assert "the program gave up" in said.err
