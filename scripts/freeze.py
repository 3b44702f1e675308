"""Freeze what cutegen makes of many specs, and find what a change of the code made of it.

    python scripts/freeze.py write FILE [--ptx]                     specs and the digests of everything made of them
    python scripts/freeze.py compare FILE [--every 8] [--jobs 2] [--ptx] [--cost]
    python scripts/freeze.py show FILE CASE PART                    what this checkout makes of a case, to diff

The file holds the specs themselves, so a changed generator of specs does not change what is compared. Cases are the
shipped specs on all targets, open specs for problems, the covering of `sm90`'s settings, and random specs, accepted
and refused. Parts of a case are digests of texts: the kernel (`text`), its syntax tree without docstrings and
comments (`ast`), `launch`, `predictions`, `decisions`, all of plan.json with its order of keys (`json`),
`explain`, the limits of a loop (`limits`), the data of the page (`page`, of shipped specs only), and the refusal
(`message`). With --ptx the kernels of the shipped specs and of the covering are compiled too (`ptx`, minutes).

Cost is the number of Python calls and the least CPU time of planning and rendering the shipped and the open specs in
a new process. `compare` prints differences by part, and exits with 1 if there are any.
"""

from __future__ import annotations

import argparse
import ast
import contextlib
import hashlib
import json
import os
import re
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ProcessPoolExecutor
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[1]
sys.path.insert(0, str(ROOT))

from cutegen.analysis.limits import k_tile_cost, limits, rates_of  # noqa: E402
from cutegen.contract.problem import ProblemShape  # noqa: E402
from cutegen.errors import CutegenError  # noqa: E402
from cutegen.plan import GemmPlan, ProbePlan, plan  # noqa: E402
from cutegen.plan.gemm_plan import explain, plan_json  # noqa: E402
from cutegen.render import render  # noqa: E402
from cutegen.show.page.document import page_of_plan  # noqa: E402
from cutegen.spec import GemmSpec, parse_spec, shipped_specs, spec_path  # noqa: E402
from cutegen.spec.file import spec_table  # noqa: E402

ACCEPTED, REFUSED = 500, 300
"""Random specs of each outcome."""
TARGETS = ("sm_80", "sm_89", "sm_90", "sm_120")
PROBLEMS = (
    (4096, 4096, 4096),
    (64, 2112, 7168),
    (1000, 1000, 1000),
    (2048, 8192, 512),
    (16, 4096, 14336),
    (96, 96, 96),
)
SHOWN = 6
"""Names of differing cases that `compare` prints for a part."""
COST_GROUPS = ("shipped", "open")
TIMED_RUNS = 3
PTX_GROUPS = ("shipped", "pairs")
DIGEST_LETTERS = 16
PREDICTED = ("wavefronts", "line_writes", "sectors", "instructions", "occupancy")


@dataclass(frozen=True, slots=True)
class Case:
    """A spec to plan: its TOML text, on a target, for a problem or for none."""

    group: str
    name: str
    target: str
    problem: tuple[int, ...] | None
    toml: str

    @property
    def full_name(self) -> str:
        """Its name in the file and on the command line."""
        return f"{self.group}/{self.name}"

    def spec(self) -> GemmSpec:
        """Read the text. Raises SpecError."""
        return parse_spec(self.toml, file="case.toml", name=self.name.partition("@")[0])

    def plan(self) -> GemmPlan | ProbePlan:
        """Plan the text. Raises CutegenError."""
        return plan(self.spec(), self.target, self.problem)  # type: ignore[arg-type]  # random ones may be wrong


def toml_of(table: Mapping[str, Any], prefix: str = "") -> str:
    """Return a spec's table as TOML with dotted keys."""
    lines = (
        toml_of(value, f"{prefix}{key}.") if isinstance(value, dict) else f"{prefix}{key} = {json.dumps(value)}\n"
        for key, value in table.items()
    )
    return "".join(lines)


def shipped_cases() -> Iterator[Case]:
    """Yield each shipped spec on each target, and for problems on one."""
    for number, name in enumerate(shipped_specs()):
        text = spec_path(name).read_text()
        for target in TARGETS:
            yield Case("shipped", f"{name}@{target}", target, None, text)
        for problem in (PROBLEMS[number % len(PROBLEMS)], PROBLEMS[(number + 1) % len(PROBLEMS)]):
            yield Case("shipped", f"{name}@{'x'.join(map(str, problem))}", "sm_90", problem, text)


def open_cases() -> Iterator[Case]:
    """Yield specs that name operands and family only, for problems."""
    of_types = {
        "f16": ("sm80", "sm90", "sm120", "simt", ""),
        "bf16": ("sm80", "sm90", ""),
        "tf32": ("sm80", ""),
        "f32": ("simt",),
        "e4m3": ("sm80", "sm90", "sm120"),
        "s8": ("sm80", "sm90", ""),
    }
    targets = {"sm80": "sm_80", "sm90": "sm_90", "sm120": "sm_120", "simt": "sm_90"}
    chains = ((), ("bias_n", "gelu_tanh"), ("scale_m", "scale_n", "silu"), ("residual",))
    number = 0
    for element, families in of_types.items():
        for majors in (("k", "k"), ("k", "n"), ("m", "n")) if element in ("f16", "bf16") else (("k", "k"),):
            for family in families:
                for problem in PROBLEMS:
                    number += 1
                    table: dict[str, Any] = {"family": family} if family else {}
                    result = {"s8": "s32", "tf32": "f32", "f32": "f32", "e4m3": "bf16"}.get(element, element)
                    for name, kind, major in zip("abc", (element, element, result), (*majors, "n"), strict=True):
                        table |= {f"problem.{name}.dtype": kind, f"problem.{name}.major": major}
                    if ops := chains[number % len(chains)]:
                        table["epilogue.ops"] = ops
                    target = targets.get(family) or ("sm_90", "sm_80", "sm_120")[number % 3]
                    name = f"{family or 'any'}-{element}-{''.join(majors)}-{number}"
                    yield Case("open", f"{name}@{target}", target, problem, toml_of(table))


def covering_cases() -> Iterator[Case]:
    """Yield every allowed pair of values of sm90's settings, without a problem and for that of the row."""
    from tests.run.covering import covering_rows
    from tests.run.wgmma_settings import RULES, SETTINGS, case_of

    for seed in (12, 13, 14):
        for number, row in enumerate(covering_rows(SETTINGS, RULES, seed=seed)):
            made = case_of(row)
            problem = (made.m, made.n, max(made.k, 1)) if number % 2 else None
            yield Case("pairs", f"{seed}-{number}", "sm_90", problem, toml_of(spec_table(made.spec)))


def random_cases() -> Iterator[Case]:
    """Yield random specs until enough are accepted and enough are refused."""
    from tests.fuzz import specs

    left = {"random": ACCEPTED, "refused": REFUSED}
    seed = 0
    while any(left.values()):
        target, problem, text = specs.split_case(specs.case(seed).text)
        case = Case("random", f"{seed}", target, problem, text)
        try:
            case.plan()
        except CutegenError:
            case = Case("refused", f"{seed}", target, problem, text)
        if left[case.group]:
            left[case.group] -= 1
            yield case
        seed += 1


def parts_of(case: Case) -> Iterator[tuple[str, Callable[[], str]]]:
    """Yield the name of each part of a case, and a function that makes its text."""
    try:
        made = case.plan()
    except CutegenError as error:
        said = f"{type(error).__name__}: {error}"
        yield "message", lambda: said
        return
    table = json.loads(plan_json(made))
    yield "text", lambda: render(made).text
    yield "ast", lambda: bare_code(render(made).text)
    yield "launch", lambda: json.dumps(table.get("launch"))
    yield "predictions", lambda: json.dumps({key: table.get(key) for key in PREDICTED})
    yield "decisions", lambda: json.dumps(table.get("decisions"))
    yield "json", lambda: plan_json(made)
    if isinstance(made, GemmPlan):
        yield "explain", lambda: explain(made, everything=True)
        problem = made.problem or ProblemShape(*PROBLEMS[0])
        yield "limits", lambda: _limits(made, problem)
        if case.group == "shipped":
            yield "page", lambda: _page_data(page_of_plan(made, "", problem))


def bare_code(text: str) -> str:
    """Return the syntax tree of Python code, without docstrings, comments and positions."""
    tree = ast.parse(text)
    for node in ast.walk(tree):
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef) and ast.get_docstring(node) is not None:
            node.body = node.body[1:] or [ast.Pass()]
    return ast.dump(tree)


def _limits(made: GemmPlan, problem: ProblemShape) -> str:
    cost = k_tile_cost(made, problem, None)
    return f"{cost} {limits(cost, rates_of(made))}"


def _page_data(document: str) -> str:
    found = re.search(r'<script type="application/json" id="data">(.*)</script>', document)
    assert found is not None
    return found.group(1)


def ptx_of(case: Case) -> str:
    """Compile a case, from the cache if it is there, and return its PTX."""
    from cutegen.api import request_of
    from cutegen.build import Cache, build

    return build(request_of(case.plan()), Cache.from_environment()).ptx


def digest(text: str) -> str:
    """Return a short SHA-256."""
    return hashlib.sha256(text.encode()).hexdigest()[:DIGEST_LETTERS]


def digests(case: Case, with_ptx: bool = False) -> dict[str, str]:
    """Return the digest of each part of a case; an exception that is no refusal is a part of that name."""
    found: dict[str, str] = {}
    try:
        for name, make in parts_of(case):
            found[name] = digest(make())
        if with_ptx and case.group in PTX_GROUPS and "text" in found:
            found["ptx"] = digest(ptx_of(case))
    except Exception as error:  # a comparison reports what breaks, and goes on
        found["exception"] = f"{type(error).__name__}: {error}"
    return found


def _both(case: Case) -> dict[str, str]:
    return digests(case, with_ptx=True)


def all_digests(cases: list[Case], jobs: int, with_ptx: bool) -> list[dict[str, str]]:
    """Return the digests of each case, in processes if there are several jobs."""
    work = _both if with_ptx else digests
    if jobs == 1:
        return [work(case) for case in cases]
    with ProcessPoolExecutor(jobs) as pool:
        return list(pool.map(work, cases, chunksize=8))


def cost(file: Path) -> dict[str, float]:
    """Return Python calls, and milliseconds of CPU, of planning and rendering in new processes."""
    counted = _in_process(file, "calls")
    times = [_in_process(file, "time") for _ in range(TIMED_RUNS)]
    return {"calls": counted, "cpu_ms": round(min(times), 1)}


def _in_process(file: Path, what: str) -> float:
    command = (sys.executable, __file__, "_cost", str(file), what)
    environment = {**os.environ, "PYTHONHASHSEED": "0"}
    return float(subprocess.run(command, check=True, capture_output=True, text=True, env=environment).stdout)


def print_cost(cases: list[Case], what: str) -> None:
    """Plan and render cases that are accepted and print what it cost, modules imported before."""
    chosen = [case for case in cases if case.group in COST_GROUPS]
    first, *rest = (case for case in chosen if "@4096" not in case.name)
    _made(first)
    calls, begin = 0, time.process_time()

    def count(frame: Any, event: str, arg: Any) -> None:
        nonlocal calls
        calls += event == "call"

    if what == "calls":
        sys.setprofile(count)
    for case in rest:
        _made(case)
    sys.setprofile(None)
    print(calls if what == "calls" else 1e3 * (time.process_time() - begin))


def _made(case: Case) -> None:
    with contextlib.suppress(CutegenError):
        render(case.plan())


def write(file: Path, with_ptx: bool, jobs: int) -> None:
    """Write cases, digests and cost."""
    cases = [*shipped_cases(), *open_cases(), *covering_cases(), *random_cases()]
    found = all_digests(cases, jobs, with_ptx)
    rows = [{**asdict(case), "digests": each} for case, each in zip(cases, found, strict=True)]
    head = subprocess.run(("git", "rev-parse", "HEAD"), cwd=ROOT, capture_output=True, text=True, check=False)
    table = {"commit": head.stdout.strip(), "cost": {}, "cases": rows}
    file.write_text(json.dumps(table))
    file.write_text(json.dumps({**table, "cost": cost(file)}, indent=0))
    print(f"{len(cases)} cases: {dict(Counter(case.group for case in cases))}")


def read(file: Path) -> tuple[dict[str, Any], list[Case], list[dict[str, str]]]:
    """Return the table, its cases and their digests."""
    table = json.loads(file.read_text())
    cases = [
        Case(row["group"], row["name"], row["target"], row["problem"] and tuple(row["problem"]), row["toml"])
        for row in table["cases"]
    ]
    return table, cases, [row["digests"] for row in table["cases"]]


def compare(file: Path, every: int, jobs: int, with_ptx: bool, with_cost: bool) -> int:
    """Print what differs, by part, then by group. Return the exit code."""
    table, cases, before = read(file)
    picked = range(0, len(cases), every)
    now = all_digests([cases[i] for i in picked], jobs, with_ptx)
    differing: dict[tuple[str, str], list[str]] = {}
    for i, mine in zip(picked, now, strict=True):
        old = {part: value for part, value in before[i].items() if with_ptx or part != "ptx"}
        for part in sorted(old.keys() | mine.keys()):
            if old.get(part) != mine.get(part):
                differing.setdefault((part, cases[i].group), []).append(cases[i].full_name)
                if part == "exception":
                    print(f"{cases[i].full_name}: {mine.get(part)}")
    for (part, group), names in differing.items():
        more = f" and {len(names) - SHOWN} more" if len(names) > SHOWN else ""
        print(f"{part:12} {group:8} {len(names):4} differ: {', '.join(names[:SHOWN])}{more}")
    print(f"{len(picked)} cases compared with {table['commit'][:9]}: {'differences' if differing else 'all equal'}")
    if with_cost:
        for key, value in cost(file).items():
            print(f"{key:8} {table['cost'][key]:12,} -> {value:12,} ({value / table['cost'][key] - 1:+.1%})")
    return bool(differing)


def show(file: Path, case_name: str, part: str) -> int:
    """Print the text of one part of a case, as this checkout makes it."""
    _, cases, _ = read(file)
    case = next(case for case in cases if case.full_name == case_name)
    makers = dict(parts_of(case)) | {"ptx": lambda: ptx_of(case), "toml": lambda: case.toml}
    print(makers[part]())
    return 0


def main() -> int:
    """Read the command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("command", choices=("write", "compare", "show", "_cost"))
    parser.add_argument("file", type=Path)
    parser.add_argument("rest", nargs="*")
    parser.add_argument("--every", type=int, default=1, help="compare each so many-th case only")
    parser.add_argument("--jobs", type=int, default=1, help="processes")
    parser.add_argument("--ptx", action="store_true", help="compile too")
    parser.add_argument("--cost", action="store_true", help="count calls and CPU time too")
    asked = parser.parse_args()
    match asked.command:
        case "write":
            write(asked.file, asked.ptx, asked.jobs)
        case "compare":
            return compare(asked.file, asked.every, asked.jobs, asked.ptx, asked.cost)
        case "show":
            return show(asked.file, *asked.rest)
        case _:
            print_cost(read(asked.file)[1], *asked.rest)
    return 0


if __name__ == "__main__":
    sys.exit(main())
