"""Several specs side by side: decisions, costs, the compiler's results and GPU measurements."""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import Any

from cutegen.algebra import format_layout
from cutegen.analysis.limits import KTileCost, Limit, k_tile_cost, limits, multiplier, rates_of, shares
from cutegen.api import request_of
from cutegen.bench.benchmark import Result
from cutegen.bench.ceilings import Ceilings
from cutegen.build import Artifact, Cache
from cutegen.contract.launch import RESULT
from cutegen.contract.problem import ProblemShape
from cutegen.errors import CutegenError
from cutegen.plan import FAMILIES, GemmPlan, ProbePlan
from cutegen.plan.gemm_plan import ways
from cutegen.plan.predict import predict_occupancy
from cutegen.plan.values.copies import AccessKey, shared_accesses
from cutegen.spec import GemmSpec
from cutegen.support.words import extents
from cutegen.tuned.answer import plan

Value = str | int | float | None
MILLION = 1e6
NOT_PLANNED = "not planned"


class Section(StrEnum):
    """Subject of a row, in display order."""

    PLAN = "target and operands"
    DECISIONS = "decisions"
    SHARED = "shared memory layouts"
    ACCESSES = "memory accesses, predicted"
    INSTRUCTIONS = "instructions, predicted"
    RESOURCES = "resources"
    BOUNDS = "cycles of an SM per million operations"
    TIMES = "times"


@dataclass(frozen=True, slots=True, kw_only=True)
class Compared:
    """One spec: its plan, or `why_not` if there is none; `artifact` if it is built, `results` if it was timed."""

    name: str
    plan: GemmPlan | None
    why_not: str = ""
    artifact: Artifact | None = None
    results: tuple[Result, ...] = ()
    make: Callable[[], Artifact] | None = None
    """The builder of a finished kernel, whose text need not be that of its plan."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Finished:
    """A kernel that leaves nothing open, to compare: an edited file, or a built folder, which is `built` already."""

    name: str
    plan: GemmPlan
    make: Callable[[], Artifact]
    built: bool


@dataclass(frozen=True, slots=True)
class Row:
    """One property of every spec: `values` for programs, `cells` for people; `fewer` says that less is better.

    `fewer` is None if no value is better than another. A spec without a plan has None and an empty cell.
    """

    section: Section
    name: str
    values: tuple[Value, ...]
    cells: tuple[str, ...]
    fewer: bool | None = None

    @property
    def equal(self) -> bool:
        """True if the value is the same for all specs with a plan."""
        return len(set(self.cells) - {""}) <= 1

    @property
    def common(self) -> str:
        """The cell of an equal row: that of the first spec with a plan."""
        return next(filter(None, self.cells), "")


@dataclass(frozen=True, slots=True)
class Comparison:
    """Specs compared for a problem; `ceilings` and times if a GPU measured them, else `why_not_measured`."""

    problem: ProblemShape
    asked: bool
    specs: tuple[Compared, ...]
    ceilings: Ceilings | None = None
    why_not_measured: str = ""

    @property
    def rows(self) -> tuple[Row, ...]:
        """All rows, equal or not."""
        return tuple(_rows(self))


def compare(
    specs: Sequence[GemmSpec | Finished],
    arch: str | None,
    problem: ProblemShape | None,
    *,
    default: ProblemShape,
    cache: Cache,
) -> Comparison:
    """Plan each spec and look up its kernel in the cache. Without a `problem`, the bounds are those of `default`.

    A spec that cannot be planned holds the reason. Raises the first of their errors if none can be planned.
    """
    found, errors = [], []
    for name, spec in zip(_names(specs), specs, strict=True):
        if isinstance(spec, Finished):
            artifact = spec.make() if spec.built else None
            found.append(Compared(name=name, plan=spec.plan, artifact=artifact, make=spec.make))
            continue
        try:
            made = plan(spec, arch, problem)
            if isinstance(made, ProbePlan):
                made = made.gemm
            found.append(Compared(name=name, plan=made, artifact=cache.lookup(request_of(made))))
        except CutegenError as error:
            errors.append(error)
            found.append(Compared(name=name, plan=None, why_not=str(error)))
    if len(errors) == len(specs):
        raise errors[0]
    return Comparison(problem or default, problem is not None, tuple(found))


def with_artifacts(comparison: Comparison, build: Callable[[GemmPlan], Artifact]) -> Comparison:
    """Return the comparison with every kernel built."""

    def built(x: Compared) -> Compared:
        if x.plan is None:
            return x
        return replace(x, artifact=build(x.plan) if x.make is None else x.make())

    return replace(comparison, specs=tuple(map(built, comparison.specs)))


def with_times(comparison: Comparison, ceilings: Ceilings, results: Iterable[Result]) -> Comparison:
    """Return the comparison with GPU measurements; a result belongs to the spec with its contender's name."""
    by_name: dict[str, list[Result]] = {}
    for result in results:
        if result.ours:
            by_name.setdefault(result.contender, []).append(result)
    specs = tuple(replace(x, results=tuple(by_name.get(x.name, ()))) for x in comparison.specs)
    return replace(comparison, specs=specs, ceilings=ceilings)


def _names(specs: Sequence[GemmSpec | Finished]) -> Iterator[str]:
    """Return a unique name per spec; duplicates get a number."""
    seen: dict[str, int] = {}
    for spec in specs:
        name = spec.name or "unnamed"
        seen[name] = seen.get(name, 0) + 1
        yield name if seen[name] == 1 else f"{name} ({seen[name]})"


def _rows(comparison: Comparison) -> Iterator[Row]:
    makers = (_plan_rows, _decisions, _layouts, _accesses, _instructions, _resources)
    found = [row for make in makers for row in make(comparison.specs)]
    planned = [x.plan is not None for x in comparison.specs]
    for row in (*found, *_bounds(comparison), *_times(comparison)):
        cells = tuple(
            cell if has or row.name == NOT_PLANNED else "" for cell, has in zip(row.cells, planned, strict=True)
        )
        yield replace(row, cells=cells)


def _row(
    section: Section,
    name: str,
    specs: Sequence[Compared],
    value: Callable[[GemmPlan], Value],
    say: Callable[[Any], str] | None = None,
    *,
    fewer: bool | None = None,
) -> Row:
    """Make a row from the plans; empty without a plan or if the plan lacks the value."""
    values = tuple(None if x.plan is None else value(x.plan) for x in specs)
    return _row_of(section, name, values, say, fewer=fewer)


def _row_of(
    section: Section,
    name: str,
    values: tuple[Value, ...],
    say: Callable[[Any], str] | None = None,
    *,
    fewer: bool | None = None,
) -> Row:
    cells = tuple("-" if value is None else (say or _said)(value) for value in values)
    return Row(section, name, values, cells, fewer)


def _said(value: Value) -> str:
    return f"{value:,}" if isinstance(value, int) else f"{value:,.3g}" if isinstance(value, float) else f"{value}"


def _plan_rows(specs: Sequence[Compared]) -> Iterator[Row]:
    if any(x.why_not for x in specs):
        why = tuple(x.why_not or None for x in specs)
        yield Row(Section.PLAN, NOT_PLANNED, why, tuple(text or "planned" for text in why))
    yield _row(Section.PLAN, "target", specs, lambda plan: plan.target.name)
    yield _row(Section.PLAN, "family", specs, lambda plan: plan.family)
    for name in "abc":

        def of(plan: GemmPlan, name: str = name) -> str:
            tensor = plan.launch.tensor(name)
            return f"{tensor.dtype} {tensor.major}-major, {tensor.align_bytes}-byte aligned"

        yield _row(Section.PLAN, name.upper(), specs, of)


def _decisions(specs: Sequence[Compared]) -> Iterator[Row]:
    chosen = [{} if x.plan is None else {d.key: d.chosen for d in x.plan.decisions} for x in specs]
    for key in _union(chosen):
        yield _row_of(Section.DECISIONS, key, tuple(each.get(key) for each in chosen))


def _layouts(specs: Sequence[Compared]) -> Iterator[Row]:
    for name in (*_operands(specs), RESULT):

        def of(plan: GemmPlan, name: str = name) -> Value:
            tiles = {**{x.name: x.smem for x in plan.operands}, RESULT: plan.epilogue.smem}
            smem = tiles.get(name)
            return None if smem is None else format_layout(smem.layout)

        row = _row(Section.SHARED, f"s{name.upper()}", specs, of)
        yield replace(row, cells=tuple("not staged" if x == "-" else x for x in row.cells)) if name == RESULT else row


def _operands(specs: Sequence[Compared]) -> tuple[str, ...]:
    """Return the names of the operands of all plans."""
    return tuple(dict.fromkeys(path.name for x in specs if x.plan is not None for path in x.plan.operands))


def _accesses(specs: Sequence[Compared]) -> Iterator[Row]:
    predicted = [None if x.plan is None else x.plan.predictions for x in specs]
    conflicts = [{key: x.ways for key, x in found.wavefronts.items()} if found else {} for found in predicted]
    by_line = [{key: x.ways for key, x in found.line_writes.items()} if found else {} for found in predicted]
    sectors = [{key: x.predicted / x.ideal for key, x in found.sectors.items()} if found else {} for found in predicted]
    for keys, what, tables, say in (
        (shared_accesses(_operands(specs)), "bank conflicts", conflicts, ways),
        (map(AccessKey.g2s, _operands(specs)), "writes by line", by_line, ways),
        (_union(sectors), "sectors", sectors, "{:.3g}x the least".format),
    ):
        for key in keys:
            values = tuple(table.get(key) for table in tables)
            if any(value is not None for value in values):
                yield _row_of(Section.ACCESSES, f"{key} {what}", values, say, fewer=True)


def _instructions(specs: Sequence[Compared]) -> Iterator[Row]:
    counts = [{} if x.plan is None else x.plan.predictions.instructions for x in specs]
    for opcode in sorted(_union(counts)):
        values = tuple(None if x.plan is None else each.get(opcode, 0) for x, each in zip(specs, counts, strict=True))
        yield _row_of(Section.INSTRUCTIONS, opcode, values)


def _resources(specs: Sequence[Compared]) -> Iterator[Row]:
    yield _row(Section.RESOURCES, "CTA tile", specs, lambda plan: extents(plan.cta_tile))
    yield _row(Section.RESOURCES, "threads", specs, lambda plan: plan.threads)
    yield _row(Section.RESOURCES, "stages", specs, lambda plan: plan.stages)
    yield _row(Section.RESOURCES, "bytes of shared memory", specs, lambda plan: plan.smem_bytes, fewer=True)
    yield _row(
        Section.RESOURCES,
        "registers per thread (estimated)",
        specs,
        lambda plan: plan.predictions.occupancy.registers_per_thread,
        fewer=True,
    )
    yield _row(
        Section.RESOURCES,
        "CTAs per SM (estimated)",
        specs,
        lambda plan: plan.predictions.occupancy.ctas_per_sm,
        fewer=False,
    )
    if any(x.artifact for x in specs):
        built = [None if x.artifact is None else x.artifact.manifest for x in specs]
        registers = tuple(None if each is None else each.registers for each in built)
        spilled = tuple(None if each is None else each.spill_bytes for each in built)
        yield _row_of(Section.RESOURCES, "registers per thread (built)", registers, fewer=True)
        yield _row_of(Section.RESOURCES, "spilled bytes (built)", spilled, fewer=True)
        yield _row_of(Section.RESOURCES, "CTAs per SM (built)", tuple(map(_resident, specs)), fewer=False)


def _resident(x: Compared) -> int | None:
    if x.plan is None or x.artifact is None:
        return None
    made = x.plan
    return predict_occupancy(made.target, made.threads, made.smem_bytes, x.artifact.manifest.registers).ctas_per_sm


def _bounds(comparison: Comparison) -> Iterator[Row]:
    """Return the SM cycles per million operations for each resource, which makes different tiles comparable."""
    specs, found = comparison.specs, [_costs(x, comparison.problem) for x in comparison.specs]
    for resource in _union(found):
        values = tuple(each.get(resource) for each in found)
        yield _row_of(Section.BOUNDS, resource, values, lambda x: f"{x:.1f}", fewer=True)
    yield _row(Section.BOUNDS, "bottleneck", specs, lambda plan: _tightest(plan, comparison.problem)[0])
    yield _row(
        Section.BOUNDS,
        "share of its MMA's rate, at most",
        specs,
        lambda plan: _tightest(plan, comparison.problem)[1],
        lambda x: f"{x:.0%}",
        fewer=False,
    )


def _costs(x: Compared, problem: ProblemShape) -> Mapping[str, float]:
    if x.plan is None:
        return {}
    cost = k_tile_cost(x.plan, problem, None)
    return {
        limit.resource: limit.cycles * MILLION / cost.flops
        for limit in _limits(x.plan, cost)
        if limit.cycles is not None
    }


def _limits(plan: GemmPlan, cost: KTileCost) -> tuple[Limit, ...]:
    return limits(cost, rates_of(plan))


def _tightest(plan: GemmPlan, problem: ProblemShape) -> tuple[str | None, float | None]:
    found = _limits(plan, k_tile_cost(plan, problem, None))
    share = shares(found)
    return (found[0].resource if share else None), share.get(multiplier(plan))


def _times(comparison: Comparison) -> Iterator[Row]:
    foretold = [
        None if x.plan is None else FAMILIES[x.plan.family].time_of(x.plan, comparison.problem)
        for x in comparison.specs
    ]
    predicted = tuple(None if time is None else time.us for time in foretold)
    yield _row_of(Section.TIMES, "predicted, us", predicted, lambda x: f"{x:,.1f}", fewer=True)
    of = tuple(None if time is None else f"{time.how}, {time.gpu}" for time in foretold)
    yield _row_of(Section.TIMES, "predicted for", of)
    regimes = dict.fromkeys(result.regime for x in comparison.specs for result in x.results)
    for regime in regimes:
        medians = tuple(
            next((result.measurement.median_us for result in x.results if result.regime is regime), None)
            for x in comparison.specs
        )
        yield _row_of(Section.TIMES, f"{regime}, us", medians, lambda x: f"{x:,.1f}", fewer=True)


def _union(tables: Iterable[Mapping[str, object]]) -> list[str]:
    """Return every key once, in the order of the first table that has it."""
    return list(dict.fromkeys(key for each in tables for key in each))
