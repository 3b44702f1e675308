"""The results of kernels on this machine, as a file to send: its GPU, versions, each kernel's counts, times and bits.

Each kernel runs in a process of its own (`machine_kernel.py`), so a fault, or a kernel that does not end, is a row. The
file has no paths, and nothing of the machine but its GPU, driver and packages.
"""

import re
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from cutegen.bench.conditions import PACKAGES, nvml, versions
from cutegen.errors import CutegenError, SpecError
from cutegen.hardware import Target
from cutegen.hardware.targeting import present_target
from cutegen.plan import GemmPlan, plan
from cutegen.run.driver import load_driver
from cutegen.spec import load_spec, shipped_specs
from cutegen.support.typed_json import parse_object
from cutegen.support.words import aligned, extents, plural
from cutegen.verify.trial import CPU, CUDA

LIMIT_S = 600
"""Time that a kernel has, with its compilation."""
_ROW = "a row of the report"


def described(target: Target) -> dict[str, Any]:
    """Return the target, and this machine's GPU, driver and versions; no GPU if its kernels are not the target's."""
    found: dict[str, Any] = {
        "cutegen": versions(("cutegen",)).get("cutegen", "not installed"),
        "target": target.name,
        "gpu_arch": target.gpu_arch,
        "device": None,
        "driver": None,
        "cuda": None,
        "python": ".".join(map(str, sys.version_info[:3])),
        "versions": versions(PACKAGES),
    }
    if present_target() != target:
        return found
    driver = load_driver()
    state = nvml(0)
    number = driver.call("cuDriverGetVersion")
    return found | {
        "device": driver.device_name(0),
        "driver": None if state is None else state.driver_version(),
        "cuda": f"{number // 1000}.{number % 1000 // 10}",
    }


def specs_for(target: Target) -> tuple[tuple[str, ...], Mapping[str, str]]:
    """Return the shipped specs that plan a GEMM for a target, and why others do not."""
    able, refused = [], {}
    for name in shipped_specs():
        try:
            if isinstance(plan(load_spec(name), target), GemmPlan):
                able.append(name)
            else:
                refused[name] = "a probe"
        except SpecError as error:
            refused[name] = f"{error.key}: found {error.found}"
    return tuple(able), refused


def rows(
    specs: Sequence[str], target: Target, *, rounds: int, tell: Callable[[int, int], None]
) -> dict[str, dict[str, Any]]:
    """Run each kernel on the target's GPU if it is here, else on the CPU executor; `tell` hears how many are done."""
    device, found = CUDA if present_target() == target else CPU, {}
    for number, name in enumerate(specs):
        tell(number, len(specs))
        found[name] = _row(name, target, device, rounds)
    tell(len(specs), len(specs))
    return found


def _row(name: str, target: Target, device: str, rounds: int) -> dict[str, Any]:
    command = (sys.executable, "-m", "cutegen.analysis.machine_kernel", name, target.name, device, str(rounds))
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=LIMIT_S, check=False)
    except subprocess.TimeoutExpired:
        return {"error": f"it did not end within {LIMIT_S} s"}
    if done.returncode:
        said = done.stderr.strip().splitlines()
        return {"error": without_paths(said[-1]) if said else f"the process ended with {done.returncode}"}
    try:
        return parse_object(done.stdout, _ROW)
    except CutegenError as error:
        return {"error": without_paths(str(error))}


def without_paths(text: str) -> str:
    """Return a message with the last part of each absolute path alone.

    >>> without_paths("CompileError: /srv/of/someone/text.ptx:12: no; see a/b")
    'CompileError: text.ptx:12: no; see a/b'
    """
    return re.sub(r"(?<![\w./])~?(?:/[^/\s:'\"]+)+/([^/\s:'\"]*)", r"\1", text)


def lines(table: Mapping[str, Any]) -> list[str]:
    """Return the report as text: the machine, and a line for each kernel."""
    on = table["device"] or "the CPU executor, which measures no times"
    header = ("kernel", "family", "tile", "result", "nearest", "off by one", "more", "as planned", "us")
    shown = [_line(name, row) for name, row in table["kernels"].items()]
    wrong = sum("error" in row or not row["bits"]["ok"] for row in table["kernels"].values())
    packages = ", ".join(f"{name} {version}" for name, version in table["versions"].items())
    return [
        f"cutegen {table['cutegen']} for {table['target']} on {on}",
        f"  {packages}",
        "",
        *aligned(shown, header=header, right={4, 5, 6, 8}),
        "",
        f"{plural(len(shown), 'kernel')}, {wrong} wrong; {plural(len(table['refused']), 'spec')} not for this target",
    ]


def _line(name: str, row: Mapping[str, Any]) -> tuple[str, ...]:
    if "error" in row:
        return name, "", "", f"failed: {row['error']}", "", "", "", "", ""
    bits, counts = row["bits"], list(row["bits"]["steps_from_float64"].values())
    as_planned = row["emitted_as_planned"] and row.get("executed_as_planned", True)
    times = row.get("times")
    return (
        name,
        row["family"],
        extents(row["tile"]),
        "ok" if bits["ok"] else f"wrong, {bits['wrong']:,}",
        *(f"{count:,}" for count in (counts[0], counts[1], sum(counts[2:]))),
        "yes" if as_planned else "no",
        "" if times is None else f"{times['median_us']:.1f}",
    )


def report(
    target: Target, specs: Sequence[str] | None, *, rounds: int, tell: Callable[[int, int], None]
) -> dict[str, Any]:
    """Return the report of this machine for some shipped specs, or for all that plan for the target."""
    able, refused = specs_for(target)
    chosen = able if specs is None else tuple(specs)
    return described(target) | {
        "refused": dict(refused),
        "kernels": rows(chosen, target, rounds=rounds, tell=tell),
    }
