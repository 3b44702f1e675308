"""Holds the plan's predictions against the hardware's counters, one launch of each measured kernel under ncu.

    python -m tests.gpu.counters OUT_DIR [--problem M,N,K] [--ncu PATH] [--store FILE.csv] [--only PREFIX]
    python -m tests.gpu.counters --stored FILE.csv

OUT_DIR is what tests.gpu.prebuild leaves. Prints a markdown table; exits 1 when a counter that must equal its
prediction does not. M, N and K must be multiples of the CTA tile, and K hold as many k-tiles as there are stages.
A second launch has a longer K: the wavefronts of cp.async are taken from the difference. `--store` keeps what ncu
printed of every launch, less the columns that name the machine; `--stored` compares such a file, without a GPU.
"""

from __future__ import annotations

import argparse
import csv
import json
import sys
from collections.abc import Iterator, Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Any

from cutegen.analysis.counters import (
    ALL,
    CONFLICTS,
    WAVEFRONTS,
    WGMMA_WAVEFRONTS,
    CounterRow,
    Launch,
    by_descriptor,
    by_difference,
    compare,
    launches,
    longer_k,
    predict,
    read,
)
from cutegen.contract.problem import ProblemShape
from cutegen.plan import plan
from tests.gpu.cases import CASES, COUNTERS

STORED = Path(__file__).parent / "h200_counters.csv"
TARGET = "sm_90"
KEPT = ("Kernel Name", "Block Size", "Grid Size", "CC", *ALL)
WAVES = {
    "ldsm": "ldmatrix",
    "ldgsts_cache_bypass": "cp.async.cg",
    "ldgsts_cache_access": "cp.async.ca",
    "st": "stores",
    "stsm": "stmatrix",
}
SIZES = ("M", "N", "K")

Rows = Mapping[str, tuple[CounterRow, ...]]
Printed = Mapping[ProblemShape, tuple[Launch, ...]]
"""Lines of ncu's table, by the problem that was launched."""


def measure(artifacts: Mapping[Path, Mapping[str, Any]], problem: ProblemShape, ncu: str) -> Printed:
    """Launch every artifact once with each K that its counters need. Raises OutsideError."""
    of_k: dict[int, list[Path]] = {problem.k: list(artifacts)}
    for path, table in artifacts.items():
        if not by_descriptor(table):  # bulk tensor copies are counted in one launch
            of_k.setdefault(longer_k(table, problem.k), []).append(path)

    def count(k: int, paths: Sequence[Path]) -> tuple[Launch, ...]:
        child = [sys.executable, "-m", "tests.gpu.launch", *map(str, paths)]
        return launches(ncu, f"^{COUNTERS}", [*child, "--problem", f"{problem.m},{problem.n},{k}"])

    return {ProblemShape(problem.m, problem.n, k): count(k, paths) for k, paths in of_k.items()}


def store(path: Path, printed: Printed) -> None:
    """Write ncu's lines, each behind the problem of its launch."""
    with path.open("w", newline="") as file:
        writer = csv.DictWriter(file, (*SIZES, *KEPT), restval="", extrasaction="ignore", lineterminator="\n")
        writer.writeheader()
        for problem, rows in printed.items():
            sizes = dict(zip(SIZES, (problem.m, problem.n, problem.k), strict=True))
            writer.writerows({**row, **sizes} for row in rows)


def stored(path: Path = STORED) -> Printed:
    """What `store` wrote."""
    found: dict[ProblemShape, tuple[Launch, ...]] = {}
    with path.open(newline="") as file:
        for row in csv.DictReader(file):
            problem = ProblemShape(*(int(row[name]) for name in SIZES))
            found[problem] = (*found.get(problem, ()), row)
    return found


def compared(plans: Mapping[str, Mapping[str, Any]], printed: Printed) -> Rows:
    """Predictions of the shortest K beside its counters, by the kernel's name; no rows for one that was not counted."""
    problem = min(printed, key=lambda extents: extents.k)
    counted = {extents.k: read(rows) for extents, rows in printed.items()}

    def of(table: Mapping[str, Any]) -> tuple[CounterRow, ...]:
        entry, longer = table["launch"]["entry"], longer_k(table, problem.k)
        once, more = (counted.get(k, {}).get(entry, {}) for k in (problem.k, longer))
        return compare(predict(table, problem), by_difference(once, more, problem.k, longer))

    return {name: of(table) for name, table in plans.items()}


@cache
def planned() -> dict[str, dict[str, Any]]:
    """`plan.json` of every measured kernel, by its name."""
    return {name: plan(CASES[name], TARGET).to_json() for name in CASES if name.startswith(COUNTERS)}


def must_equal(row: CounterRow) -> bool:
    """Return whether a difference is a mistake: other traffic shares the pipe whose conflicts are counted."""
    return not row.counter.startswith(CONFLICTS)


def table(rows: Rows) -> str:
    """The comparison as markdown."""
    lines = ["| kernel | counter | predicted | measured | equal |", "|---|---|---:|---:|---|"]
    for case, found in rows.items():
        for row in found:
            equal = "yes" if row.equal else "NO" if must_equal(row) else "no (reported only)"
            name = case.removeprefix(COUNTERS)
            lines.append(f"| {name} | `{row.counter}` | {row.predicted:,} | {row.measured:,} | {equal} |")
    return "\n".join(lines)


def summary(rows: Rows) -> Iterator[str]:
    """The comparison counter by counter, as markdown."""
    yield "| counter | kernels | equal | largest difference | largest count |"
    yield "|---|---:|---:|---:|---:|"
    counters: dict[str, list[CounterRow]] = {}
    for row in (row for found in rows.values() for row in found):
        counters.setdefault(row.counter, []).append(row)
    for counter, found in counters.items():
        equal, off = sum(row.equal for row in found), max(abs(row.measured - row.predicted) for row in found)
        note = "" if must_equal(found[0]) else ", reported only"
        yield f"| `{counter}`{note} | {len(found)} | {equal} | {off:,} | {max(row.measured for row in found):,} |"


def wavefronts(rows: Rows) -> Iterator[str]:
    """The measured wavefronts of shared memory kernel by kernel, as markdown."""
    every = {f"{WAVEFRONTS}{name}.sum": title for name, title in WAVES.items()} | {WGMMA_WAVEFRONTS: "wgmma"}
    counted = {row.counter for found in rows.values() for row in found}
    names = {name: title for name, title in every.items() if name in counted}
    yield "| kernel | " + " | ".join(names.values()) + " |"
    yield "|---|" + "---:|" * len(names)
    for case, found in rows.items():
        counts = {row.counter: row.measured for row in found}
        cells = [f"{counts[name]:,}" if name in counts else "" for name in names]
        yield f"| {case.removeprefix(COUNTERS)} | " + " | ".join(cells) + " |"


def main() -> int:
    """0 when every counter that must is as predicted."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("out_dir", type=Path, nargs="?")
    parser.add_argument("--problem", default="1024,1024,1024", help="M,N,K")
    parser.add_argument("--ncu", default="ncu")
    parser.add_argument("--only", default="", metavar="PREFIX", help="kernels whose names begin so")
    parser.add_argument("--store", type=Path, metavar="FILE.csv")
    parser.add_argument("--stored", type=Path, metavar="FILE.csv")
    arguments = parser.parse_args()
    if (arguments.out_dir is None) == (arguments.stored is None):
        parser.error("expected either OUT_DIR or --stored FILE.csv")
    if arguments.stored is not None:
        return judge(compared(planned(), stored(arguments.stored)))
    folders = sorted(path for path in arguments.out_dir.iterdir() if path.name.startswith(COUNTERS + arguments.only))
    plans = {path: json.loads((path / "plan.json").read_text()) for path in folders}
    printed = measure(plans, ProblemShape(*map(int, arguments.problem.split(","))), arguments.ncu)
    if arguments.store is not None:
        store(arguments.store, printed)
    return judge(compared({path.name: found for path, found in plans.items()}, printed))


def judge(rows: Rows) -> int:
    """Print the table and what it amounts to; 1 when a prediction failed, or nothing was counted."""
    print(table(rows))
    counted = [row for found in rows.values() for row in found]
    missed = [row for row in counted if must_equal(row) and not row.equal]
    absent = [name for name, found in rows.items() if not found]
    print(f"\n{len(counted)} counters of {len(rows)} kernels, {len(missed)} not as predicted")
    if absent:
        print(f"not measured: {', '.join(absent)}")
    return 1 if missed or absent or not counted else 0


if __name__ == "__main__":
    sys.exit(main())
