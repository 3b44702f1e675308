"""Holds the plan's predictions against the hardware's counters, one launch of each measured kernel under ncu.

    python -m tests.gpu.counters OUT_DIR [--problem M,N,K] [--ncu PATH]

OUT_DIR is what tests.gpu.prebuild leaves. Prints every raw value and a markdown table; exits 1 when a counter that must
equal its prediction does not. M, N and K must be multiples of the CTA tile, and K hold as many k-tiles as there are
stages: only then does a launch fetch each k-tile once and nothing else. A second launch has twice the K: the wavefronts
of cp.async are taken from the difference, since a prologue's copies write zeros too.
"""

from __future__ import annotations

import argparse
import csv
import io
import json
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.gpu.cases import COUNTERS

WAVEFRONTS = "smsp__sass_l1tex_data_pipe_lsu_wavefronts_mem_shared_op_"
CONFLICTS = "l1tex__data_bank_conflicts_pipe_lsu_mem_shared_op_"
STORE_SECTORS = "l1tex__t_sectors_pipe_lsu_mem_global_op_st.sum"

ASKED = (
    f"{WAVEFRONTS}ldsm.sum",
    f"{WAVEFRONTS}ldgsts_cache_bypass.sum",
    f"{WAVEFRONTS}st.sum",
    f"{CONFLICTS}ld.sum",
    f"{CONFLICTS}st.sum",
    f"{CONFLICTS}ldgsts.sum",
    "smsp__inst_executed_op_ldsm.sum",
    "smsp__inst_executed_op_ldgsts.sum",
    "sm__inst_executed_pipe_tensor_op_hmma.sum",
    "launch__registers_per_thread",
)
ASKED_TOO = (f"{WAVEFRONTS}ldgsts_cache_access.sum", STORE_SECTORS)
"""Left out when this ncu does not know them."""

BY_DIFFERENCE = f"{WAVEFRONTS}ldgsts_cache_bypass.sum"

REPORTED_ONLY = frozenset({f"{CONFLICTS}ld.sum", f"{CONFLICTS}st.sum", f"{CONFLICTS}ldgsts.sum"})
"""Counters of a pipe that other traffic shares: shown, but their equality is not demanded."""

Counters = Mapping[str, int]


@dataclass(frozen=True, slots=True)
class Row:
    """One counter of one kernel."""

    case: str
    counter: str
    predicted: int
    measured: int

    @property
    def equal(self) -> bool:
        """Whether the prediction came true."""
        return self.predicted == self.measured


def main() -> int:
    """0 when every counter that must is as predicted."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("out_dir", type=Path)
    parser.add_argument("--problem", default="1024,1024,1024", help="M,N,K")
    parser.add_argument("--ncu", default="ncu")
    arguments = parser.parse_args()
    m, n, k = map(int, arguments.problem.split(","))
    artifacts = sorted(path for path in arguments.out_dir.iterdir() if path.name.startswith(COUNTERS))
    measured = measure(arguments.ncu, artifacts, arguments.problem)
    for case, twice in measure(arguments.ncu, artifacts, f"{m},{n},{2 * k}").items():
        if BY_DIFFERENCE in twice:
            difference = twice[BY_DIFFERENCE] - measured[case][BY_DIFFERENCE]
            measured[case] = {**measured[case], BY_DIFFERENCE: difference}
    rows = [row for path in artifacts for row in compare(path, measured, (m, n, k))]
    print(f"\nM, N, K = {arguments.problem}\n")
    print(table(rows))
    missed = [row for row in rows if not row.equal and row.counter not in REPORTED_ONLY]
    absent = [path.name for path in artifacts if path.name not in {row.case for row in rows}]
    print(f"\n{len(rows)} counters of {len(artifacts)} kernels, {len(missed)} not as predicted")
    if absent:
        print(f"not measured: {', '.join(absent)}")
    return 1 if missed or absent or not rows else 0


def measure(ncu: str, artifacts: list[Path], problem: str) -> dict[str, Counters]:
    """Counters by case."""
    first = profile(ncu, artifacts, problem, (*ASKED, *ASKED_TOO))
    return first if first else profile(ncu, artifacts, problem, ASKED)


def profile(ncu: str, artifacts: list[Path], problem: str, metrics: tuple[str, ...]) -> dict[str, Counters]:
    """One run of ncu over all artifacts; prints what it said, so that nothing is lost when it cannot be read."""
    child = [sys.executable, "-m", "tests.gpu.launch", *map(str, artifacts), "--problem", problem]
    profiler = [ncu, "--csv", "--page", "raw", "--print-units", "base", "--clock-control", "none"]
    selection = ["--kernel-name", f"regex:^{COUNTERS}", "--metrics", ",".join(metrics)]
    run = subprocess.run([*profiler, *selection, *child], capture_output=True, text=True, check=False)
    print(f"$ {' '.join([*profiler, *selection, *child])}\nexit status {run.returncode}\n{run.stdout}\n{run.stderr}")
    if "WRONG" in run.stdout:
        raise SystemExit("a kernel's result is wrong; its counters mean nothing")
    return parse(run.stdout)


def parse(text: str) -> dict[str, Counters]:
    """Of `--csv --page raw`: a header, a line of units, a line for each launch; other output stands before it."""
    lines = text.splitlines()
    start = next((i for i, line in enumerate(lines) if line.startswith('"ID"')), None)
    if start is None:
        return {}
    found: dict[str, Counters] = {}
    for line in csv.DictReader(io.StringIO("\n".join(row for row in lines[start:] if row.startswith('"')))):
        if line["ID"]:  # the line of units has none
            counters = {name: number(value) for name, value in line.items() if name in (*ASKED, *ASKED_TOO) and value}
            found[line["Kernel Name"].split("(")[0].removesuffix("_0")] = counters
    return found


def number(text: str) -> int:
    """A count as ncu prints it.

    >>> number("1,597,440"), number("128.00")
    (1597440, 128)
    """
    return round(float(text.replace(",", "")))


def compare(artifact: Path, measured: Mapping[str, Counters], problem: tuple[int, int, int]) -> list[Row]:
    """The counters that both sides know."""
    case = artifact.name
    predicted = predict(
        json.loads((artifact / "plan.json").read_text()),
        json.loads((artifact / "manifest.json").read_text()),
        problem,
    )
    return [
        Row(case, counter, predicted[counter], value)
        for counter, value in measured.get(case, {}).items()
        if counter in predicted
    ]


def predict(plan: dict[str, Any], manifest: dict[str, Any], problem: tuple[int, int, int]) -> Counters:
    """What one launch of `problem` should count, out of what the plan says of one CTA and one k-tile."""
    (cta_m, cta_n, cta_k), (m, n, k) = plan["tile"], problem
    assert m % cta_m == n % cta_n == k % cta_k == 0, f"{problem} is no multiple of the CTA tile {plan['tile']}"
    ctas, k_tiles = m // cta_m * (n // cta_n), k // cta_k
    assert k_tiles >= plan["stages"], f"K = {k} fills {k_tiles} of {plan['stages']} stages"
    k_blocks = cta_k // plan["mma"]["permutation"][2]
    # A prologue loads one k-block; then each k-block loads the next one, the last of all included.
    loaded_k_blocks = k_blocks * k_tiles + 1

    g2s, s2r = _sum(plan, "g2s.a", "g2s.b"), _sum(plan, "s2r.a", "s2r.b")
    write = plan["wavefronts"]["epilogue.write"]
    extra = {name: _extra(plan, name) for name in plan["wavefronts"]}
    bypass = plan["g2s"]["a"]["op"] == "cp.async.cg"
    by_line = sum(int(row["predicted"]) for row in plan["line_writes"].values())
    vectors = sum(_elems(plan, x) * 16 // plan["g2s"][x]["bits"] for x in "ab")
    matrices = sum(_matrices(plan, x) // plan["s2r"][x]["matrices"] for x in "ab")
    atom = plan["mma"]["shape_mnk"]
    return {
        f"{WAVEFRONTS}ldsm.sum": ctas * _each(s2r, k_blocks) * loaded_k_blocks,
        f"{WAVEFRONTS}ldgsts_cache_bypass.sum": ctas * k_tiles * by_line,
        f"{WAVEFRONTS}ldgsts_cache_access.sum": 0 if bypass else ctas * k_tiles * g2s,
        f"{WAVEFRONTS}st.sum": ctas * write["predicted"],
        f"{CONFLICTS}ld.sum": ctas
        * (_each(extra["s2r.a"] + extra["s2r.b"], k_blocks) * loaded_k_blocks + extra["epilogue.read"]),
        f"{CONFLICTS}st.sum": ctas * extra["epilogue.write"],
        f"{CONFLICTS}ldgsts.sum": ctas * k_tiles * (extra["g2s.a"] + extra["g2s.b"]),
        "smsp__inst_executed_op_ldsm.sum": ctas * _each(matrices, k_blocks) * loaded_k_blocks,
        "smsp__inst_executed_op_ldgsts.sum": ctas * k_tiles * vectors // 32,
        "sm__inst_executed_pipe_tensor_op_hmma.sum": m * n * k // (atom[0] * atom[1] * atom[2]),
        "launch__registers_per_thread": manifest["registers"],
        STORE_SECTORS: ctas * plan["sectors"]["epilogue"]["predicted"],
    }


def _sum(plan: dict[str, Any], *names: str) -> int:
    return sum(plan["wavefronts"][name]["predicted"] for name in names)


def _extra(plan: dict[str, Any], name: str) -> int:
    return int(plan["wavefronts"][name]["predicted"] - plan["wavefronts"][name]["ideal"])


def _each(count: int, k_blocks: int) -> int:
    """What one k-block has of a k-tile's count: all k-blocks are alike."""
    assert count % k_blocks == 0, f"{count} is no multiple of {k_blocks} k-blocks"
    return count // k_blocks


def _elems(plan: dict[str, Any], name: str) -> int:
    return int(plan["tile"]["ab".index(name)] * plan["tile"][2])


def _matrices(plan: dict[str, Any], name: str) -> int:
    """8x8 matrices that all warps load for one k-tile: warps side by side along the other mode load the same ones."""
    warps_m, warps_n, _ = plan["mma"]["atom_layout"]
    return _elems(plan, name) // 64 * (warps_n if name == "a" else warps_m)


def table(rows: list[Row]) -> str:
    """The comparison as markdown."""
    lines = ["| kernel | counter | predicted | measured | equal |", "|---|---|---:|---:|---|"]
    for row in rows:
        equal = "yes" if row.equal else "no (reported only)" if row.counter in REPORTED_ONLY else "NO"
        case = row.case.removeprefix(COUNTERS)
        lines.append(f"| {case} | `{row.counter}` | {row.predicted:,} | {row.measured:,} | {equal} |")
    return "\n".join(lines)


if __name__ == "__main__":
    sys.exit(main())
