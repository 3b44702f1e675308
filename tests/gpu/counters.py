"""Holds the plan's predictions against the hardware's counters, one launch of each measured kernel under ncu.

    python -m tests.gpu.counters OUT_DIR [--problem M,N,K] [--ncu PATH]

OUT_DIR is what tests.gpu.prebuild leaves. Prints a markdown table; exits 1 when a counter that must equal its
prediction does not. M, N and K must be multiples of the CTA tile, and K hold as many k-tiles as there are stages.
A second launch has a longer K: the wavefronts of cp.async are taken from the difference.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Mapping
from functools import cache
from pathlib import Path

from cutegen.tune.counters import (
    REPORTED_ONLY,
    CounterRow,
    Counters,
    by_difference,
    compare,
    longer_k,
    predict,
    profile,
)
from cutegen.tune.suites import Extents
from tests.gpu.cases import COUNTERS


def main() -> int:
    """0 when every counter that must is as predicted."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("out_dir", type=Path)
    parser.add_argument("--problem", default="1024,1024,1024", help="M,N,K")
    parser.add_argument("--ncu", default="ncu")
    arguments = parser.parse_args()
    problem = Extents(*map(int, arguments.problem.split(",")))
    artifacts = sorted(path for path in arguments.out_dir.iterdir() if path.name.startswith(COUNTERS))
    plans = {path: json.loads((path / "plan.json").read_text()) for path in artifacts}

    @cache
    def count(k: int) -> Mapping[str, Counters]:
        sizes = f"{problem.m},{problem.n},{k}"
        child = [sys.executable, "-m", "tests.gpu.launch", *map(str, artifacts), "--problem", sizes]
        return profile(arguments.ncu, f"^{COUNTERS}", child)

    rows = {}
    for path, plan in plans.items():
        manifest, longer = json.loads((path / "manifest.json").read_text()), longer_k(plan, problem.k)
        once, more = (count(k).get(manifest["entry"], {}) for k in (problem.k, longer))
        predicted = predict(plan, manifest["registers"], problem)
        rows[path.name] = compare(predicted, by_difference(once, more, problem.k, longer))
    print(f"M, N, K = {arguments.problem}\n")
    print(table(rows))
    counted = [row for found in rows.values() for row in found]
    missed = [row for row in counted if not row.equal and row.counter not in REPORTED_ONLY]
    absent = [name for name, found in rows.items() if not found]
    print(f"\n{len(counted)} counters of {len(artifacts)} kernels, {len(missed)} not as predicted")
    if absent:
        print(f"not measured: {', '.join(absent)}")
    return 1 if missed or absent or not counted else 0


def table(rows: dict[str, tuple[CounterRow, ...]]) -> str:
    """The comparison as markdown."""
    lines = ["| kernel | counter | predicted | measured | equal |", "|---|---|---:|---:|---|"]
    for case, found in rows.items():
        for row in found:
            equal = "yes" if row.equal else "no (reported only)" if row.counter in REPORTED_ONLY else "NO"
            name = case.removeprefix(COUNTERS)
            lines.append(f"| {name} | `{row.counter}` | {row.predicted:,} | {row.measured:,} | {equal} |")
    return "\n".join(lines)


if __name__ == "__main__":
    sys.exit(main())
