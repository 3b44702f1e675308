"""Report on foreign kernels, for people and for programs."""

from dataclasses import asdict
from typing import Any

from cutegen.ptx import LaunchReport
from cutegen.ptx.checking import Finding
from cutegen.ptx.text.source_lines import SourceLine, SourceLines
from cutegen.run.foreign import ForeignCheck
from cutegen.support.demangling import demangled
from cutegen.support.words import aligned, plural


def launch_lines(report: LaunchReport) -> list[str]:
    """Write what a launch executed, opcode by opcode, and the conventions that it relies on."""
    executed: dict[str, list[int]] = {}
    for row in report.instructions:
        totals = executed.setdefault(row.opcode, [0, 0, 0, 0])
        for i, count in enumerate((row.executed, row.wavefronts, row.ideal_wavefronts, row.sectors)):
            totals[i] += count
    rows = [
        (opcode, *(f"{count:,}" if count else "" for count in totals)) for opcode, totals in sorted(executed.items())
    ]
    header = ("opcode", "executed", "wavefronts", "ideal", "sectors")
    return [
        f"{report.entry}: {report.steps:,} warp instructions, order {report.policy}",
        *aligned([row for row in rows if row[1]], header=header, right={1, 2, 3, 4}),
        *(f"line {found.line}: {found}, {plural(found.count, 'time')}" for found in report.conventions),
        *printed_lines(report.printed, report.policy),
    ]


def printed_lines(text: str, policy: str) -> list[str]:
    """Write what the threads of a kernel printed."""
    return [f"printed in {policy}:", *(f"  {line}" for line in text.splitlines())] if text else []


def check_table(found: ForeignCheck, *, strict: bool, sources: SourceLines | None = None) -> dict[str, Any]:
    """Return the verdict on a kernel for programs; `strict` counts conventions as well.

    With `sources`, findings have their source lines.
    """
    return {
        "entry": found.entry,
        "policies": list(found.policies),
        "clean": found.is_clean(strict=strict),
        "findings": [
            {
                **asdict(finding.violation),
                "kind": finding.violation.kind.value,
                "policies": list(finding.policies),
                **({} if sources is None else {"source": _source_table(sources.at(finding.violation.line))}),
            }
            for finding in found.findings
        ],
        "wrong": [asdict(result) for result in found.wrong],
        "printed": found.printed,
    }


def _source_table(source: SourceLine | None) -> dict[str, Any] | None:
    return None if source is None else asdict(source)


def check_lines(found: ForeignCheck, *, strict: bool, sources: SourceLines | None = None) -> list[str]:
    """Return the verdict on a kernel for people: undefined behavior, then what PTX does not order.

    With `sources`, the kernel has its C++ name, and findings have their source lines.
    """
    errors = [finding for finding in found.findings if not finding.is_convention]
    conventions = [finding for finding in found.findings if finding.is_convention]
    said = "nothing undefined" if not errors else plural(len(errors), "violation")
    if conventions:
        said += f", {plural(len(conventions), 'convention')}{'' if strict else ' that PTX does not order'}"
    name = found.entry if sources is None else demangled(found.entry)
    lines = [f"{name}: {said} in {plural(len(found.policies), 'order')}: {', '.join(found.policies)}"]
    for finding in (*errors, *conventions):
        lines += ["", *_told(finding, len(found.policies), sources)]
    lines += [f"wrong result: argument {w.argument} under {w.policy}: {w.message}" for w in found.wrong]
    return lines + printed_lines(found.printed, found.policies[0])


def _told(finding: Finding, policies: int, sources: SourceLines | None) -> list[str]:
    violation = finding.violation
    orders = "every order" if len(finding.policies) == policies else ", ".join(finding.policies)
    source = None if sources is None else sources.at(violation.line)
    return [
        f"line {violation.line}: {violation.instruction}",
        *([] if sources is None else [f"  at {source or 'no line of a source: compile with nvcc -lineinfo'}"]),
        f"  {violation}",
        f"  in {orders}" + (f", {violation.count:,} times in the first" if violation.count > 1 else ""),
    ]
