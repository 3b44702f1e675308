"""Records the requests of calls, if CUTEGEN_RECORD names a list."""

from __future__ import annotations

from cutegen.build.record import record
from cutegen.dispatch.provider import Served
from cutegen.dispatch.request import Request


def record_request(request: Request, served: Served) -> None:
    """Add a request to the list, whichever provider served it."""
    del served
    record({"request": request.as_json()})
