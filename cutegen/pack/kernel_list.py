"""The kernels to build: specs, problems and targets of a command line or a TOML list, or calls that a program made."""

from __future__ import annotations

import hashlib
import json
import tomllib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from cutegen.build.disk import read_file
from cutegen.build.pack_file import Identity
from cutegen.contract.problem import ProblemLike, ProblemShape, whole
from cutegen.dispatch.model import spec_of
from cutegen.dispatch.request import Request
from cutegen.errors import RequestError
from cutegen.hardware.targeting import choose_target
from cutegen.spec import GemmSpec, SpecLike, as_spec
from cutegen.spec.file import DEEPEST_NESTING, nesting, spec_of_table
from cutegen.support.typed_json import LINE, is_line
from cutegen.support.words import literal

# The calls in a list that CUTEGEN_RECORD wrote: what each requests, its extents, and how often it was made.


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


# The kernels to build: specs, problems and targets of a command line, or of a TOML list.
#
# [[kernel]]
# spec = "sm80_hgemm_tn"               # a shipped spec's name, a path relative to the list, or a table of a spec's keys
# problems = [[4096, 4096, 4096]]      # M, N, K and optionally the batch; default: one kernel for every problem
# targets = ["sm_80", "sm_90a"]        # default: those of --arch
# name = "gemm"                        # its name for users; default: the spec's name
#
# [[kernel]]
# request = { ... }                    # the request of a `cutegen.matmul` call, as CUTEGEN_RECORD writes it
# calls = [[300, 4096, 4096, 1, 12]]   # M, N, K, batch of its calls, and how many there were; for `cutegen bench`


LARGEST_BYTES = 16 << 20
KEYS = ("spec", "name", "problems", "targets", "request", "calls")
_WAY_OUT = "docs/deploying.md describes the list"


@dataclass(frozen=True, slots=True, kw_only=True)
class RequestedKernel:
    """One kernel: its name for users, the spec, the problem that it is chosen for, the target's name."""

    name: str
    spec: GemmSpec
    problem: ProblemShape | None
    target: str

    @property
    def identity(self) -> Identity:
        """The identity of the kernel, unique in a pack."""
        return self.name, self.target, self.problem

    def __str__(self) -> str:
        """Format as `sm80_hgemm_tn for sm_80, 4096x4096x4096`."""
        return f"{self.name} for {self.target}" + (f", {self.problem}" if self.problem else "")


def combinations(
    specs: Iterable[SpecLike], problems: Sequence[ProblemLike | None] = (), archs: Sequence[str] = ()
) -> tuple[RequestedKernel, ...]:
    """Combine specs, problems and targets without duplicates; by default every problem, and the default target.

    Raises RequestError for unknown names.

    >>> [str(each) for each in combinations(["sm80_hgemm_tn"], [(64, 64, 64)], ["80", "a100", "sm_90"])]
    ['sm80_hgemm_tn for sm_80, 64x64x64', 'sm80_hgemm_tn for sm_90, 64x64x64']
    """
    return _distinct(
        RequestedKernel(name=spec.name, spec=spec, problem=ProblemShape.of(problem), target=target)
        for spec in map(as_spec, specs)
        for target in _targets(spec, archs)
        for problem in problems or (None,)
    )


def read_list(path: Path, archs: Sequence[str] = ()) -> tuple[RequestedKernel, ...]:
    """Return the kernels of the list at `path`; `archs` are for those that name no target.

    Raises ArtifactError for an unreadable file, RequestError with the address of an invalid value.
    """
    return _distinct(
        wanted for address, row in rows_of(path) for wanted in kernels_of(row, address, path.parent, archs)
    )


def rows_of(path: Path) -> tuple[tuple[str, Any], ...]:
    """Return the rows of the list at `path`, each with its address. Raises ArtifactError, RequestError."""
    table = _table(path)
    if table.keys() != {"kernel"} or not isinstance(table["kernel"], list):
        raise wrong(f"{path}", f"the keys {', '.join(table) or 'none'}", "[[kernel]] tables, one or more")
    return tuple((f"{path}: kernel[{index}]", row) for index, row in enumerate(table["kernel"]))


def _table(path: Path) -> dict[str, Any]:
    try:
        table = tomllib.loads(read_file(path.resolve(), LARGEST_BYTES).decode("utf-8-sig"))
    except RecursionError:
        raise wrong(f"{path}", "tables or lists nested too deeply to read", "TOML") from None
    except ValueError as error:  # TOMLDecodeError and UnicodeDecodeError among them
        raise wrong(f"{path}", f"a syntax error: {error}", "TOML") from error
    if nesting(table) > DEEPEST_NESTING:
        raise wrong(f"{path}", f"tables or lists nested more than {DEEPEST_NESTING} deep", "TOML")
    return table


def kernels_of(row: Any, address: str, folder: Path, archs: Sequence[str]) -> tuple[RequestedKernel, ...]:
    """Return the kernels of one row. Raises RequestError with the address of an invalid value."""
    if not isinstance(row, dict):
        raise wrong(address, literal(row), "a table")
    if unknown := [name for name in row if name not in KEYS]:
        raise wrong(f"{address}.{literal(unknown[0])}", "an unknown key", ", ".join(KEYS))
    if ("spec" in row) == ("request" in row):
        raise wrong(address, "both spec and request" if "spec" in row else "neither spec nor request", "one of them")
    targets = [_text(each, f"{address}.targets") for each in _list(row, "targets", address)] or list(archs)
    if "request" in row:
        return _asked(row, address, targets)
    if "calls" in row:
        raise wrong(f"{address}.calls", "a key together with spec", "problems: only requests have calls")
    name = _text(row.get("name", ""), f"{address}.name")
    if not is_line(name):  # a pack with it could not be opened
        raise wrong(f"{address}.name", literal(name), LINE)
    spec = _spec(row["spec"], f"{address}.spec", folder, name)
    problems = [_problem(each, f"{address}.problems[{i}]") for i, each in enumerate(_list(row, "problems", address))]
    return tuple(replace(each, name=name or each.name) for each in combinations([spec], problems, targets))


def _asked(row: Mapping[str, Any], address: str, targets: Sequence[str]) -> tuple[RequestedKernel, ...]:
    """Return the kernels that a call requested, under a name that no other request has."""
    if others := [name for name in ("name", "problems") if name in row]:
        raise wrong(f"{address}.{others[0]}", "a key together with request", "no other key: a request has its problem")
    request = Request.from_json(row["request"], address)
    own = {name: value for name, value in request.as_json().items() if name not in ("problem", "target", "device")}
    digest = hashlib.sha256(json.dumps(own, sort_keys=True).encode()).hexdigest()
    made = combinations([spec_of(request)], [request.problem], targets or [request.target])
    return tuple(replace(each, name=f"{request.name}-{digest[:8]}") for each in made)


def _spec(value: Any, address: str, folder: Path, name: str) -> GemmSpec:
    """Return a spec by its name, by a path relative to `folder`, or by its keys."""
    if isinstance(value, dict):
        return spec_of_table(value, file=address, name=name or "kernel")
    text = _text(value, address)
    is_path = "/" in text or text.endswith(".toml")
    return as_spec(folder / text if is_path else text)


def _problem(value: Any, address: str) -> ProblemShape:
    if not isinstance(value, list):
        raise wrong(address, literal(value), "[M, N, K] or [M, N, K, batch]")
    try:
        shape = ProblemShape.of(tuple(value))
    except RequestError as error:
        raise RequestError(f"{address}: {error}; {_WAY_OUT}") from error
    assert shape is not None
    return shape


def _list(row: Mapping[str, Any], key: str, address: str) -> list[Any]:
    value = row.get(key, [])
    if not isinstance(value, list):
        raise wrong(f"{address}.{key}", literal(value), "a list")
    return value


def _text(value: Any, address: str) -> str:
    if not isinstance(value, str):
        raise wrong(address, literal(value), "a string")
    return value


def _targets(spec: GemmSpec, archs: Sequence[str]) -> Iterable[str]:
    return dict.fromkeys(choose_target(arch, least=spec.needs).name for arch in archs or (None,))


def _distinct(wanted: Iterable[RequestedKernel]) -> tuple[RequestedKernel, ...]:
    return tuple(dict.fromkeys(wanted))


def wrong(address: str, found: str, expected: str) -> RequestError:
    """Return the error for a value of a list."""
    return RequestError(f"{address}: found {found}; expected {expected}; {_WAY_OUT}")
