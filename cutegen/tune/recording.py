"""Makes a record of a problem's measurements."""

from __future__ import annotations

from pathlib import Path

from cutegen.tune.jobs import Measured, spec_of_json
from cutegen.tuned.device import DeviceFacts
from cutegen.tuned.record import SCHEMA, Evidence, Record
from cutegen.tuned.store import keep
from cutegen.tuned.times import Tried


def record_of(measured: Measured) -> Record | None:
    """Return the winner as a record; None if there is no winner."""
    if measured.winner is None:
        return None
    winner = next(one for one in measured.results if one.name == measured.winner)
    right = [one.name for one in measured.results if one.status == "ok"]
    return Record(
        asked=spec_of_json(measured.asked, measured.spec_name),
        settled=spec_of_json(winner.settled, measured.spec_name),
        evidence=Evidence(
            schema=SCHEMA,
            name=measured.spec_name,
            target=measured.target,
            problem=measured.problem,
            sizes=measured.sizes,
            winner=winner.name,
            favorite=right[0],
            tie=measured.tie,
            decide_by=measured.decide_by,
            measured_at=measured.measured_at or "",
            seconds=round(measured.seconds, 3),
            device=measured.device or DeviceFacts(name="unknown"),
            versions=dict(measured.versions),
            candidates=tuple(
                Tried(
                    name=one.name,
                    status=one.status,
                    predicted_us=one.predicted_us,
                    why=one.why,
                    graph=one.graph,
                    launch=one.launch,
                )
                for one in measured.results
            ),
        ),
    )


def keep_winner(measured: Measured) -> Path | None:
    """Write the record of a winner; None if there is none. Raises OutsideError if it cannot be written."""
    record = record_of(measured)
    return None if record is None else keep(record)
