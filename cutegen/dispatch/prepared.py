"""Kernels built before they are called: which, how long each took, and which the cache had."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor, as_completed
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from cutegen.contract.problem import ProblemShape
from cutegen.dispatch.providers import providers
from cutegen.dispatch.request import Request
from cutegen.support.words import aligned, plural

if TYPE_CHECKING:
    from cutegen.run import Kernel

Progress = Callable[[str], object]
"""Called with a line for each kernel, as `print` is."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PreparedKernel:
    """One kernel: the problems that it was requested for, which calls round up to, and by how many calls.

    `seconds` include planning and compiling. It is a `hit` if it was open or in the cache, so that nothing was
    compiled. `provider` and `why` say where it is from.
    """

    kernel: Kernel = field(repr=False)
    name: str
    target: str
    problems: tuple[ProblemShape, ...]
    calls: int
    seconds: float
    hit: bool
    provider: str
    why: str


@dataclass(frozen=True, slots=True)
class Prepared:
    """The different kernels that `prepare` has built or found. Its length, and `int()` of it, are their number."""

    kernels: tuple[PreparedKernel, ...]
    seconds: float

    def __len__(self) -> int:
        return len(self.kernels)

    def __int__(self) -> int:
        return len(self.kernels)

    def __iter__(self) -> Iterator[PreparedKernel]:
        return iter(self.kernels)

    @property
    def calls(self) -> int:
        """Number of calls that they serve."""
        return sum(each.calls for each in self.kernels)

    @property
    def hits(self) -> int:
        """Number of them that were not compiled."""
        return sum(each.hit for each in self.kernels)

    def __str__(self) -> str:
        said = f"{plural(len(self), 'kernel')} for {plural(self.calls, 'call')} in {self.seconds:.1f} s"
        if not self.kernels:
            return f"{said}: no product here is cutegen's; `cutegen.replace_linear(model)` gives it Linear layers"
        said += f", {self.hits} found in the cache"
        sources = {each.provider for each in self}
        alike = len(sources) == 1  # then no column repeats it
        rows = [
            (
                each.name,
                ", ".join(map(str, each.problems)),
                each.target,
                str(each.calls),
                f"{each.seconds:.1f}",
                "found" if each.hit else "built",
                *([] if alike else [each.provider]),
            )
            for each in self
        ]
        header = ("kernel", "problems", "target", "calls", "s", "", *([] if alike else ["from"]))
        first = f"{said}; from {sources.pop()}" if alike else said
        return "\n".join([first, *aligned(rows, header=header, right={3, 4})])


def build_prepared(requests: Mapping[Request, int], progress: Progress | None = None) -> Prepared:
    """Build the kernels of requests, of which each counts its calls, in as many threads as compilers may run.

    Raises the errors of `Providers.kernel_for`: the first, after those that have begun.
    """
    from cutegen.executors.workers import default_compilers

    begun = time.perf_counter()
    with ThreadPoolExecutor(min(default_compilers(), max(len(requests), 1)), "cutegen-prepare") as threads:
        futures = {threads.submit(_built, request, calls): request for request, calls in requests.items()}
        found: dict[Request, PreparedKernel] = {}
        try:
            for done in as_completed(futures):
                each = found[futures[done]] = done.result()
                if progress is not None:
                    progress(_line(len(found), len(futures), each))
        except BaseException:
            threads.shutdown(wait=False, cancel_futures=True)
            raise
    merged: dict[int, PreparedKernel] = {}
    for request in requests:  # in their order, whichever was built first
        one = found[request]
        had = merged.get(id(one.kernel))
        merged[id(one.kernel)] = one if had is None else _merged(had, one)
    return Prepared(tuple(merged.values()), time.perf_counter() - begun)


def _built(request: Request, calls: int) -> PreparedKernel:
    begun = time.perf_counter()
    ready = any(answer.ready for _, answer in providers.answers(request))
    served = providers.kernel_for(request)
    return PreparedKernel(
        kernel=served.kernel,
        name=request.name,
        target=request.target,
        problems=(request.problem,),
        calls=calls,
        seconds=time.perf_counter() - begun,
        hit=ready or served.kernel.artifact.hit,
        provider=served.provider,
        why=served.why,
    )


def _merged(one: PreparedKernel, other: PreparedKernel) -> PreparedKernel:
    """Return one kernel that serves the requests of both: the second waited for the first, or found it open."""
    return replace(
        one,
        problems=tuple(dict.fromkeys((*one.problems, *other.problems))),
        calls=one.calls + other.calls,
        seconds=max(one.seconds, other.seconds),
        hit=one.hit and other.hit,
    )


def _line(done: int, of: int, each: PreparedKernel) -> str:
    what = "found" if each.hit else f"built in {each.seconds:.1f} s"
    return f"{done} of {of}: {each.name} for {each.problems[0]} on {each.target}: {what}"
