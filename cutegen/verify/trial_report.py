"""Report of a trial, for people and for programs."""

import math
from dataclasses import asdict
from typing import Any

from cutegen.contract import ProblemShape
from cutegen.run import Kernel
from cutegen.support.words import aligned, plural
from cutegen.verify.counts import COUNTED, Count
from cutegen.verify.reference import Comparison, FirstWrong
from cutegen.verify.trial import Execution, Trial


def trial_table(trial: Trial) -> dict[str, Any]:
    """Return the trial as JSON; values that only the CPU executor knows are null on a GPU."""
    found, execution = trial.comparison, trial.execution
    return {
        "device": trial.device,
        "problem": [trial.problem.m, trial.problem.n, trial.problem.k],
        "batch": trial.problem.batch,
        "seed": trial.seed,
        "rel_error": _number(found.rel_error),
        "max_abs_error": _number(found.max_abs_error),
        "ok": found.ok,
        "first_wrong": _first_wrong(trial),
        **{
            name: None if each is None else {"rel_error": _number(each.rel_error), "ok": each.ok}
            for name, each in (("aux", trial.aux), ("factors", trial.factors))
        },
        "policy": None if execution is None else execution.report.policy,
        "jobs": None if execution is None else execution.jobs,
        "steps": None if execution is None else execution.report.steps,
        **count_tables(execution),
        "as_predicted": None if execution is None else not execution.differing,
    }


def count_tables(execution: Execution | None) -> dict[str, Any]:
    """Return the counts as JSON, null for each kind without an execution."""
    if execution is None:
        return dict.fromkeys(COUNTED)
    return {
        kind: {key: asdict(count) for key, count in table.items()} for kind, table in execution.counts.tables().items()
    }


def _first_wrong(trial: Trial) -> dict[str, Any] | None:
    wrong, producer = trial.comparison.first_wrong, trial.producer
    if wrong is None or producer is None:
        return None
    return {
        **{key: _number(value) for key, value in asdict(wrong).items()},
        **asdict(producer),
        "register": producer.register,
    }


def _number(value: float | None) -> float | None:
    """Return a JSON number; JSON has neither NaN nor infinity, so null replaces them."""
    return value if value is not None and math.isfinite(value) else None


def trial_lines(trial: Trial, kernel: Kernel) -> list[str]:
    """Return the trial as text."""
    found = trial.comparison
    facts = [
        ("kernel", f"{kernel.contract.entry}, {kernel.artifact.manifest.inputs.gpu_arch}, {kernel.artifact.key[:16]}"),
        ("device", trial.device),
        ("problem", _problem(trial.problem)),
        ("seed", f"{trial.seed}"),
        ("relative error", f"{found.rel_error:.3g}"),
        ("largest error", f"{found.max_abs_error:.3g}"),
        ("result", _verdict(found)),
    ]
    facts += [(name, _verdict(each)) for name, each in (("aux", trial.aux), ("factors", trial.factors)) if each]
    if found.first_wrong is not None:
        place = _place(found.first_wrong)
        facts.append(("first wrong", f"{place}, computed by {trial.producer}"))
    if trial.execution is None:
        return aligned(facts, indent=0)
    return [*aligned([*facts, ("executed", executed(trial.execution))], indent=0), *count_lines(trial.execution)]


def _problem(shape: ProblemShape) -> str:
    groups = "" if shape.groups is None else f", {plural(shape.groups, 'group')}"
    batch = f", a batch of {shape.batch}" if shape.batch > 1 else ""
    return f"M {shape.m}, N {shape.n}, K {shape.k}{batch}{groups}"


def _verdict(found: Comparison) -> str:
    return "ok, every element within its bound" if found.ok else f"wrong, {found.wrong:,} elements"


def _place(wrong: FirstWrong) -> str:
    batch = "" if wrong.batch is None else f"{wrong.batch}, "
    return f"({batch}{wrong.row}, {wrong.column})"


def executed(execution: Execution) -> str:
    """Write how much was executed, and in which order."""
    report = execution.report
    size = f"{plural(math.prod(report.grid), 'CTA')} of {report.block[0]} threads"
    return f"{size}, {report.steps:,} warp instructions, {report.policy}, {plural(execution.jobs, 'job')}"


def count_lines(execution: Execution) -> list[str]:
    """Write one table per kind of count; opcodes without their common parts."""
    counts = execution.counts
    tables = {
        "Shared-memory wavefronts of the launch": counts.wavefronts,
        "Wavefronts of 16-byte copies that bypass L1, as counted on sm_90": counts.line_writes,
        "Global sectors of the launch": counts.sectors,
        "Boxes moved by bulk tensor copies": counts.boxes,
        "Warp instructions executed": counts.executed,
    }
    header = ("", "predicted", "measured", "")
    return [
        line
        for title, table in tables.items()
        if table
        for line in ("", title, *aligned([_row(*item) for item in table.items()], header=header, right={1, 2}))
    ]


def _row(name: str, count: Count) -> tuple[str, str, str, str]:
    predicted = "" if count.predicted is None else f"{count.predicted:,}"
    said = f"differs: {count.why}" if count.differs else count.why
    return name.replace(".sync.aligned", ""), predicted, f"{count.measured:,}", said


def wrong_result(trial: Trial) -> str:
    """Describe the first wrong element, its value, and the thread that computed it."""
    found, of, told = trial.comparison, "", f"; computed by {trial.producer}"
    beside = {" of aux": trial.aux, " of the factors": trial.factors}
    if found.ok:
        found, of, told = next((each, name, "") for name, each in beside.items() if each is not None and not each.ok)
    first, shape = found.first_wrong, trial.problem
    assert first is not None
    return (
        f"{found.wrong:,} of {shape.batch * shape.m * shape.n:,} elements{of} are wrong; the first is {_place(first)}: "
        f"found {first.found:g}; expected {first.expected:g} within {first.allowed_error:.3g}{told}"
    )


def other_counts(execution: Execution) -> str:
    """List the counts that differ from the prediction."""
    told = "; ".join(
        f"{name}: {count.measured:,} measured, {count.predicted:,} predicted"
        for name, count in execution.differing.items()
    )
    return f"the kernel ran, but not as planned: {told}"
