"""Tuning results and records, in tables for people and for programs."""

from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from statistics import geometric_mean
from typing import Any

from cutegen.bench.measure import Regime
from cutegen.bench.tables import REGIMES
from cutegen.errors import ArtifactError
from cutegen.spec.file import spec_table
from cutegen.support.words import aligned, plural, wrapped
from cutegen.tune.jobs import Measured
from cutegen.tune.listed import Weighted
from cutegen.tune.pick_winner import record_of
from cutegen.tuned.record import Record, Times, sized

Found = tuple[Path, Record | ArtifactError]
"""A file in the folder of records, and its content."""


def tuned_table(
    measured: Sequence[Measured], resumed: int, folder: Path, calls: Sequence[Weighted] | None = None
) -> dict[str, Any]:
    """Tabulate the winner of each problem, for programs; `calls` are the totals of a list of calls by regime."""
    return {
        "folder": str(folder),
        "resumed": resumed,
        "results": [_result_row(each) for each in measured],
        "failures": [
            {
                "name": each.spec_name,
                "target": each.target,
                "problem": each.problem.table(),
                "sizes": each.sizes,
                "why": each.why,
            }
            for each in measured
            if each.winner is None
        ],
        **({} if calls is None else {"calls": [{**asdict(each), "gain": each.gain} for each in calls]}),
    }


def tuned_lines(measured: Sequence[Measured], folder: Path, calls: Sequence[Weighted] = ()) -> list[str]:
    """Tabulate the same for people, one line per problem."""
    rows = []
    for each in measured:
        record = record_of(each)
        if record is None:
            rows.append((sized(each.problem, each.sizes), "", "", "", "", each.why or ""))
            continue
        rows.append(_row(record))
    header = ("problem", "model's choice, us", "tuned, us", "x", "tried", "winner")
    ratios = [gain for each in measured if (record := record_of(each)) and (gain := gain_of(record))]
    said = f"{plural(len(measured), 'problem')}: {plural(len(ratios), 'record')} in {folder}"
    if ratios:
        said += f"; {geometric_mean(ratios):.3f}x the model's selection (geometric mean)"
    totals = (
        f"  {plural(each.calls, 'call')}, {REGIMES[Regime(each.regime)]}: {each.tuned_us:,.0f} us, "
        f"by the model's selection {each.model_us:,.0f}"
        for each in calls
    )
    return [said, *totals, *aligned(rows, header=header, right={1, 2, 3, 4})]


def record_lines(record: Record) -> list[str]:
    """Show one record with all of its candidates, fastest first."""
    found = record.evidence
    device = found.device
    facts = [
        device.name,
        f"{device.multiprocessors} SMs" if device.multiprocessors else "",
        f"{device.memory_bytes / 2**30:,.0f} GiB" if device.memory_bytes else "",
        f"{device.sm_clock_mhz:,} MHz max" if device.sm_clock_mhz else "",
        f"{device.power_limit_w:,.0f} W" if device.power_limit_w else "",
        f"driver {device.driver}" if device.driver else "",
    ]
    versions = ", ".join(f"{name} {value}" for name, value in found.versions.items())
    ranked = sorted(found.candidates, key=lambda one: _us(one.times(found.decide_by)) or float("inf"))
    rows = [
        (
            "*" if one.name == found.winner else "",
            one.name,
            _digits(one.predicted_us),
            *_cells(one.graph),
            *_cells(one.launch),
            _remark(record, one.name) or (one.why if one.status == "wrong" and one.why else one.status),
        )
        for one in ranked
    ]
    header = ("", "candidate", "predicted", "graph", "quartiles", "launch", "quartiles", "")
    return [
        f"{found.name} for {found.problem} on {found.target}: {record.said}",
        f"  {', '.join(fact for fact in facts if fact)}",
        f"  {versions}",
        f"  decided by {found.decide_by}, microseconds" + ("; a tie, the model's selection stays" * found.tie),
        *aligned(rows, header=header, right={2, 3, 5}),
    ]


def record_table(record: Record, path: Path | None) -> dict[str, Any]:
    """Return one record for programs."""
    evidence = asdict(record.evidence)
    return {
        "file": None if path is None else str(path),
        "asked": spec_table(record.asked),
        "spec": spec_table(record.settled),
        "gain": gain_of(record),
        **{key: value for key, value in evidence.items() if key != "schema"},
    }


def list_table(found: Sequence[Found], folder: Path, device: str | None) -> dict[str, Any]:
    """Return all records for programs, without their candidates."""
    rows = [(path, each) for path, each in found if isinstance(each, Record)]
    return {
        "folder": str(folder),
        "device": device,
        "records": [
            {
                "file": path.name,
                "name": each.evidence.name,
                "target": each.evidence.target,
                "problem": each.evidence.problem.table(),
                "sizes": each.evidence.sizes,
                "device": each.evidence.device.name,
                "here": each.evidence.device.name == device,
                "winner": each.evidence.winner,
                "us": _us(each.evidence.times(each.evidence.winner)),
                "gain": gain_of(each),
                "measured_at": each.evidence.measured_at,
            }
            for path, each in rows
        ],
        "damaged": [{"file": path.name, "why": str(each)} for path, each in found if isinstance(each, ArtifactError)],
    }


def list_lines(found: Sequence[Found], folder: Path, device: str | None) -> list[str]:
    """Show the same for people."""
    if not found:
        return wrapped(f"{folder} has no record; `cutegen tune SPEC --problem M,N,K` makes one", rest="  ")
    rows = []
    for path, each in found:
        if isinstance(each, ArtifactError):
            rows.append((path.name, "", "", "", "", f"damaged: {each}"))
            continue
        where = each.evidence.device.name
        remark = "used here" if where == device else f"for {where}"
        problem, _, tuned, gain, _, _ = _row(each)
        rows.append((path.name, each.evidence.name, problem, tuned, gain, remark))
    header = ("record", "spec", "problem", "us", "x", "")
    return [f"{plural(len(found), 'record')} in {folder}", *aligned(rows, header=header, right={3, 4})]


def gain_of(record: Record) -> float | None:
    """Return the speedup over the model's selection; None if that has no time."""
    found = record.evidence
    mine, models = found.times(found.winner), found.times(found.favorite)
    return models.median_us / mine.median_us if mine and models else None


def _result_row(measured: Measured) -> dict[str, Any]:
    record = record_of(measured)
    return {
        "name": measured.spec_name,
        "target": measured.target,
        "problem": measured.problem.table(),
        "sizes": measured.sizes,
        "winner": measured.winner,
        "favorite": None if record is None else record.evidence.favorite,
        "tie": measured.tie,
        "gain": None if record is None else gain_of(record),
        "decide_by": measured.decide_by,
        "device": None if measured.device is None else asdict(measured.device),
        "seconds": measured.seconds,
        "why": measured.why,
        "file": None if record is None else record.file_name,
        "candidates": [
            {key: value for key, value in asdict(one).items() if key != "settled"} for one in measured.results
        ],
    }


def _row(record: Record) -> tuple[str, str, str, str, str, str]:
    found = record.evidence
    gain = gain_of(record)
    return (
        sized(found.problem, found.sizes),
        _digits(_us(found.times(found.favorite))),
        _digits(_us(found.times(found.winner))),
        "" if gain is None else f"{gain:.3f}",
        f"{len(found.candidates)}",
        ("the model's selection" + (", a tie" if found.tie else ""))
        if found.winner == found.favorite
        else found.winner,
    )


def _remark(record: Record, name: str) -> str:
    found = record.evidence
    words = ["the model's selection"] if name == found.favorite else []
    return ", ".join([*words, "tuned"] if name == found.winner else words)


def _us(times: Times | None) -> float | None:
    return None if times is None else times.median_us


def _cells(times: Times | None) -> tuple[str, str]:
    return ("", "") if times is None else (_digits(times.median_us), f"{times.low_us:.4g}-{times.high_us:.4g}")


def _digits(value: float | None) -> str:
    return "" if value is None else f"{value:,.4g}" if value < 1000 else f"{value:,.0f}"
