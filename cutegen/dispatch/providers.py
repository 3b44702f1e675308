"""Consults providers for a kernel, in a fixed order: a tuned record of the device, an open pack, the model.

    providers.kernel_for(request)    the kernel of the first provider that has one, kept for the next call
    providers.answers(request)       each provider's answer with the reason, without building anything

Of the providers of a rank, the last registered comes first.
"""

import threading
from collections.abc import Callable, Iterator
from dataclasses import replace

from cutegen.build.record import record
from cutegen.dispatch.provider import MODEL, PACK, RANKS, TUNED, Answer, Provider, Served
from cutegen.dispatch.request import TRIED, Request
from cutegen.errors import RequestError


class Providers:
    """The providers of a process and the kernels that they returned, by request. Thread-safe."""

    def __init__(self) -> None:
        self._ranked: dict[str, tuple[Provider, ...]] = dict.fromkeys(RANKS, ())
        self._served: dict[Request, Served] = {}
        self._building: dict[Request, threading.Lock] = {}
        self._mistrusted: set[Request] = set()
        self._lock = threading.Lock()
        self.changes = 0
        """Number of changes of the providers, for caches with other keys than requests."""

    def register(self, rank: str, provider: Provider) -> None:
        """Add `provider` before others of its rank. Cached kernels of other providers are looked up again."""
        if rank not in self._ranked:
            raise RequestError(f"rank: found {rank!r}; expected one of {', '.join(RANKS)}")
        with self._lock:
            self._ranked[rank] = (provider, *self._ranked[rank])
            self._forget()

    def withdraw(self, provider: Provider) -> None:
        """Remove `provider`."""
        with self._lock:
            for rank, those in self._ranked.items():
                self._ranked[rank] = tuple(one for one in those if one is not provider)
            self._forget()

    def mistrust(self, request: Request) -> None:
        """Serve `request` from now on only by families that have run on hardware: its kernel was wrong on it."""
        with self._lock:
            self._mistrusted.add(request)
            self._forget()

    def leaves_to_torch(self, request: Request) -> bool:
        """Return whether only families that have run on hardware may serve `request`, and none of them has a kernel."""
        if request.family != TRIED and request not in self._mistrusted:
            return False
        return not self.has_kernel(request)

    def has_kernel(self, request: Request) -> bool:
        """Return whether a provider has a kernel for `request`. Compiles nothing."""
        return any(answer.open is not None for _, answer in self.answers(request))

    @property
    def has_packs(self) -> bool:
        """True if a pack is open."""
        return bool(self._ranked[PACK])

    def in_pack(self, request: Request) -> bool:
        """Return whether an open pack has a kernel for `request`."""
        return any(pack.answer(request).open is not None for pack in self._ranked[PACK])

    def answers(self, request: Request, *, compiling: bool = True) -> Iterator[tuple[Provider, Answer]]:
        """Return the providers' answers in order, until one has a kernel that may be opened."""
        if request in self._mistrusted:
            request = replace(request, family=TRIED)
        for provider in [one for rank in RANKS for one in self._ranked[rank]]:
            answer = provider.answer(request)
            yield provider, answer
            if answer.open is not None and (compiling or answer.ready):
                return

    def kernel_for(self, request: Request, *, compiling: bool = True) -> Served:
        """Return the first provider's kernel; one that must be compiled only if `compiling` is allowed.

        Raises RequestError if no provider has any, or none without compiling, and any error of the build.
        """
        if (known := self._served.get(request)) is not None:
            return known
        with self._lock:
            mine = self._building.setdefault(request, threading.Lock())
        with mine:  # of several threads that request one kernel, one builds it
            if (known := self._served.get(request)) is not None:
                return known
            served, changes = self._ask(request, compiling), self.changes
            with self._lock:
                self._building.pop(request, None)
                if changes == self.changes:
                    self._served[request] = served
        record({"request": request.as_json()})  # if CUTEGEN_RECORD names a list
        return served

    def _ask(self, request: Request, compiling: bool) -> Served:
        heard = []
        for provider, answer in self.answers(request, compiling=compiling):
            if answer.open is not None and (compiling or answer.ready):
                return Served(answer.open(), provider.name, answer.why)
            heard.append(f"{provider.name}: {answer.why}")
        if not compiling:
            raise RequestError(
                f"matmul: found no kernel ready for {request} during CUDA graph capture, which cannot wait for the "
                "compiler; call it once before the capture, or cutegen.prepare(...) with the same operands"
            )
        raise RequestError(f"matmul: found no kernel for {request}; " + "; ".join(heard or ["there are no providers"]))

    def _forget(self) -> None:
        self._served.clear()
        self.changes += 1


class _LazyProvider:
    """Stands for a provider until it is needed: a process that finds every kernel in a pack imports no planner."""

    def __init__(self, name: str, load: Callable[[], Provider]) -> None:
        self.name, self._load = name, load

    def answer(self, request: Request) -> Answer:
        """Return the provider's answer; no kernel in a run-only installation."""
        try:
            provider = self._load()
        except ImportError as error:
            return Answer(f"this installation only runs kernels ({error})")
        return provider.answer(request)


def _model() -> Provider:
    from cutegen.dispatch.model import model

    return model


def _tuned() -> Provider:
    from cutegen.dispatch.tuned import tuned

    return tuned


providers = Providers()
"""The providers of this process."""
providers.register(TUNED, _LazyProvider("tuning records", _tuned))
providers.register(MODEL, _LazyProvider("the performance model", _model))
