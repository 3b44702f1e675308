"""Asks providers for a kernel, in a fixed order: a tuned record of the device, an opened pack, the model.

    providers.kernel_for(request)    the kernel of the first that has one, kept for the next call
    providers.answers(request)       what each of them says, and why, without building anything

A provider is registered under its rank, and asked before those that were registered under it earlier.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator

from cutegen.dispatch.provider import MODEL, RANKS, TUNED, Answer, Provider, Served
from cutegen.dispatch.recording import record_request
from cutegen.dispatch.request import Request
from cutegen.errors import RequestError


class Providers:
    """The providers of a process and the kernels that they gave, by request. It may be used from several threads."""

    def __init__(self) -> None:
        self._ranked: dict[str, tuple[Provider, ...]] = dict.fromkeys(RANKS, ())
        self._served: dict[Request, Served] = {}
        self._building: dict[Request, threading.Lock] = {}
        self._lock = threading.Lock()
        self.changes = 0
        """How often the providers have changed: who keeps a kernel by other keys than requests looks at it."""
        self.listeners: list[Callable[[Request, Served], None]] = []
        """Told of each request when it is first served, as by whoever records what a model asks for."""

    def register(self, rank: str, provider: Provider) -> None:
        """Ask `provider` from now on, before others of its rank. Kernels that others gave are asked for again."""
        if rank not in self._ranked:
            raise RequestError(f"rank: found {rank!r}; expected one of {', '.join(RANKS)}")
        with self._lock:
            self._ranked[rank] = (provider, *self._ranked[rank])
            self._forget()

    def withdraw(self, provider: Provider) -> None:
        """Ask `provider` no more."""
        with self._lock:
            for rank, those in self._ranked.items():
                self._ranked[rank] = tuple(one for one in those if one is not provider)
            self._forget()

    def clear(self) -> None:
        """Forget the kernels, as if nothing had been called."""
        with self._lock:
            self._forget()

    def answers(self, request: Request, *, compiling: bool = True) -> Iterator[tuple[Provider, Answer]]:
        """Each provider's answer, in the order of asking, until one has a kernel that may be opened."""
        for provider in [one for rank in RANKS for one in self._ranked[rank]]:
            answer = provider.answer(request)
            yield provider, answer
            if answer.open is not None and (compiling or answer.ready):
                return

    def served(self, request: Request) -> Served | None:
        """The kernel that was given for `request`; None where it was not asked for yet."""
        return self._served.get(request)

    def kernel_for(self, request: Request, *, compiling: bool = True) -> Served:
        """The kernel of the first provider that has one; one that must be compiled only if `compiling` is allowed.

        Raises RequestError where no provider has any, or none without compiling, and what building raises.
        """
        if (known := self._served.get(request)) is not None:
            return known
        with self._lock:
            mine = self._building.setdefault(request, threading.Lock())
        with mine:  # of several threads that ask for one kernel, one builds it
            if (known := self._served.get(request)) is not None:
                return known
            served, changes = self._ask(request, compiling), self.changes
            with self._lock:
                self._building.pop(request, None)
                if changes == self.changes:
                    self._served[request] = served
        for tell in self.listeners:
            tell(request, served)
        return served

    def _ask(self, request: Request, compiling: bool) -> Served:
        heard = []
        for provider, answer in self.answers(request, compiling=compiling):
            if answer.open is not None and (compiling or answer.ready):
                return Served(answer.open(), provider.name, answer.why)
            heard.append(f"{provider.name}: {answer.why}")
        if not compiling:
            raise RequestError(
                f"matmul: found no kernel ready for {request}, while a CUDA graph is captured, which cannot wait for a "
                "compiler; call it once before the capture, or cutegen.prepare(...) with the same operands"
            )
        raise RequestError(f"matmul: found no kernel for {request}; " + "; ".join(heard or ["nobody to ask"]))

    def _forget(self) -> None:
        self._served.clear()
        self.changes += 1


class _Model:
    """Stands for the model until it is asked: a process that finds every kernel in a pack imports no planner."""

    name = "the model of time"

    def answer(self, request: Request) -> Answer:
        """Return the model's answer; no kernel where only what runs kernels is installed."""
        try:
            from cutegen.dispatch.model import model
        except ImportError as error:
            return Answer(f"this installation only runs kernels ({error})")
        return model.answer(request)


class _Tuned:
    """Stands for the records of `cutegen tune` until it is asked."""

    name = "records of cutegen tune"

    def answer(self, request: Request) -> Answer:
        """What they say; nothing where only what runs kernels is installed."""
        try:
            from cutegen.dispatch.tuned import tuned
        except ImportError as error:
            return Answer(f"this installation only runs kernels ({error})")
        return tuned.answer(request)


providers = Providers()
"""Those of this process."""
providers.register(TUNED, _Tuned())
providers.register(MODEL, _Model())
providers.listeners.append(record_request)
