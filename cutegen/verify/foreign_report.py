"""Report on foreign kernels, for people and for programs."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

from cutegen.ptx import LaunchReport
from cutegen.ptx.checking import Finding
from cutegen.run.foreign import ForeignCheck
from cutegen.support.columns import aligned
from cutegen.support.words import plural


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


def check_table(found: ForeignCheck, *, strict: bool) -> dict[str, Any]:
    """Return the verdict on a kernel for programs; `strict` counts conventions as well."""
    return {
        "entry": found.entry,
        "policies": list(found.policies),
        "clean": found.is_clean(strict=strict),
        "findings": [
            {**asdict(finding.violation), "kind": finding.violation.kind.value, "policies": list(finding.policies)}
            for finding in found.findings
        ],
        "wrong": [asdict(result) for result in found.wrong],
        "printed": found.printed,
    }


def check_lines(found: ForeignCheck, *, strict: bool) -> list[str]:
    """Return the verdict on a kernel for people: undefined behavior, then what PTX does not order."""
    errors = [finding for finding in found.findings if not finding.is_convention]
    conventions = [finding for finding in found.findings if finding.is_convention]
    said = "nothing undefined" if not errors else plural(len(errors), "violation")
    if conventions:
        said += f", {plural(len(conventions), 'convention')}{'' if strict else ' that PTX does not order'}"
    lines = [f"{found.entry}: {said} in {plural(len(found.policies), 'order')}: {', '.join(found.policies)}"]
    for finding in (*errors, *conventions):
        lines += ["", *_told(finding, len(found.policies))]
    lines += [f"wrong result: argument {w.argument} under {w.policy}: {w.message}" for w in found.wrong]
    return lines + printed_lines(found.printed, found.policies[0])


def _told(finding: Finding, policies: int) -> list[str]:
    violation = finding.violation
    orders = "every order" if len(finding.policies) == policies else ", ".join(finding.policies)
    return [
        f"line {violation.line}: {violation.instruction}",
        f"  {violation}",
        f"  in {orders}" + (f", {violation.count:,} times in the first" if violation.count > 1 else ""),
    ]
