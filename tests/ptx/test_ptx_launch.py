"""Launching: arguments, shapes, orders, processes, and what the report counts."""

from __future__ import annotations

import contextlib
import multiprocessing
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from kernels import cuda_program, kernel

from cutegen.errors import PtxSyntaxError
from cutegen.ptx import (
    IN_ORDER,
    REVERSED,
    ExecutionFault,
    LaunchError,
    Policy,
    Program,
    ViolationKind,
    parallel,
    random_order,
)
from cutegen.ptx.instructions import row_of
from cutegen.ptx.text import flow, undefined
from cutegen.ptx.text.parser import parse_module
from cutegen.ptx.watch import global_shadow, paged


def test_numbers_are_packed_by_the_declared_type() -> None:
    parameters = ".param .u64 out, .param .u8 a, .param .s16 b, .param .f32 c, .param .f64 d, .param .u64 e"
    body = """
        .reg .f64 %d<3>; .reg .f32 %g<3>;
        ld.param.u8 %r4, [a]; ld.param.s16 %r5, [b]; ld.param.f32 %g0, [c]; ld.param.f64 %d0, [d];
        ld.param.u64 %rd3, [e];
        cvt.rzi.s32.f32 %r6, %g0; cvt.rzi.s32.f64 %r7, %d0; cvt.u32.u64 %r8, %rd3;
        add.s32 %r3, %r4, %r5; add.s32 %r3, %r3, %r6; add.s32 %r3, %r3, %r7; add.s32 %r3, %r3, %r8;"""
    out = np.zeros(32, np.int32)
    program = Program.parse(kernel(body, parameters=parameters))
    program.launch("k", grid=1, block=32, args=[out, 200, -1000, 10.75, np.float64(20.5), 1 << 33 | 3])
    assert (out == 200 - 1000 + 10 + 20 + 3).all()


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ([], "has 2 parameters, 0 arguments"),
        ([np.zeros(32, np.uint32), np.zeros(4)], "argument 1 is an array, its parameter is .u8"),
        ([np.zeros(32, np.uint32), 256], "takes integers from -128 to 255"),
        ([np.zeros(32, np.uint32), 1.5], "takes integers of 8 bits"),
        ([np.zeros(32, np.uint32), b"x"], "is a structure"),
        ([np.zeros(0, object), 1], "argument 0 is an array of Python objects; expected numbers"),
    ],
)
def test_arguments_that_do_not_fit_are_refused(arguments: list[object], message: str) -> None:
    program = Program.parse(kernel("mov.u32 %r3, 0;", parameters=".param .u64 out, .param .u8 n"))
    with pytest.raises(LaunchError, match=message):
        program.launch("k", grid=1, block=32, args=arguments)


def test_structures_are_laid_out_as_c_does() -> None:
    body = "ld.param.u64 %rd2, [s+8]; ld.param.u32 %r4, [s]; ld.global.u32 %r5, [%rd2]; add.u32 %r3, %r4, %r5;"
    program = Program.parse(kernel(body, parameters=".param .u64 out, .param .align 8 .b8 s[16]"))
    out = np.zeros(32, np.uint32)
    program.launch("k", grid=1, block=32, args=[out, (np.int32(5), np.array([37], np.uint32))])
    assert (out == 42).all()


def test_views_of_one_array_alias() -> None:
    body = "ld.param.u64 %rd2, [other]; sub.u64 %rd2, %rd2, %rd0; cvt.u32.u64 %r3, %rd2;"
    program = Program.parse(kernel(body, parameters=".param .u64 out, .param .u64 other"))
    whole = np.zeros((2, 64), np.uint32)
    program.launch("k", grid=1, block=32, args=[whole[0, :32], whole[1, 1:]])
    assert (whole[0, :32] == 65 * 4).all()
    assert (whole[0, 32:] == 0).all()


def test_each_view_has_its_own_bounds() -> None:
    whole = np.zeros(64, np.uint32)
    with pytest.raises(ExecutionFault, match="out of bounds"):
        Program.parse(kernel("mov.u32 %r3, 1;")).launch("k", grid=1, block=33, args=[whole[:32]])


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"grid": 0, "block": 32}, "grid is 0"),
        ({"grid": (1, 2, 3, 4), "block": 32}, "grid is"),
        ({"grid": 1, "block": 1025}, "at most 1024"),
        ({"grid": 1, "block": 32, "dynamic_smem_bytes": 300_000}, "bytes of shared memory"),
        ({"grid": 1, "block": 32, "policy": "sideways"}, "expected in-order, reversed, random"),
        ({"grid": 1, "block": 32, "jobs": 0}, "jobs is 0"),
        ({"grid": (4096, 2048), "block": 32}, r"grid \(4096, 2048, 1\) has 8,388,608 CTAs; at most 4,194,304"),
    ],
)
def test_launches_that_cannot_be_are_refused(options: dict[str, object], message: str) -> None:
    with pytest.raises(LaunchError, match=message):
        Program.parse(kernel("mov.u32 %r3, 0;")).launch("k", args=[np.zeros(2048, np.uint32)], **options)


def test_a_required_block_size_is_required() -> None:
    text = kernel("mov.u32 %r3, 0;").replace(".param .u64 out)", ".param .u64 out)\n.reqntid 32, 2, 1")
    with pytest.raises(LaunchError, match="requires"):
        Program.parse(text).launch("k", grid=1, block=64, args=[np.zeros(64, np.uint32)])


def test_blocks_and_grids_have_three_dimensions() -> None:
    body = """
        mov.u32 %r4, %tid.y; mov.u32 %r5, %tid.z; mov.u32 %r6, %ntid.x; mov.u32 %r7, %ntid.y;
        mad.lo.u32 %r8, %r5, %r7, %r4; mad.lo.u32 %r8, %r8, %r6, %r0;
        mov.u32 %r9, %ctaid.y; mov.u32 %r10, %ctaid.z; mov.u32 %r11, %nctaid.y; mad.lo.u32 %r12, %r10, %r11, %r9;
        mad.lo.u32 %r13, %r12, 24, %r8; mul.wide.u32 %rd1, %r13, 4; add.s64 %rd1, %rd0, %rd1; mov.u32 %r3, %r13;"""
    out = np.zeros(6 * 24, np.uint32)
    Program.parse(kernel(body)).launch("k", grid=(1, 2, 3), block=(2, 3, 4), args=[out])
    assert (out == np.arange(6 * 24)).all()


def test_policies_order_warps_and_are_reproducible() -> None:
    body = "mov.u32 %r3, 0; atom.global.add.u32 %r3, [%rd0+512], 1;"

    def order(policy: Policy | str) -> list[int]:
        out = np.zeros(129, np.uint32)
        Program.parse(kernel(body)).launch("k", grid=1, block=128, args=[out], policy=policy)
        return out[:128:32].tolist()

    assert order(IN_ORDER) == [0, 32, 64, 96]
    assert order(REVERSED) == [96, 64, 32, 0]
    assert order(random_order(3)) == order("random:3")
    assert len({tuple(order(random_order(seed))) for seed in range(8)}) > 2


def test_several_processes_give_the_same_result_and_report() -> None:
    m, n, k = 130, 100, 64
    rng = np.random.default_rng(0)
    a, b = (rng.standard_normal(shape).astype(np.float16) for shape in ((m, k), (n, k)))
    program = cuda_program("pipelined_gemm")
    outs, reports, progress = [], [], []
    for jobs in (1, 2):
        out = np.zeros((m, n), np.float32)
        report = program.launch(
            "pipelined_gemm",
            grid=(2, 3),
            block=128,
            args=[a, b, out, m, n, k],
            dynamic_smem_bytes=24576,
            jobs=jobs,
            progress=lambda done, total: progress.append((done, total)),
        )
        outs.append(out)
        reports.append(report)
    assert (outs[0] == outs[1]).all()
    assert reports[0] == reports[1]
    assert progress[:6] == [(i + 1, 6) for i in range(6)]
    assert progress[-1] == (6, 6)


def test_a_fault_in_another_process_comes_back() -> None:
    program = Program.parse(kernel("ld.global.u32 %r3, [%rd1+4096];"))
    with pytest.raises(ExecutionFault) as caught:
        program.launch("k", grid=2, block=32, args=[np.zeros(32, np.uint32)], jobs=2)
    assert caught.value.violation.kind is ViolationKind.OUT_OF_BOUNDS


ENDLESS = "mov.u32 %r3, %ctaid.x; setp.eq.u32 %p0, %r3, 0; @%p0 bra DONE; AGAIN: bra AGAIN; DONE: mov.u32 %r3, 1;"
"""CTA 0 ends, the others never do."""


def test_workers_are_ended_and_not_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    """Ctrl-C arrives while a CTA has 500,000 more steps to go."""
    workers: list[Any] = []
    blocked: list[bool] = []

    class Pool(parallel.ProcessPoolExecutor):
        def shutdown(self, **options: Any) -> None:
            workers.extend((self._processes or {}).values())
            super().shutdown(**options)

    def interrupt(done: int, total: int) -> None:
        blocked.extend(blocks_sigint(child.pid) for child in multiprocessing.active_children())
        raise KeyboardInterrupt

    monkeypatch.setattr(parallel, "ProcessPoolExecutor", Pool)
    options = {"grid": 2, "block": 32, "args": [np.zeros(32, np.uint32)], "jobs": 2, "max_steps": 1_000_000_000}
    with pytest.raises(KeyboardInterrupt):
        Program.parse(kernel(ENDLESS)).launch("k", **options, progress=interrupt)
    assert [worker.exitcode for worker in workers] == [-signal.SIGTERM] * 2
    assert blocked == [True] * 2
    assert not blocks_sigint(os.getpid())


def blocks_sigint(process: int | None) -> bool:
    """Return whether the process does not hear Ctrl-C: a bit of SigBlk, from signal 1 on (proc(5))."""
    lines = Path(f"/proc/{process}/status").read_text().splitlines()
    mask = next(line.split()[1] for line in lines if line.startswith("SigBlk"))
    return bool(int(mask, 16) >> (signal.SIGINT - 1) & 1)


INTERRUPTED = """
import signal
import numpy as np
from cutegen.ptx import Program

if __name__ == "__main__":
    signal.signal(signal.SIGINT, signal.default_int_handler)  # a shell's job in the background does not hear it
    options = {"grid": 2, "block": 32, "args": [np.zeros(32, np.uint32)], "jobs": 2, "max_steps": 1_000_000_000}
    program = Program.parse(open("kernel.ptx").read())
    try:
        program.launch("k", **options, progress=lambda done, total: print(done, flush=True))
    except KeyboardInterrupt:
        print("interrupted")
"""


def test_ctrl_c_at_a_terminal_is_heard_once(tmp_path: Path) -> None:
    """A terminal sends it to every process of the group; workers say nothing about it."""
    (tmp_path / "kernel.ptx").write_text(kernel(ENDLESS))
    (tmp_path / "launch.py").write_text(INTERRUPTED)
    command = [sys.executable, str(tmp_path / "launch.py")]
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
    with subprocess.Popen(command, cwd=tmp_path, start_new_session=True, **pipes) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "1\n"
        out, errors = interrupted(process)
    assert (out, errors, process.returncode) == ("interrupted\n", "", 0)


def interrupted(process: subprocess.Popen[str]) -> tuple[str, str]:
    """What a process says after Ctrl-C; pressed again where a busy machine has not come to it, as a person would."""
    for _ in range(5):
        os.killpg(process.pid, signal.SIGINT)
        with contextlib.suppress(subprocess.TimeoutExpired):
            return process.communicate(timeout=20)
    os.killpg(process.pid, signal.SIGKILL)
    raise AssertionError("Ctrl-C was not heard")


def test_workers_end_and_files_go_when_the_process_that_wanted_them_is_killed(tmp_path: Path) -> None:
    (tmp_path / "kernel.ptx").write_text(kernel(ENDLESS))
    (tmp_path / "launch.py").write_text(INTERRUPTED)
    command = [sys.executable, str(tmp_path / "launch.py")]
    (tmp_path / "tmp").mkdir()
    options = {"cwd": tmp_path, "env": {**os.environ, "TMPDIR": str(tmp_path / "tmp")}, "start_new_session": True}
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, **options) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "1\n"
        assert list((tmp_path / "tmp").iterdir())
        process.kill()
        process.wait()
        deadline_s = time.monotonic() + 60
        while (alive := of_group(process.pid)) and time.monotonic() < deadline_s:
            time.sleep(0.05)
        for each in alive:
            os.kill(each, signal.SIGKILL)
    assert alive == []
    assert list((tmp_path / "tmp").iterdir()) == []


def of_group(group: int) -> list[int]:
    """The processes of a group that run (proc(5): behind the name, which ends with ")", state, parent, group)."""
    found = []
    for stat in Path("/proc").glob("[0-9]*/stat"):
        with contextlib.suppress(OSError):
            state, _, of, *_ = stat.read_text().rpartition(")")[2].split()
            if int(of) == group and state != "Z":
                found.append(int(stat.parent.name))
    return found


def test_ctas_that_communicate_run_in_one_process() -> None:
    program = Program.parse(kernel("mov.u32 %r3, 0; red.global.add.u32 [%rd0+128], 1;"))
    with pytest.raises(LaunchError, match="communicate"):
        program.launch("k", grid=2, block=32, args=[np.zeros(33, np.uint32)], jobs=2)


def test_executed_counts_follow_divergence() -> None:
    body = """
        mov.u32 %r3, 0; setp.lt.u32 %p1, %r0, 40; @%p1 bra A;
        add.u32 %r3, %r3, 1; bra.uni B;
        A: add.u32 %r3, %r3, 2; add.u32 %r3, %r3, 2;
        B: add.u32 %r3, %r3, 8;"""
    out = np.zeros(96, np.uint32)
    report = Program.parse(kernel(body)).launch("k", grid=1, block=96, args=[out])
    assert out.tolist() == [12] * 40 + [9] * 56
    assert [i.executed for i in report.matching("add.u32")] == [2, 2, 2, 3]


def test_loops_of_different_length_meet_again() -> None:
    body = """
        mov.u32 %r3, 0; and.b32 %r4, %r0, 7;
        LOOP: setp.ge.u32 %p1, %r3, %r4; @%p1 bra END; add.u32 %r3, %r3, 1; bra.uni LOOP;
        END: shfl.sync.bfly.b32 %r5, %r3, 1, 31, -1; mad.lo.u32 %r3, %r5, 100, %r3;"""
    out = np.zeros(32, np.uint32)
    Program.parse(kernel(body)).launch("k", grid=1, block=32, args=[out])
    assert out.tolist() == [(i % 8) + 100 * ((i ^ 1) % 8) for i in range(32)]


def test_switches_reach_every_target() -> None:
    body = """
        and.b32 %r4, %r0, 3; mov.u32 %r3, 0; brx.idx %r4, table;
        table: .branchtargets L0, L1, L2, L0;
        L0: add.u32 %r3, %r3, 10; bra.uni END;
        L1: add.u32 %r3, %r3, 20; bra.uni END;
        L2: add.u32 %r3, %r3, 30;
        END: add.u32 %r3, %r3, %r0;"""
    out = np.zeros(32, np.uint32)
    Program.parse(kernel(body)).launch("k", grid=1, block=32, args=[out])
    assert out.tolist() == [(10, 20, 30, 10)[i % 4] + i for i in range(32)]


@pytest.mark.parametrize(("cluster", "policy"), [(1, "in-order"), (1, "reversed"), (2, "random:1")])
def test_a_barrier_of_a_grid_that_is_larger_than_what_takes_turns(cluster: int, policy: str) -> None:
    """Every CTA adds to a counter, waits for all, and reads what the last one has written."""
    body = """
        mov.u32 %r1, %ctaid.x; mov.u32 %r2, %nctaid.x; mul.wide.u32 %rd2, %r1, 4; add.s64 %rd1, %rd0, %rd2;
        setp.ne.u32 %p0, %r0, 0; @%p0 bra MET; add.u32 %r4, %r1, 1000; st.global.u32 [%rd1+1024], %r4;
        red.release.gpu.global.add.u32 [%rd0+4096], 1;
        AGAIN: ld.acquire.gpu.global.u32 %r5, [%rd0+4096]; setp.lt.u32 %p1, %r5, %r2; @%p1 bra AGAIN;
        MET: bar.sync 0; @%p0 bra END; sub.u32 %r6, %r2, %r1; add.s32 %r6, %r6, -1; mul.wide.u32 %rd3, %r6, 4;
        add.s64 %rd3, %rd0, %rd3; ld.global.u32 %r3, [%rd3+1024]; st.global.u32 [%rd1], %r3; END: ret;"""
    out, ctas = np.zeros(1025, np.uint32), 20 * cluster
    report = Program.parse(kernel(body)).launch(
        "k", grid=ctas, block=32, cluster=cluster, args=[out], policy=policy, max_steps=200_000
    )
    assert out[:ctas].tolist() == [1000 + ctas - 1 - i for i in range(ctas)]
    assert report.steps < 100_000


def test_barrier_reductions_count_the_whole_cta() -> None:
    body = "setp.lt.u32 %p1, %r0, 40; bar.red.popc.u32 %r3, 0, %p1; bar.red.or.pred %p2, 0, !%p1; @!%p2 mov.u32 %r3, 0;"
    out = np.zeros(64, np.uint32)
    Program.parse(kernel(body)).launch("k", grid=1, block=64, args=[out])
    assert (out == 40).all()


def test_an_entry_that_cannot_be_readied_keeps_no_other_from_running() -> None:
    other = kernel("mov.u64 %rd2, %pm0; mov.u32 %r3, 0;").partition(".visible")[2].replace("k(", "timed(", 1)
    program = Program.parse(kernel("mov.u32 %r3, 7;") + ".visible" + other)
    out = np.zeros(32, np.uint32)
    program.launch("k", grid=1, block=32, args=[out])
    assert set(out.tolist()) == {7}
    with pytest.raises(PtxSyntaxError, match="%pm0 is neither declared"):
        program.launch("timed", grid=1, block=32, args=[out])


@pytest.mark.parametrize("blocks", [1, 2000])
def test_readying_looks_at_each_register_a_few_times(blocks: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """A chain of additions, each to a register of its own: bounded by the registers that are looked at, and by bits."""
    looked = []
    keys = flow.keys_of
    monkeypatch.setattr(flow, "keys_of", lambda operands: looked.append(len(operands)) or keys(operands))
    count = 6000
    body = [f"L{i}: " * (i % (count // blocks) == 0) + f"add.u32 %q{i + 1}, %q{i}, 1;" for i in range(count)]
    text = kernel(f".reg .b32 %q<{count + 1}>; mov.u32 %q0, 0;" + "\n".join(body) + f"mov.u32 %r3, %q{count};")
    entry = parse_module(text).entries[0]
    rows = [row_of(instruction) for instruction in entry.instructions]
    graph = flow.build_flow(entry, [row.ends for row in rows])
    looked.clear()
    written = [flow.written_registers(instruction, sources_only=False) for instruction in entry.instructions]
    suspects = undefined.suspect_reads(entry, graph, written, [True] * len(written), ())
    assert not suspects.reads
    assert len(looked) < 8 * count
    uses = [undefined._uses(entry, block, written) for block in graph.blocks]
    assert sum(len(keys) for use in uses for keys in use.exposed.values()) <= 4 * len(graph.blocks)


@pytest.mark.parametrize(
    ("body", "earlier"),
    [
        ("mov.u32 %r3, %ctaid.x;", "write"),
        (
            "mov.u32 %r9, %ctaid.x; setp.ne.u32 %p1, %r9, 3; mov.u32 %r3, 7; @%p1 ld.global.u32 %r3, [%rd1]; @%p1 ret;",
            "read",
        ),
    ],
)
def test_races_between_ctas_of_different_processes_are_found(body: str, earlier: str) -> None:
    """Four CTAs, each in a task of its own, write the same words; or one writes what the others read."""
    options = {"grid": 4, "block": 32, "jobs": 2}
    program = Program.parse(kernel(body))
    with pytest.raises(
        ExecutionFault, match=rf"race: write of global memory.* the {earlier} by thread \d+ of CTA number"
    ):
        program.launch("k", args=[np.zeros(32, np.uint32)], **options)
    report = program.launch("k", args=[np.zeros(32, np.uint32)], raise_on=(), **options)
    assert [violation.kind for violation in report.violations] == [ViolationKind.RACE]


def test_ctas_of_different_processes_may_read_the_same_and_write_their_own() -> None:
    body = (
        "mov.u32 %r9, %ctaid.x; mul.wide.u32 %rd2, %r9, 128; ld.global.u32 %r3, [%rd0+512]; add.s64 %rd1, %rd1, %rd2;"
    )
    memory = np.arange(160, dtype=np.uint32)
    Program.parse(kernel(body)).launch("k", grid=4, block=32, args=[memory], jobs=2)
    assert set(memory[:128].tolist()) == {128}


@pytest.mark.parametrize("jobs", [1, 2])
@pytest.mark.parametrize("place", ["[table]", "[%rd4]"])
def test_variables_of_the_module_are_the_same_for_all_ctas(place: str, jobs: int) -> None:
    body = f"mov.u64 %rd4, table; mov.u32 %r9, %ctaid.x; st.global.u32 {place}, %r9; ld.global.u32 %r3, {place};"
    body += "mul.wide.u32 %rd2, %r9, 4; add.s64 %rd1, %rd0, %rd2;"
    program = Program.parse(kernel(body, before=".global .u32 table;"))
    report = program.launch("k", grid=8, block=1, args=[np.zeros(8, np.uint32)], jobs=jobs, raise_on=())
    assert {found.kind for found in report.violations} == {ViolationKind.RACE}
    assert "the write by thread 0 of CTA number" in str(report.violations)


@pytest.mark.parametrize("writes", [False, True])
def test_what_is_only_read_is_not_filed(writes: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """Reads are filed by page when somebody writes to the buffer, or when very many wait: a bound on the memory."""
    filed = []
    put = paged.WarpPages.put
    monkeypatch.setattr(paged.WarpPages, "put", lambda *args, **named: filed.append(1) or put(*args, **named))
    parameters = ".param .u64 out, .param .u64 table"
    body = "ld.param.u64 %rd5, [table]; mov.u32 %r4, 0; AGAIN: ld.global.u32 %r3, [%rd5]; add.u32 %r4, %r4, 1;"
    body += "setp.lt.u32 %p1, %r4, 200; @%p1 bra AGAIN; bar.sync 0;"
    body += "setp.eq.u32 %p2, %r0, 0; @%p2 st.global.u32 [%rd5], 1;" * writes
    program = Program.parse(kernel(body, parameters=parameters))
    program.launch("k", grid=1, block=64, args=[np.zeros(64, np.uint32), np.zeros(4, np.uint32)])
    assert len(filed) == (400 if writes else 0)
    filed.clear()
    monkeypatch.setattr(global_shadow, "MOST_QUEUED", 100)
    program.launch("k", grid=1, block=64, args=[np.zeros(64, np.uint32), np.zeros(4, np.uint32)])
    assert len(filed) >= 300


@pytest.mark.parametrize("offset", [2032, -16])
def test_addresses_of_32_bits_wrap(offset: int) -> None:
    """Compilers subtract more than the base and add it again as the constant of an address."""
    body = f"mov.u32 %r4, smem; sub.u32 %r5, %r4, {offset}; st.shared.u32 [%r5+{offset}], 7; ld.shared.u32 %r3, [%r4];"
    out = np.zeros(32, np.uint32)
    Program.parse(kernel(body, shared_bytes=16)).launch("k", grid=1, block=1, args=[out])
    assert out[0] == 7


@pytest.mark.parametrize(
    "policy",
    [
        "createpolicy.fractional.L2::evict_last.b64 %rd2, 0f3f800000;",
        "createpolicy.fractional.L2::evict_first.L2::evict_unchanged.b64 %rd2;",
        "createpolicy.range.global.L2::evict_last.b64 %rd2, [%rd1], 128, 256;",
        "mov.b64 %rd3, 0; createpolicy.cvt.L2.b64 %rd2, %rd3;",
    ],
)
def test_cache_policies_change_no_result(policy: str) -> None:
    body = policy + "mov.u32 %r3, 5; st.global.L2::cache_hint.u32 [%rd1], %r3, %rd2;"
    body += "ld.global.L2::cache_hint.u32 %r3, [%rd1], %rd2;"
    out = np.zeros(32, np.uint32)
    Program.parse(kernel(body)).launch("k", grid=1, block=32, args=[out])
    assert (out == 5).all()
