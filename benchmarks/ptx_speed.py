"""Measure the CPU executor's time and memory on a shipped kernel's PTX: `python benchmarks/ptx_speed.py`.

Needs the CuTe DSL to build the kernel the first time, but no GPU. Each row runs in its own process, for a separate
memory peak. Parsing the PTX is timed separately from running it.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import resource
import subprocess
import sys
import time
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np

import cutegen
from cutegen.contract.problem import ProblemShape
from cutegen.ptx import Program

SPEC, ARCH = "sm80_hgemm_tn", "sm_80"


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    """A problem, the number of processes, and the project's limit in seconds on 2 cores (None: no limit)."""

    size: tuple[int, int, int]
    jobs: int = 1
    limit_s: float | None = None


CASES = (
    Case(size=(128, 128, 64), limit_s=1.0),
    Case(size=(256, 256, 256), limit_s=10.0),
    Case(size=(512, 512, 512)),
    Case(size=(512, 512, 512), jobs=2),
)
LIMIT_MIB = 1024


def run_case(case: Case, ptx: Path, contract: dict[str, Any]) -> dict[str, float]:
    """Return seconds to parse, seconds to run, warp instructions, and this process's peak memory in MiB."""
    m, n, k = case.size
    rng = np.random.default_rng(0)
    a, b = (rng.standard_normal(shape).astype(np.float16) for shape in ((m, k), (n, k)))
    a.flags.writeable = b.flags.writeable = False
    c = np.zeros((m, n), np.float16)
    values = {"a": a, "b": b, "c": c, "m": m, "n": n, "k": k, "lda": k, "ldb": k, "ldc": n}
    values |= {f"batch_stride_{name}": 0 for name in "abc"}
    start = time.perf_counter()
    program = Program.parse(ptx.read_text())
    read_s = time.perf_counter() - start
    start = time.perf_counter()
    report = program.launch(
        contract["entry"],
        grid=contract["grid"],
        block=contract["block"],
        args=[values[name] for name in contract["parameters"]],
        dynamic_smem_bytes=contract["dynamic_smem_bytes"],
        jobs=case.jobs,
    )
    run_s = time.perf_counter() - start
    exact = a.astype(np.float64) @ b.astype(np.float64).T
    if not np.allclose(c, exact, rtol=2e-3, atol=2e-2 * k**0.5):
        raise SystemExit(f"{case.size}: the result is wrong")
    peak_mib = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    return {"read_s": read_s, "run_s": run_s, "steps": report.steps, "peak_mib": peak_mib}


def measure(case: Case) -> dict[str, float]:
    """Run `run_case` in its own process."""
    kernel = cutegen.compile(cutegen.load_spec(SPEC), ARCH)
    geometry = kernel.contract.geometry(ProblemShape(*case.size))
    contract = {
        "entry": kernel.contract.entry,
        "grid": geometry.grid,
        "block": geometry.block,
        "dynamic_smem_bytes": geometry.dynamic_smem_bytes,
        "parameters": [parameter.name for parameter in kernel.contract.parameters],
    }
    task = json.dumps({"case": asdict(case), "ptx": str(kernel.artifact.path / "kernel.ptx"), "contract": contract})
    done = subprocess.run([sys.executable, __file__, "--task", task], capture_output=True, text=True, check=False)
    if done.returncode:
        raise SystemExit(done.stderr)
    return dict(json.loads(done.stdout))


def main() -> None:
    """Print the table, as Markdown or JSON; exit with code 1 if a limit is exceeded."""
    parser = argparse.ArgumentParser(description="Measure how fast the CPU executor runs a shipped kernel's PTX.")
    parser.add_argument("--json", action="store_true", help="print JSON instead of a table")
    parser.add_argument("--task", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.task:
        task = json.loads(arguments.task)
        case = Case(size=tuple(task["case"]["size"]), jobs=task["case"]["jobs"])
        print(json.dumps(run_case(case, Path(task["ptx"]), task["contract"])))
        return
    results = [(case, measure(case)) for case in CASES]
    if arguments.json:
        print(json.dumps([{**asdict(case), **result} for case, result in results], indent=2))
    else:
        print_table(results)
    broken = [case.size for case, result in results if _breaks_promise(case, result)]
    raise SystemExit(f"above the limit of time or memory: {broken}" if broken else 0)


def _breaks_promise(case: Case, result: dict[str, float]) -> bool:
    return case.limit_s is not None and (result["run_s"] > case.limit_s or result["peak_mib"] > LIMIT_MIB)


def print_table(results: list[tuple[Case, dict[str, float]]]) -> None:
    """Print one line per case."""
    print(f"{SPEC} for {ARCH}, Python {platform.python_version()}, {os.cpu_count()} cores\n")
    print("| M x N x K | jobs | read s | run s | limit s | warp instructions | peak MiB |")
    print("|---|---|---|---|---|---|---|")
    for case, result in results:
        size = " x ".join(map(str, case.size))
        limit = "" if case.limit_s is None else f"{case.limit_s:g}"
        print(
            f"| {size} | {case.jobs} | {result['read_s']:.2f} | {result['run_s']:.2f} | {limit} "
            f"| {result['steps']:.0f} | {result['peak_mib']:.0f} |"
        )


if __name__ == "__main__":
    main()
