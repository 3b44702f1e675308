"""The calls in a list that CUTEGEN_RECORD wrote: what each requests, its extents, and how often it was made."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from cutegen.contract.problem import ProblemShape, whole
from cutegen.dispatch.request import Request
from cutegen.errors import RequestError
from cutegen.pack.kernel_list import RequestedKernel, kernels_of, rows_of, wrong
from cutegen.support.literals import literal


@dataclass(frozen=True, slots=True, kw_only=True)
class RecordedCall:
    """`times` calls with the extents `problem`, for which a kernel is chosen as for `wanted.problem`.

    `request` is None for a kernel of `cutegen.compile`, whose calls are not counted.
    """

    wanted: RequestedKernel
    problem: ProblemShape
    times: int = 1
    request: Request | None = None

    def __str__(self) -> str:
        return f"{self.wanted.name}, {self.problem}"


def read_calls(path: Path) -> tuple[RecordedCall, ...]:
    """Return the calls of the list at `path`, the rows of which need a problem each.

    A request without counts has one call, with the extents that it was rounded up to. Raises ArtifactError for an
    unreadable file, RequestError with the address of an invalid value.
    """
    return tuple(call for address, row in rows_of(path) for call in _calls_of(row, address, path.parent))


def _calls_of(row: Any, address: str, folder: Path) -> Iterator[RecordedCall]:
    wanted = kernels_of(row, address, folder, ())
    request = Request.from_json(row["request"], address) if "request" in row else None
    for each in wanted:
        if each.problem is None:
            raise wrong(f"{address}.problems", "none", "[[M, N, K]], the problems to measure")
        counted = _counted(row["calls"], f"{address}.calls") if "calls" in row else ((each.problem, 1),)
        for problem, times in counted:
            yield RecordedCall(wanted=each, problem=problem, times=times, request=request)


def _counted(value: Any, address: str) -> tuple[tuple[ProblemShape, int], ...]:
    """Return extents with their counts, from lists of five integers."""
    expected = "lists of M, N, K, batch and a count, each 1 or more"
    if not isinstance(value, list):
        raise wrong(address, literal(value), expected)
    found = []
    for index, each in enumerate(value):
        numbers = [whole(x) for x in each] if isinstance(each, list) else []
        if len(numbers) != 5 or any(x is None or x < 1 for x in numbers):
            raise wrong(f"{address}[{index}]", literal(each), expected)
        *extents, times = (x for x in numbers if x is not None)
        try:
            found.append((ProblemShape(*extents), times))
        except RequestError as error:
            raise wrong(f"{address}[{index}]", str(error), "extents of a problem") from error
    return tuple(found)
