"""Measure what using cutegen costs on this machine, without a GPU: `python benchmarks/cost.py` or `make bench-cost`.

Prints medians of several runs. Processes are timed from outside, including the start of Python, with files in the
operating system's cache and modules compiled to bytecode. Steps within a process are timed inside it. Builds use their
own cache folders.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

SPEC = "sm80_hgemm_tn"
ARCH = "sm_80"
HITS = 200

_COMPILE_HITS = f"""
import json, time, cutegen
spec = cutegen.load_spec({SPEC!r})
start = time.perf_counter()
cutegen.compile(spec, {ARCH!r})
first = time.perf_counter() - start
times = []
for _ in range({HITS}):
    start = time.perf_counter()
    cutegen.compile(spec, {ARCH!r})
    times.append(time.perf_counter() - start)
print(json.dumps([first, sorted(times)[len(times) // 2]]))
"""


IMPORT_RATIO = 1.3
"""Limit of `import cutegen`, as a multiple of its dependencies' import time."""
OPENED = {"a cached kernel's class": "cutegen.Kernel", "the planner": "cutegen.plan"}
"""Packages that are imported when one of their names is first used."""

HARD = {
    "a tile of 8192x8192x8192, refused": ("cta = [8192, 8192, 8192]", ""),
    "a tile of 256x256x4096, refused": ("cta = [256, 256, 4096]", ""),
    "32x8x16 on 64x65537x100": ("cta = [32, 8, 16]", "64,65537,100"),
    "an open tile on 2147352576x2147352576x64": ("", "2147352576,2147352576,64"),
}
"""Plans that look expensive: the contents of the table [tile], and the problem."""

_HARD_SPEC = """family = "sm80"
[problem]
a = {{ dtype = "f16", major = "k" }}
b = {{ dtype = "f16", major = "k" }}
c = {{ dtype = "f16", major = "n" }}
[tile]
{}
"""


@dataclass(frozen=True, slots=True)
class Row:
    """One line of the table; `limit_ms` is the project's limit, None if there is none."""

    what: str
    measured_ms: float
    limit_ms: float | None = None


def main() -> None:
    """Print the table, as Markdown or JSON."""
    parser = argparse.ArgumentParser(description="Measure what using cutegen costs on this machine.")
    parser.add_argument("--runs", type=int, default=7, help="runs per measurement; the median is printed (default: 7)")
    parser.add_argument("--json", action="store_true", help="print JSON instead of a table")
    arguments = parser.parse_args()
    rows = list(measure(arguments.runs))
    if arguments.json:
        print(json.dumps({row.what: row.measured_ms for row in rows}, indent=2))
        return
    print(f"Python {platform.python_version()}, {os.cpu_count()} cores, medians of {arguments.runs} runs\n")
    print("| what | measured | limit |\n|---|---|---|")
    for row in rows:
        print(f"| {row.what} | {_spell(row.measured_ms)} | {'' if row.limit_ms is None else _spell(row.limit_ms)} |")


def measure(runs: int) -> Iterator[Row]:
    """Yield the rows of the table."""
    empty_ms = median_ms(runs, python("pass"))
    yield Row("an empty Python process, for comparison", empty_ms)
    below_ms = median_ms(runs, python("import numpy, tensor_layouts")) - empty_ms
    yield Row("`import numpy, tensor_layouts`, for comparison", below_ms)
    yield Row("`import cutegen` alone", median_ms(runs, python("import cutegen")) - empty_ms, IMPORT_RATIO * below_ms)
    for what, names in OPENED.items():
        yield Row(f"`import cutegen` and {what}", median_ms(runs, python(f"import cutegen; {names}")) - empty_ms)
    yield Row(f"`cutegen plan {SPEC}`, the whole process", median_ms(runs, verb("plan")), 600)
    yield from hard_plans(runs)
    with tempfile.TemporaryDirectory(prefix="cutegen-cost-") as root:
        # Each cold build gets its own empty cache; the first one is a warm-up and is not counted.
        folders = [Path(root) / str(run) for run in range(warm_ups(runs) + runs)]
        cold_ms = [elapsed_ms(verb("build"), cache=folder) for folder in folders]
        yield Row(
            "`cutegen build`, cold: plan, render, compile, check, publish",
            statistics.median(cold_ms[warm_ups(runs) :]),
            4000,
        )
        filled = folders[0]
        yield Row("`cutegen build`, warm: find, verify", median_ms(runs, verb("build"), cache=filled), 600)
        hits = [json.loads(run_process(python(_COMPILE_HITS), cache=filled)) for _ in range(runs)]
        first_s, later_s = (statistics.median(column) for column in zip(*hits, strict=True))
        yield Row("`cutegen.compile(spec)`, first cache hit in a process", 1e3 * first_s)
        yield Row("`cutegen.compile(spec)`, later cache hits", 1e3 * later_s, 5)


def hard_plans(runs: int) -> Iterator[Row]:
    """Time whole processes that plan, or refuse, specs that could take long."""
    with tempfile.TemporaryDirectory(prefix="cutegen-cost-") as folder:
        path = Path(folder) / "hard.toml"
        for what, (tile, problem) in HARD.items():
            path.write_text(_HARD_SPEC.format(tile))
            asked = ["--problem", problem] if problem else []
            command = [sys.executable, "-m", "cutegen", "plan", str(path), "--arch", "sm_86", *asked]
            # Exit code 2 is a refusal, the case to measure.
            yield Row(f"`cutegen plan`, {what}", median_ms(runs, command, codes=(0, 2)), 2000)


def python(code: str) -> list[str]:
    """Return the command of a Python process that runs `code`."""
    return [sys.executable, "-c", code]


def verb(name: str) -> list[str]:
    """Return the command that runs one verb on the measured spec."""
    return [sys.executable, "-m", "cutegen", name, SPEC, "--arch", ARCH]


def median_ms(runs: int, command: list[str], cache: Path | None = None, codes: tuple[int, ...] = (0,)) -> float:
    """Return the median milliseconds of a whole process over `runs` runs after the warm-up."""
    return statistics.median(
        [elapsed_ms(command, cache, codes) for _ in range(warm_ups(runs) + runs)][warm_ups(runs) :]
    )


def warm_ups(runs: int) -> int:
    """Return the number of warm-up runs; none before a single run, which measures little anyway."""
    return 1 if runs > 1 else 0


def elapsed_ms(command: list[str], cache: Path | None = None, codes: tuple[int, ...] = (0,)) -> float:
    """Return the wall-clock milliseconds of a whole process."""
    start = time.perf_counter()
    run_process(command, cache, codes)
    return 1e3 * (time.perf_counter() - start)


def run_process(command: list[str], cache: Path | None = None, codes: tuple[int, ...] = (0,)) -> str:
    """Return the process's stdout; `cache` is its cache folder. Raises CalledProcessError for other exit codes."""
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
    environment |= {} if cache is None else {"CUTEGEN_CACHE_DIR": str(cache)}
    quiet = None if codes == (0,) else subprocess.DEVNULL
    done = subprocess.run(command, check=False, stdout=subprocess.PIPE, stderr=quiet, text=True, env=environment)
    if done.returncode not in codes:
        raise subprocess.CalledProcessError(done.returncode, command)
    return done.stdout


def _spell(milliseconds: float) -> str:
    if milliseconds >= 1000:
        return f"{milliseconds / 1000:.2f} s"
    return f"{milliseconds:.0f} ms" if milliseconds >= 10 else f"{milliseconds:.2f} ms"


if __name__ == "__main__":
    main()
