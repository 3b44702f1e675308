"""Write plans of family sm100 beside the choices of CUTLASS and QuACK: `python scripts/compare_choices.py`.

The section of docs/blackwell.md between the markers is written anew from the plans of now and from
docs/blackwell_choices.json. With `--record` that file is written first, by asking the packages, which need no GPU:

    pip install --no-deps nvidia-matmul-heuristics quack-kernels
"""

from __future__ import annotations

import importlib.util
import json
import sys
import types
from collections.abc import Iterator, Mapping
from dataclasses import replace
from importlib import metadata
from pathlib import Path
from typing import Any

from cutegen.contract.problem import ProblemShape
from cutegen.errors import SpecError
from cutegen.hardware import GPUS
from cutegen.plan import GemmPlan, plan
from cutegen.spec import Factors, GemmSpec, Mma, Operand, Problem, Schedule, Tile
from cutegen.support.words import plural

ROOT = Path(__file__).parents[1]
PAGE, CHOICES = ROOT / "docs" / "blackwell.md", ROOT / "docs" / "blackwell_choices.json"
BEGIN, END = "<!-- begin: scripts/compare_choices.py -->", "<!-- end -->"
TARGET, GPU = "sm_100", "B200"
SAME = 0.03
"""Share of a time within which two estimates are one."""

PROBLEMS = (
    *(("bf16", size, size, size) for size in (512, 1024, 2048, 4096, 8192)),
    ("bf16", 16, 4096, 4096),
    ("bf16", 64, 4096, 14336),
    ("bf16", 128, 8192, 8192),
    ("bf16", 256, 4096, 14336),
    ("bf16", 1024, 28672, 8192),
    ("bf16", 2048, 6144, 4096),
    ("bf16", 4096, 11008, 4096),
    ("bf16", 8192, 1024, 8192),
    ("bf16", 128, 128, 16384),
    ("bf16", 16384, 1024, 512),
    ("bf16", 336, 776, 1024),
    ("f16", 4096, 4096, 1024),
    ("e4m3", 4096, 4096, 4096),
    ("e4m3", 64, 7168, 2048),
    ("mxf8", 4096, 4096, 4096),
)
"""Types, and M, N, K. A and B are contiguous along K, the result along N and of 16 bits."""
PRECISION = {"bf16": "TST", "f16": "HSH", "e4m3": "QQTST"}
"""A name of types in nvMatmulHeuristics: A, the sums and C; of 8-bit floats A, B, C, the sums and the result."""


def spec_of(types_: str) -> GemmSpec:
    """Return the spec of a product of these types, with everything else open."""
    element = "e4m3" if types_ == "mxf8" else types_
    factors = Factors((1, 32), "ue8m0") if types_ == "mxf8" else None
    x, c = Operand(element, "k"), Operand("f16" if element == "f16" else "bf16", "n")
    return GemmSpec(family="sm100", problem=Problem(a=x, b=x, c=c, scale_a=factors, scale_b=factors))


def record() -> dict[str, Any]:
    """Ask the packages for their choices. Raises ImportError without them."""
    cutlass, quack = _of_cutlass(), _of_quack()
    rows = [
        {
            "types": types_,
            "problem": list(problem),
            "cutlass": cutlass(types_, problem),
            "quack": quack(types_, problem),
        }
        for types_, *problem in PROBLEMS
    ]
    names = ("nvidia-matmul-heuristics", "quack-kernels")
    return {"versions": {name: metadata.version(name) for name in names}, "gpu": GPU, "rows": rows}


def _of_cutlass() -> Any:
    """Return a function for the first choice of nvMatmulHeuristics, which ranks the operators of CUTLASS."""
    library = importlib.import_module("nvMatmulHeuristics")
    backend = library.NvMatmulHeuristicsTarget["CUTLASS3"]
    ranked = library.NvMatmulHeuristicsInterfaceEx(
        backend=backend,
        flags=library.NvMatmulHeuristicsFlags.PERF_MODEL_BASED_AUTO_TUNING,
        gpu=library.NvMatmulHeuristicsNvidiaGpu[GPU],
        load_discovery_implicitly=True,
    )
    of_cutlass = ranked.createBackend(backend)

    def first(types_: str, problem: list[int]) -> dict[str, Any] | None:
        if types_ not in PRECISION:
            return None
        asked = ranked.makeNvMatmulHeuristicsProblem(
            *problem, library.NvMatmulHeuristicsMatmulLayout["TN_ROW_MAJOR"], 1
        )
        found = ranked.getEx(asked, 1, of_cutlass, precision=PRECISION[types_])[0]
        kernel = found["kernel"]
        return {
            # A tile of a CTA; an even cluster along M multiplies by pairs, as `cutlass.operators` reads it.
            "tile": [kernel.cta_tile_m, kernel.cta_tile_n],
            "ctas": 2 if kernel.cluster_m % 2 == 0 else 1,
            "cluster": [kernel.cluster_m, kernel.cluster_n],
            "split_k": kernel.split_k,
            "estimated_us": round(1e6 * found["runtime"], 1),
        }

    return first


def _of_quack() -> Any:
    """Return a function for the choice that QuACK makes without tuning, with nvMatmulHeuristics at hand."""
    import torch

    where = importlib.util.find_spec("quack")
    if where is None or where.submodule_search_locations is None:
        raise ImportError("no package quack")
    package = types.ModuleType("quack")  # without its __init__, which imports kernels
    package.__path__ = list(where.submodule_search_locations)
    sys.modules["quack"] = package
    config, heuristic = (importlib.import_module(f"quack.{name}") for name in ("gemm_config", "nvmmh_heuristic"))
    capability = 10

    def chosen(types_: str, problem: list[int]) -> dict[str, Any] | None:
        m, n, k = problem
        element = {"bf16": torch.bfloat16, "f16": torch.float16}.get(types_)
        if types_ == "mxf8":
            found = config.blockscaled_default_config(m, n)
        elif element is None:
            return None
        else:
            a, b = (torch.empty(shape, dtype=element, device="meta") for shape in ((m, k), (k, n)))
            found = heuristic.nvmmh_default_config(a, b, capability)
        scaled = types_ == "mxf8"
        rows = config.cta_tile_shape_m(found.tile_m, found.cluster_m, capability, scaled)
        return {
            "tile": [rows, found.tile_n],
            "ctas": 2 if rows < found.tile_m else 1,
            "cluster": [found.cluster_m, found.cluster_n],
            "split_k": found.split_k,
            "swap": found.swap_ab,
            "dynamic": found.is_dynamic_persistent,
        }

    return chosen


def section(choices: Mapping[str, Any]) -> str:
    """Return the section: a table, and each difference with its reason."""
    rows = list(map(_Row, choices["rows"]))
    versions = ", ".join(f"{name} {version}" for name, version in choices["versions"].items())
    table = [
        "| problem | cutegen | us | CUTLASS | QuACK |",
        "|---|---|---|---|---|",
        *(
            f"| {row.problem} {row.types} | {_said(row.ours)} | {row.us:.3g} | {row.theirs('cutlass')} "
            f"| {row.theirs('quack')} |"
            for row in rows
        ),
    ]
    differences = [f"- {line}" for row in rows for line in row.differences()]
    lead = (
        f"For a {GPU}, by {versions}. A choice is the tile of a CTA, `x2` if",
        "a pair multiplies, and the cluster where it is more. CUTLASS is the first choice of nvMatmulHeuristics, which",
        "ranks the kernels of `cutlass.operators`; QuACK is its choice without tuning, which reads a tile of the same",
        "library as a pair's. No time here was measured: `us` is the estimate of this page, and a reason is what",
        "the same estimate says of their choice.",
    )
    return "\n".join([*lead, "", *table, "", *differences])


class _Row:
    """A problem with the choices for it."""

    def __init__(self, row: Mapping[str, Any]) -> None:
        self.row, self.types = row, row["types"]
        self.problem = ProblemShape(*row["problem"])
        self.plan = self.planned()
        found = self.plan.mma
        self.ours = {
            "tile": [*found.cta_tile[:2]],
            "ctas": found.atom.ctas,
            "cluster": [*found.cluster[:2]],
            "swap": self.plan.swapped,
        }
        self.us = _us(self.plan)

    def planned(self, theirs: Mapping[str, Any] | None = None) -> GemmPlan:
        """Return the plan of now, with the choice of another. Raises SpecError if the family cannot make it."""
        spec = spec_of(self.types)
        if theirs is not None:
            depth = 128 // (1 if self.types in ("e4m3", "mxf8") else 2)
            rows, columns = theirs["tile"]
            pair = theirs["ctas"] == 2
            spec = replace(
                spec,
                tile=Tile(cta=(rows, columns, depth)),
                mma=Mma(cta_group=theirs["ctas"]),
                schedule=Schedule(
                    cluster=tuple(theirs["cluster"]) if theirs["cluster"] != [1 + pair, 1] else None,
                    swap=theirs.get("swap") or None,
                    split_k=theirs["split_k"] if theirs["split_k"] > 1 else None,
                ),
            )
        made = plan(spec, TARGET, self.problem)
        assert isinstance(made, GemmPlan)
        return made

    def theirs(self, who: str) -> str:
        """Return another's choice as text."""
        return "none" if self.row[who] is None else _said(self.row[who])

    def differences(self) -> Iterator[str]:
        """Yield a sentence for each choice that is not ours, with the reason."""
        by_reason: dict[str, list[str]] = {}
        for who, name in (("cutlass", "CUTLASS"), ("quack", "QuACK")):
            theirs = self.row[who]
            if theirs is not None and not _alike(theirs, self.ours):
                by_reason.setdefault(f"{_said(theirs)}: {self._reason(theirs)}", []).append(name)
        for reason, names in by_reason.items():
            yield f"{self.problem} {self.types}, {' and '.join(names)} {reason}"

    def _reason(self, theirs: Mapping[str, Any]) -> str:
        try:
            other = self.planned(theirs)
        except SpecError as error:
            return f"family sm100 has no such kernel: {error.key} found {error.found}"
        us = _us(other)
        of_ours, of_theirs = (each.launch.tiles(self.problem) for each in (self.plan, other))
        spread = f"{plural(of_theirs, 'tile')} for {GPUS[TARGET].sms} SMs, ours {of_ours:,}"
        if abs(us - self.us) <= SAME * self.us:
            return f"the same estimate, {us:.3g} us; {spread}. Ours is the smaller cluster, which more SMs can start"
        if us > self.us:
            return f"{us:.3g} us by our estimate, {us / self.us:.2f} times ours; {spread}"
        return f"{us:.3g} us by our estimate, {self.us / us:.2f} times faster: our search does not try it; {spread}"


def _us(made: GemmPlan) -> float:
    assert made.predicted_time is not None
    return made.predicted_time.us


def _alike(one: Mapping[str, Any], other: Mapping[str, Any]) -> bool:
    same = all(one[key] == other[key] for key in ("tile", "ctas", "cluster"))
    return same and one.get("split_k", 1) == 1 and bool(one.get("swap")) == bool(other.get("swap"))


def _said(choice: Mapping[str, Any]) -> str:
    (m, n), (along_m, along_n) = choice["tile"], choice["cluster"]
    words = [f"{m}x{n}" + " x2" * (choice["ctas"] == 2)]
    if (along_m, along_n) != (choice["ctas"], 1):
        words.append(f"cluster {along_m}x{along_n}")
    if choice.get("split_k", 1) > 1:
        words.append(f"K in {choice['split_k']} parts")
    if choice.get("swap"):
        words.append("A and B exchanged")
    return ", ".join(words)


def main() -> None:
    """Write the section, after the file of choices if that is asked for."""
    if sys.argv[1:] == ["--record"]:
        CHOICES.write_text(json.dumps(record(), indent=1) + "\n")
    before, _, rest = PAGE.read_text().partition(BEGIN)
    _, _, after = rest.partition(END)
    text = section(json.loads(CHOICES.read_text()))
    PAGE.write_text(f"{before}{BEGIN}\n\n{text}\n\n{END}{after}")


if __name__ == "__main__":
    main()
