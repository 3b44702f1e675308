"""Switches of `cutegen.matmul`, for the whole process: autograd computes backward passes in threads of its own."""

from __future__ import annotations

import sys
from typing import Any, Literal

from cutegen.errors import RequestError
from cutegen.support.literals import literal

_VALUES: dict[str, tuple[Any, ...]] = {"cpu_tensors": ("torch", "executor"), "batch_invariant": (False, True)}


class Settings:
    """Switches of this process: `changes` counts how often one changed."""

    __slots__ = ("batch_invariant", "changes", "cpu_tensors")

    def __init__(self) -> None:
        self.cpu_tensors: Literal["torch", "executor"] = "torch"
        self.batch_invariant = False
        self.changes = 0

    def change(self, **values: Any) -> dict[str, Any]:
        """Set what is given; returns what it was. Raises RequestError for a value that is none."""
        for name, value in values.items():
            if value not in _VALUES[name]:
                expected = " or ".join(map(repr, _VALUES[name]))
                raise RequestError(f"matmul_settings: {name}: found {literal(value)}; expected {expected}")
        before = {name: getattr(self, name) for name in values}
        for name, value in values.items():
            setattr(self, name, value)
        self.changes += 1
        return before


settings = Settings()
"""Those of this process."""


class matmul_settings:  # noqa: N801 - used like torch.set_grad_enabled, as a function and in `with`
    """Switches `cutegen.matmul` for the whole process, from the call on; in a `with` statement until its end.

    `cpu_tensors` is who computes torch tensors in host memory: "torch", or "executor", which executes the kernel's PTX
    instruction by instruction. With `batch_invariant` a row of the result does not depend on how many rows there are:
    for given N and K there is one kernel, with one tile and one order of K. Raises RequestError within `torch.compile`,
    which would switch while it traces and never again; around a compiled call it counts.

    >>> with matmul_settings(batch_invariant=True):
    ...     settings.batch_invariant
    True
    >>> settings.batch_invariant
    False
    """

    def __init__(
        self, *, cpu_tensors: Literal["torch", "executor"] | None = None, batch_invariant: bool | None = None
    ) -> None:
        torch = sys.modules.get("torch")
        if torch is not None and torch.compiler.is_compiling():
            raise RequestError("matmul_settings: found within torch.compile; expected around the compiled call")
        given = {"cpu_tensors": cpu_tensors, "batch_invariant": batch_invariant}
        self._values = {name: value for name, value in given.items() if value is not None}
        self._before = settings.change(**self._values)

    def __enter__(self) -> None:
        """Leave it switched; after an earlier `with` switch again."""
        if any(getattr(settings, name) != value for name, value in self._values.items()):
            self._before = settings.change(**self._values)

    def __exit__(self, *_: object) -> None:
        """As it was before."""
        settings.change(**self._before)
