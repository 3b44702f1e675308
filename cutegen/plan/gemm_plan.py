"""A finished plan, and what it tells people (`explain`) and programs (`plan_table`, `plan_json`)."""

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any, Protocol

from cutegen.algebra import Layout, TiledMma, format_layout, spec_notation
from cutegen.contract.problem import ProblemShape
from cutegen.hardware import SM_RATES, Instruction, Target
from cutegen.hardware.rates import ASSUMED_MMA_FLOPS
from cutegen.hardware.units import WARP
from cutegen.plan.kernel.pipeline import IDLE, MMA, PRODUCER, THREADS
from cutegen.plan.values.copies import is_of_few
from cutegen.plan.values.decision import Decision, KeyCost, Rejected
from cutegen.plan.values.gemm_plan import PlannedGemm, sizes_line
from cutegen.plan.values.operand import SmemCandidate, SmemTile
from cutegen.spec import GemmSpec
from cutegen.support.words import aligned, extents, plural, text_width, wrapped

SHOWN_REJECTED = 3
SHOWN_RANKS = 6
COUNT_COLUMNS = 8  # reserved in a line for the indent and the count after an opcode


@dataclass(frozen=True, slots=True, kw_only=True)
class GemmPlan(PlannedGemm):
    """A finished plan of any family: its fields, and how it is shown."""

    def explain(self, *, everything: bool = False, costs: Sequence[KeyCost] = ()) -> str:
        """Every decision, its reason, what was rejected, ranked layouts and predictions, wrapped to `text_width()`.

        The `costs` of given keys (`cutegen.analysis.costs.key_costs`) precede them.
        """
        return explain(self, everything=everything, costs=costs)

    def to_json(self) -> dict[str, Any]:
        """The plan as plain tables: the content of an artifact's `plan.json`."""
        return plan_table(self)


def explain(plan: PlannedGemm, *, everything: bool = False, costs: Sequence[KeyCost] = ()) -> str:
    """Return every decision with its reason and rejected alternatives, the ranked shared layouts, and the predictions.

    The `costs` of given keys precede them. Long lists are truncated unless `everything` is set. Lines have COLUMNS
    columns, or 100.
    """
    width = text_width()
    blocks = (
        [
            *title_lines(plan.spec, plan.target, plan.problem, width),
            *(line for text in heading(plan) for line in wrapped(text, first="  ", rest="    ", width=width)),
        ],
        *([cost_lines(costs, width)] if costs else ()),
        decision_lines(plan.decisions, everything, width),
        *_rankings(plan, everything, width),
        _accesses(plan, width),
        instruction_lines(plan.predictions.instructions, width),
        _resources(plan, width),
    )
    return "\n\n".join("\n".join(block) for block in blocks) + "\n"


class Shown(Protocol):
    """A plan that can be written as plain tables."""

    def to_json(self) -> dict[str, Any]: ...


def plan_json(plan: Shown) -> str:
    """Return the text of `plan.json`: its `to_json`; equal plans give equal text."""
    return json.dumps(plan.to_json(), indent=2) + "\n"


def plan_table(plan: PlannedGemm) -> dict[str, Any]:
    """Return the plan as plain tables, lists, strings and numbers; layouts are in CuTe's notation."""
    predictions, time = plan.predictions, plan.predicted_time
    return {
        "spec": plan.spec.name,
        "description": plan.spec.description,
        "family": plan.family,
        "kind": plan.spec.kind,
        "target": plan.target.name,
        "remarks": list(remarks(plan)),
        "problem": None if plan.problem is None else plan.problem.table(),
        "predicted_time": None if time is None else {"us": time.us, "how": time.how, "gpu": time.gpu},
        "tile": list(plan.cta_tile),
        "stages": plan.stages,
        "k_tiles_per_turn": plan.loop.k_tiles_per_turn,
        "loop": plan.loop.to_json(),
        "threads": plan.threads,
        "smem_bytes": plan.smem_bytes,
        "mma": _mma_table(plan),
        "smem": {x.name: _smem_table(x.smem) for x in plan.operands},
        "g2s": {x.name: x.g2s.to_json() for x in plan.operands},
        "s2r": {x.name: x.s2r.to_json() for x in plan.operands},
        "epilogue": _epilogue_table(plan),
        "raster": asdict(plan.scheduler.order),
        "split_k": _split_table(plan),
        "wavefronts": {
            key: _wavefronts_table(plan, key)
            for key in plan.shared_accesses
            if key in predictions.wavefronts or not is_of_few(key)
        },
        "line_writes": {key: asdict(value) for key, value in predictions.line_writes.items()},
        "sectors": {key: asdict(value) for key, value in predictions.sectors.items()},
        "instructions": dict(sorted(predictions.instructions.items())),
        "occupancy": asdict(predictions.occupancy),
        "decisions": [asdict(decision) for decision in plan.decisions],
        "launch": plan.launch.to_json(),
    }


BY_LINE = (
    "by line: the cost of writes of a copy that bypasses L1, one wavefront per (global line, "
    "shared line) pair touched; the ranking counts these, see docs/measurements.md for the rule"
)


def ranking(smem: SmemTile, *, everything: bool = False) -> list[tuple[str, ...]]:
    """Return rows (mark, layout, write ways, ways by line, read ways, wavefronts, bytes), best first.

    `*` marks the layout in use. A layout that the spec gives and that is not ranked comes first.
    """
    ranked = list(smem.ranking)
    if smem.chosen not in ranked:
        ranked.insert(0, smem.chosen)
    shown = ranked if everything else [row for i, row in enumerate(ranked) if i < SHOWN_RANKS or _is_plain(row)]
    return [_ranking_row(row, "*" if row == smem.chosen else "") for row in shown]


def ranking_lines(title: str, rows: Sequence[tuple[str, ...]], width: int | None = None) -> list[str]:
    """Return `ranking` under a title; the column "by line" and its legend appear only if copies are counted by line."""
    header = ("", "layout", "writes", "by line", "reads", "wavefronts", "bytes")
    counted = any(row[3] for row in rows)
    table = [row if counted else (*row[:3], *row[4:]) for row in (header, *rows)]
    lines = aligned(table[1:], header=table[0], right=range(2, len(table[0])), width=width)
    return [title, *lines, *(wrapped(BY_LINE, first="  ", rest="    ", width=width) if counted else ())]


def ways(value: float) -> str:
    """Format the degree of a bank conflict.

    >>> ways(1.0), ways(2.5)
    ('1-way', '2.5-way')
    """
    return f"{value:.3g}-way"


def _is_plain(row: SmemCandidate) -> bool:
    return row.swizzle is None and row.pad_elems == 0


def _ranking_row(row: SmemCandidate, mark: str) -> tuple[str, ...]:
    return (
        mark,
        row.name,
        ways(row.write.ways),
        "" if row.lines is None else ways(row.lines.ways),
        ways(row.read.ways),
        f"{row.wavefronts:,}",
        f"{row.tile_bytes:,}",
    )


def _mma_table(plan: PlannedGemm) -> dict[str, Any]:
    return {
        "atom": plan.atom.name,
        "ptx": plan.atom.ptx,
        "accumulator": plan.atom.c_dtype.name,
        "shape_mnk": list(plan.atom.shape_mnk),
        "atom_layout": list(plan.atoms_mnk),
        "permutation": list(plan.tiled_mma.tile_mnk),
        "rows": _permuted(plan.tiled_mma, 0),
        "columns": _permuted(plan.tiled_mma, 1),
    }


def _permuted(tiled_mma: TiledMma, mode: int) -> str | None:
    """Return the layout of a mode of the tiled MMA's tile, if it is more than an extent."""
    permuted = tiled_mma.permutation[mode]
    return spec_notation(permuted) if isinstance(permuted, Layout) else None


def _smem_table(smem: SmemTile) -> dict[str, Any]:
    swizzle = smem.swizzle
    return {
        "layout": format_layout(smem.layout),
        "swizzle": None if swizzle is None else [swizzle.bits, swizzle.base, swizzle.shift],
        "pad": smem.pad_elems,
        "bytes": smem.bytes,
        "ranking": smem.ranking_table(),
    }


def _epilogue_table(plan: PlannedGemm) -> dict[str, Any]:
    epilogue = plan.epilogue
    return {
        "smem": None if epilogue.smem is None else _smem_table(epilogue.smem),
        "store": None if epilogue.store is None else epilogue.store.to_json(),
        "steps": [step.text for step in epilogue.fusion.steps],
        "scalars": list(epilogue.fusion.scalars),
        "tensors": [
            {"name": x.name, "dtype": x.dtype.name, "major": x.major, "align_bytes": x.align_bytes}
            for x in epilogue.fusion.tensors
        ],
    }


def _split_table(plan: PlannedGemm) -> dict[str, Any] | None:
    split = plan.split_k
    if split is None:
        return None
    return {
        "slices": split.slices,
        "clustered": split.clustered,
        "dtype": split.dtype.name,
        "in_flight": split.in_flight,
        "atomics": split.atomics,
    }


def _wavefronts_table(plan: PlannedGemm, key: str) -> dict[str, int]:
    """Return the wavefronts; an epilogue straight from registers does not access shared memory and has none."""
    found = plan.predictions.wavefronts.get(key)
    return {"ideal": 0, "predicted": 0} if found is None else asdict(found)


def cost_lines(costs: Sequence[KeyCost], width: int) -> list[str]:
    """Return what given keys cost, a paragraph each, under a title."""
    return [
        "What given keys cost, and what the plan has without each",
        *(line for cost in costs for line in wrapped(str(cost), first="  ", rest="      ", width=width)),
    ]


def heading(plan: PlannedGemm) -> tuple[str, ...]:
    """Return the predicted times for the plan's problem, and the remarks, a line each."""
    time = plan.predicted_time
    return (*(() if time is None else (f"time: {time}", *sizes_line(time))), *remarks(plan))


def title_lines(spec: GemmSpec, target: Target, problem: ProblemShape | None, width: int) -> list[str]:
    """Return the first line."""
    description = f": {spec.description}" if spec.description else ""
    for_problem = "" if problem is None else f", {problem}"
    return wrapped(f"{spec.name or 'unnamed spec'} for {target.name}{for_problem}{description}", width=width)


def remarks(plan: PlannedGemm) -> tuple[str, ...]:
    """Return what a reader should know of the plan's target and of its times, a sentence each."""
    target, multiply = plan.target, plan.atom.multiply
    if not multiply.has_run:
        return (f"no kernel by {plan.atom.instruction} has run on hardware: it is proved, and executed on the CPU",)
    if plan.problem is None or SM_RATES[target.name].flops.get(Instruction.MMA_SYNC) is not None:
        return target.remarks
    assumed = f"times assume {ASSUMED_MMA_FLOPS:,.0f} operations per cycle and SM, enough to rank kernels"
    return (*target.remarks, f"the rate of mma.sync on {target.name} is not known here: {assumed}")


def decision_lines(decisions: Sequence[Decision], everything: bool, width: int) -> list[str]:
    """Return every decision with its reason, and the rejected alternatives."""
    key_width = max(len(decision.key) for decision in decisions)
    lines = ["Decisions"]
    for decision in decisions:
        state = "given " if decision.given else "chosen"
        lines += [
            *wrapped(
                decision.chosen,
                first=(start := f"  {decision.key.ljust(key_width)}  {state}  "),
                rest=" " * len(start),
                width=width,
            ),
            *_reasons(decision, everything, width),
        ]
    return lines


def _reasons(decision: Decision, everything: bool, width: int) -> Iterator[str]:
    indent = " " * 6
    if why := decision.why.removeprefix("given").removeprefix("; "):
        yield from wrapped(why, first=indent, rest=indent, width=width)
    if decision.for_problem:
        yield from wrapped(decision.for_problem, first=indent, rest=indent, width=width)
    shown: Sequence[Rejected] = decision.rejected if everything else decision.rejected[:SHOWN_REJECTED]
    for rejected in shown:
        text = f"not {rejected.what}: {rejected.why}"
        yield from wrapped(text, first=indent, rest=indent + "  ", width=width)
    if hidden := len(decision.rejected) - len(shown):
        yield f"{indent}and {plural(hidden, 'more alternative')} (see --all)"


def _rankings(plan: PlannedGemm, everything: bool, width: int) -> Iterator[list[str]]:
    """Return the ranked layouts; operands with the same ranking share one table."""
    tables: dict[tuple[tuple[str, ...], ...], list[str]] = {}
    whole: dict[tuple[tuple[str, ...], ...], list[tuple[str, ...]]] = {}
    tiles = [(f"smem.{x.name}", x.smem) for x in plan.operands]
    for key, smem in (*tiles, ("epilogue.smem", plan.epilogue.smem)):
        if smem is not None:
            rows = tuple(ranking(smem, everything=everything))
            tables.setdefault(rows, []).append(key)
            whole[rows] = ranking(smem, everything=True)
    for rows, keys in tables.items():
        title = f"Shared-memory layouts of {' and '.join(keys)}, best first, * in use"
        yield [*ranking_lines(title, rows, width), *hidden_lines(len(whole[rows]) - len(rows))]


def hidden_lines(hidden: int) -> list[str]:
    """Return the number of hidden rows and how to show them; nothing for a complete ranking."""
    return [f"  and {plural(hidden, 'more layout')} (see --all)"] if hidden else []


def _accesses(plan: PlannedGemm, width: int) -> list[str]:
    predictions = plan.predictions
    rows = []
    for key in dict.fromkeys((*plan.shared_accesses, *predictions.sectors)):
        wavefronts, sectors = predictions.wavefronts.get(key), predictions.sectors.get(key)
        if wavefronts is not None or sectors is not None:
            shared = (
                (f"{wavefronts.predicted:,}", f"{wavefronts.ideal:,}", ways(wavefronts.ways))
                if wavefronts
                else ("",) * 3
            )
            global_ = (f"{sectors.predicted:,}", f"{sectors.ideal:,}") if sectors else ("",) * 2
            rows.append((key, *shared, *global_))
        if (lines := predictions.line_writes.get(key)) is not None:
            rows.append(("  by line", f"{lines.predicted:,}", f"{lines.ideal:,}", ways(lines.ways), "", ""))
    header = ("access", "wavefronts", "ideal", "conflicts", "sectors", "ideal")
    title = "Memory accesses predicted per CTA: one k-tile of A and B, the whole tile of C"
    return [title, *aligned(rows, header=header, right=range(1, 6), width=width)]


def instruction_lines(instructions: Mapping[str, int], width: int) -> list[str]:
    """Return the predicted instructions."""
    counts = sorted(instructions.items())
    rows = [row for opcode, count in counts for row in _instruction_rows(opcode, f"{count:,}", width - COUNT_COLUMNS)]
    return ["Instructions predicted in the PTX text", *aligned(rows, right={1}, width=width)]


def _instruction_rows(opcode: str, count: str, width: int) -> list[tuple[str, str]]:
    """Return an opcode and its count; a long opcode is split before a modifier and continues in a second row."""
    if len(opcode) <= width:
        return [(opcode, count)]
    at = opcode.rindex(".", 0, width)
    return [(opcode[:at], ""), (f"  {opcode[at:]}", count)]


def _resources(plan: PlannedGemm, width: int) -> list[str]:
    occupancy, capacity = plan.predictions.occupancy, plan.target.smem_per_cta_bytes
    limits = f"threads {occupancy.by_threads}, shared memory {occupancy.by_smem}, registers {occupancy.by_registers}"
    rows = [
        ("threads", f"{plan.threads} in {plural(plan.threads // WARP, 'warp')}{_shared_out(plan)}"),
        ("shared memory", f"{plan.smem_bytes:,} of {capacity:,} bytes"),
        ("registers", f"{occupancy.registers_per_thread} per thread (estimate)"),
        ("occupancy", f"{plural(occupancy.ctas_per_sm, 'CTA')} per SM; limits, in CTAs per SM: {limits}"),
    ]
    return ["Resources of a CTA", *aligned(rows, width=width)]


def _shared_out(plan: PlannedGemm) -> str:
    """Describe the roles of the threads: which multiply, and which copy; every role, if there are others."""
    if {role.name for role in plan.roles} - {THREADS, MMA, PRODUCER, IDLE}:
        return ": " + ", ".join(f"{role.name} ({plural(role.warps, 'warp')})" for role in plan.roles)
    along = f"{extents(plan.atoms_mnk)} {plan.atoms_are} along M, N, K"
    if len(plan.roles) == 1:
        return f", {along}"
    multiplying = "2 warpgroups multiply one tile each" if plan.mma.role.alternates else f"{along} multiply"
    return f": {multiplying}, {plural((plan.threads - plan.mma.threads) // WARP, 'producer warp')}"
