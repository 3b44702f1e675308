"""Provider of kernels, and its answer to a request."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

from cutegen.dispatch.request import Request

if TYPE_CHECKING:
    from cutegen.run import Kernel

TUNED, PACK, MODEL = RANKS = ("tuned", "pack", "model")
"""What a provider can be, in the order of asking."""


@dataclass(frozen=True, slots=True)
class Answer:
    """Answer to a request: `open` gives the provider's kernel, and is None where it has none; `why` says it.

    A kernel is `ready` where to open it compiles nothing.
    """

    why: str
    open: Callable[[], Kernel] | None = None
    ready: bool = False


class Provider(Protocol):
    """Has kernels for some requests."""

    @property
    def name(self) -> str:
        """Name in messages and in `explain`: `the pack model.cutepack`."""

    def answer(self, request: Request) -> Answer:
        """Return whether there is a kernel for `request`, and why this one, or why none. Compiles nothing."""


@dataclass(frozen=True, slots=True)
class Served:
    """A kernel for a request, whose it is and why it was chosen."""

    kernel: Kernel
    provider: str
    why: str
