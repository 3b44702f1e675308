"""Holds the executor's wavefronts and sectors against ncu's counters on a GPU, kernel by kernel.

    python tests/ptx/gpu_counters.py [--ncu PATH]      # needs ncu, cuda-bindings and a driver

Prints what ncu said where it cannot be read, and a markdown table; exit code 1 where a counter differs for
no known reason.
"""

from __future__ import annotations

import argparse
import csv
import io
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from kernels import CUDA_DIR, kernel

from cutegen.ptx import LaunchReport, Program

WAVEFRONTS = "smsp__sass_l1tex_data_pipe_lsu_wavefronts_mem_shared_op_"
SECTORS = "l1tex__t_sectors_pipe_lsu_mem_global_op_"
METRICS: dict[str, tuple[tuple[str, str], ...]] = {
    f"{WAVEFRONTS}ldsm.sum": (("wavefronts", "ldmatrix"),),
    f"{WAVEFRONTS}ld.sum": (("wavefronts", "ld"),),
    f"{WAVEFRONTS}st.sum": (("wavefronts", "st"),),
    f"{WAVEFRONTS}ldgsts_cache_bypass.sum": (("line_wavefronts", "cp.async.cg"),),
    f"{WAVEFRONTS}ldgsts_cache_access.sum": (("staged_wavefronts", "cp.async.ca"),),
    f"{SECTORS}ld.sum": (("sectors", "ld"), ("line_sectors", "cp.async.cg"), ("sectors", "cp.async.ca")),
    f"{SECTORS}st.sum": (("sectors", "st"),),
}
"""Each counter, and the figures of the report that must add up to it."""
BYPASS, LOADS = f"{WAVEFRONTS}ldgsts_cache_bypass.sum", f"{WAVEFRONTS}ld.sum"
P0 = "ptxas gives a quarter of the copies the predicate P0, and such a copy is counted by banks"
WIDE = "ptxas makes one 16-byte load of four 4-byte ones"


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    """One launch; `entry` is also the name that ncu shows.

    `zeros`: ptxas cannot tell that a source size is 0 or 16, so zeros are written apart. `known`: counters that differ
    from the executor's, what they are and why.
    """

    entry: str
    text: str
    grid: tuple[int, int, int]
    block: tuple[int, int, int]
    arguments: list[Any]
    smem_bytes: int = 0
    zeros: bool = False
    known: Mapping[str, tuple[int, str]] = field(default_factory=dict)

    def report(self) -> LaunchReport:
        """The executor's counts."""
        program = Program.parse(self.text)
        return program.launch(
            self.entry, grid=self.grid, block=self.block, args=self.arguments, dynamic_smem_bytes=self.smem_bytes
        )


FILL = "mov.u32 %r4, smem; shl.b32 %r5, %r0, 4; add.u32 %r4, %r4, %r5;" + "".join(
    f"st.shared.v4.u32 [%r4+{512 * i}], {{%r0, %r0, %r0, %r0}};" for i in range(8)
)
ADDRESSES = {
    "stride_1": "shl.b32 %r5, %r0, {log};",
    "stride_2": "shl.b32 %r5, %r0, {log}; shl.b32 %r5, %r5, 1;",
    "one_word": "mov.u32 %r5, 0;",
    "rows_128": "shl.b32 %r5, %r0, 7;",
    "padded": "mul.lo.u32 %r5, %r0, 144;",
    "pairs": "shr.u32 %r5, %r0, 1; shl.b32 %r5, %r5, {log};",
    "every_other": "and.b32 %r5, %r0, 29; shl.b32 %r5, %r5, {log};",
}
LDMATRIX_ROWS = {
    "plain_128": (128, ""),
    "swizzled_128": (128, "and.b32 %r11, %r0, 7; xor.b32 %r6, %r6, %r11;"),
    "plain_64": (64, ""),
    "swizzled_64": (64, "shr.u32 %r11, %r0, 1; and.b32 %r11, %r11, 3; xor.b32 %r6, %r6, %r11;"),
    "padded_80": (80, ""),
}


def _small(name: str, body: str, before: str = "") -> Case:
    text = kernel(body, before=before, shared_bytes=8192).replace(".entry k(", f".entry {name}(")
    return Case(entry=name, text=text, grid=(1, 1, 1), block=(32, 1, 1), arguments=[np.zeros(32, np.uint32)])


def _ldmatrix(name: str) -> Case:
    row_bytes, swizzle = LDMATRIX_ROWS[name]
    body = (
        FILL
        + f"""bar.sync 0;
        mov.u32 %r4, smem; and.b32 %r5, %r0, 15; mul.lo.u32 %r5, %r5, {row_bytes}; shr.u32 %r6, %r0, 4; {swizzle}
        shl.b32 %r6, %r6, 4; add.u32 %r5, %r5, %r6; add.u32 %r4, %r4, %r5;
        ldmatrix.sync.aligned.m8n8.x4.shared.b16 {{%r7, %r8, %r9, %r10}}, [%r4];
        add.u32 %r3, %r7, %r8; add.u32 %r3, %r3, %r9; add.u32 %r3, %r3, %r10;"""
    )
    return _small(f"ldmatrix_{name}", body)


def _access(size: int, pattern: str) -> Case:
    kind = {4: "u32", 8: "v2.u32", 16: "v4.u32"}[size]
    registers = ["%r7", "%r8", "%r9", "%r10"][: size // 4]
    operand = registers[0] if size == 4 else "{" + ", ".join(registers) + "}"
    address = ADDRESSES[pattern].format(log=size.bit_length() - 1)
    sums = " ".join(f"add.u32 %r3, %r3, {register};" for register in registers)
    body = (
        FILL
        + f"""bar.sync 0; mov.u32 %r7, 1; mov.u32 %r8, 1; mov.u32 %r9, 1; mov.u32 %r10, 1;
        mov.u32 %r4, smem; {address} add.u32 %r4, %r4, %r5; st.shared.{kind} [%r4], {operand}; bar.sync 0;
        mov.u32 %r3, 0; ld.shared.{kind} {operand}, [%r4]; {sums}"""
    )
    return _small(f"access_{size}_{pattern}", body)


COPIES = {
    "cg": "cp.async.cg.shared.global [%r4], [%rd2], 16;",
    "ca": "cp.async.ca.shared.global [%r4], [%rd2], 16;",
    "sized": "mov.u32 %r6, %ntid.y; add.u32 %r6, %r6, 15; cp.async.cg.shared.global [%r4], [%rd2], 16, %r6;",
    "chosen": "setp.lt.u32 %p1, %r0, 29; selp.b32 %r6, 16, 0, %p1; cp.async.cg.shared.global [%r4], [%rd2], 16, %r6;",
}


def _copy(pattern: str, form: str = "cg") -> Case:
    address = ADDRESSES[pattern].format(log=4)
    body = f"""
        mov.u32 %r4, smem; {address} add.u32 %r4, %r4, %r5; mov.u64 %rd2, data; mul.wide.u32 %rd3, %r0, 16;
        add.s64 %rd2, %rd2, %rd3; {COPIES[form]} cp.async.wait_all; bar.sync 0;
        ld.shared.u32 %r3, [%r4];"""
    case = _small(f"copy_{form}_{pattern}", body, before=".global .align 128 .b8 data[512];\n")
    return replace(case, zeros=form == "sized")


def _pipelined(k: int, by_banks: int) -> Case:
    rng = np.random.default_rng(k)
    half = [rng.standard_normal(shape).astype(np.float16) for shape in ((128, k), (192, k))]
    text = (CUDA_DIR / "pipelined_gemm.ptx").read_text()
    return Case(
        entry=f"pipelined_gemm_k{k}",
        text=text.replace(".entry pipelined_gemm(", f".entry pipelined_gemm_k{k}("),
        grid=(3, 2, 1),
        block=(128, 1, 1),
        arguments=[*half, np.zeros((128, 192), np.float32), 128, 192, k],
        smem_bytes=24576,
        known={BYPASS: (by_banks, P0)},
    )


def cases() -> Iterator[Case]:
    """All kernels that are measured."""
    rng = np.random.default_rng(0)
    yield from (_ldmatrix(name) for name in LDMATRIX_ROWS)
    yield from (
        _access(size, pattern) for size in (4, 8, 16) for pattern in ADDRESSES if pattern != "rows_128" or size < 16
    )
    copied = ("stride_1", "stride_2", "padded", "rows_128")
    yield from (_copy(pattern, form) for form in COPIES for pattern in copied)
    yield from (_pipelined(k, copies) for k, copies in ((32, 384), (64, 1344), (96, 2016), (256, 5376)))
    single = [rng.standard_normal((64, 64), np.float32) for _ in range(3)]
    yield Case(
        entry="naive_gemm",
        text=(CUDA_DIR / "naive_gemm.ptx").read_text(),
        grid=(4, 4, 1),
        block=(16, 16, 1),
        arguments=[*single, 64, 64, 64, 1.0, 0.0],
        known={LOADS: (12288, WIDE)},
    )


def expected(case: Case) -> dict[str, int]:
    """What ncu must say."""
    report = case.report()
    found = {metric: sum(getattr(report, what)(opcode) for what, opcode in parts) for metric, parts in METRICS.items()}
    if case.zeros:
        found[BYPASS] += report.staged_wavefronts("cp.async.cg")
    return found


def measure(ncu: str) -> dict[str, dict[str, int]]:
    """Counters by kernel; tries fewer metrics where this ncu does not know all."""
    child = [sys.executable, __file__, "--child"]
    fewer = [name for name in METRICS if "ldgsts_cache_access" not in name]
    return ncu_counts(ncu, list(METRICS), child) or ncu_counts(ncu, fewer, child)


def ncu_counts(ncu: str, metrics: Sequence[str], child: Sequence[str]) -> dict[str, dict[str, int]]:
    """What ncu counts of the kernels that `child` launches, by their names; says what ncu said if that is no table."""
    command = [ncu, "--csv", "--page", "raw", "--print-units", "base", "--metrics", ",".join(metrics), *child]
    run = subprocess.run(command, capture_output=True, text=True, check=False)
    lines = run.stdout.splitlines()
    start = next((i for i, line in enumerate(lines) if line.startswith('"ID"')), None)
    if start is None:
        print(f"$ {' '.join(command)}\n{run.stdout}\n{run.stderr}")
        return {}
    rows = csv.DictReader(io.StringIO("\n".join(line for line in lines[start:] if line.startswith('"'))))
    return {row["Kernel Name"].split("(")[0]: _counts(row, metrics) for row in rows if row["ID"]}


def _counts(row: dict[str, str], metrics: Sequence[str]) -> dict[str, int]:
    return {name: round(float(value.replace(",", ""))) for name, value in row.items() if name in metrics and value}


def launch_all() -> None:
    """The child that ncu watches: launches every kernel once."""
    from gpu_compare import Gpu

    gpu = Gpu()
    for case in cases():
        gpu.launch(case.text, case.entry, case.grid, case.block, case.arguments, case.smem_bytes)


def main() -> int:
    """0 where every counter is as the executor has it."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--ncu", default="ncu")
    parser.add_argument("--child", action="store_true")
    arguments = parser.parse_args()
    if arguments.child:
        launch_all()
        return 0
    measured = measure(arguments.ncu)
    different = 0
    print("| kernel | counter | executor | ncu | |\n|---|---|---|---|---|")
    for case in cases():
        for metric, count in expected(case).items():
            found = measured.get(case.entry, {}).get(metric)
            if count or found:
                wanted, reason = case.known.get(metric, (count, ""))
                different += found != wanted
                print(f"| {case.entry} | {metric} | {count} | {found} | {reason if found == wanted else 'DIFFERS'} |")
    print(f"\n{len(measured)} kernels, {different} counters differ")
    return 1 if different or not measured else 0


if __name__ == "__main__":
    sys.exit(main())
