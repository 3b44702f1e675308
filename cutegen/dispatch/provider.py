"""Provider of kernels, and its answer to a request."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

from cutegen.dispatch.request import Request

if TYPE_CHECKING:
    from cutegen.run import Kernel

TUNED, PACK, MODEL = RANKS = ("tuned", "pack", "model")
"""Kinds of providers, in the order in which they are consulted."""


@dataclass(frozen=True, slots=True)
class Answer:
    """Answer to a request: `open` returns the provider's kernel, or is None if it has none; `why` explains.

    A kernel is `ready` if opening it compiles nothing. `remarks` say what a user should know of it, a sentence each.
    """

    why: str
    open: Callable[[], Kernel] | None = None
    ready: bool = False
    remarks: tuple[str, ...] = ()


class Provider(Protocol):
    """Has kernels for some requests."""

    @property
    def name(self) -> str:
        """The name in messages and in `explain`: `the pack model.cutepack`."""

    def answer(self, request: Request) -> Answer:
        """Return whether there is a kernel for `request`, and why this one, or why none. Compiles nothing."""


@dataclass(frozen=True, slots=True)
class Served:
    """A kernel for a request, its provider, and why it was chosen."""

    kernel: Kernel
    provider: str
    why: str
