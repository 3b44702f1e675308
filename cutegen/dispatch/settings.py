"""Switches of `cutegen.matmul`, for the whole process: autograd runs backward passes in other threads."""

import sys
from typing import Any, Literal

from cutegen.dispatch.request import TRIED
from cutegen.errors import RequestError
from cutegen.support.words import literal

ANY = "any"
"""Setting of `family` that leaves it to predicted times."""

_VALUES: dict[str, tuple[Any, ...]] = {
    "cpu_tensors": ("torch", "executor"),
    "batch_invariant": (False, True),
    "family": (ANY, TRIED),
}


class Settings:
    """Switches of this process: `changes` counts their changes."""

    __slots__ = ("batch_invariant", "changes", "cpu_tensors", "family")

    def __init__(self) -> None:
        self.cpu_tensors: Literal["torch", "executor"] = "torch"
        self.batch_invariant = False
        self.family = ANY
        self.changes = 0

    @property
    def asked_family(self) -> str | None:
        """The family of requests; None if it is left to predicted times."""
        return None if self.family == ANY else self.family

    def change(self, **values: Any) -> dict[str, Any]:
        """Set the given switches; return their previous values. Raises RequestError for an invalid value."""
        for name, value in values.items():
            known = _known(name, value)
            if (type(value), value) not in [(type(each), each) for each in known]:  # True == 1
                expected = " or ".join(map(repr, known))
                raise RequestError(f"matmul_settings: {name}: found {literal(value)}; expected {expected}")
        before = {name: getattr(self, name) for name in values}
        for name, value in values.items():
            setattr(self, name, value)
        self.changes += 1
        return before


def _known(name: str, value: Any) -> tuple[Any, ...]:
    """Return the values that a switch has. Those of `family` include names, which only a planner has."""
    if name != "family" or value in _VALUES[name]:
        return _VALUES[name]
    from cutegen.spec import FAMILIES

    return (*_VALUES[name], *FAMILIES)


settings = Settings()
"""The switches of this process."""


class matmul_settings:  # noqa: N801 - used like torch.set_grad_enabled, as a function and in `with`
    """Switch `cutegen.matmul` for the whole process, from the call on; in a `with` statement until its end.

    `cpu_tensors` selects how torch tensors in host memory are computed: "torch", or "executor", which executes the
    kernel's PTX instruction by instruction. With `batch_invariant`, a row of the result does not depend on the number
    of rows: for given N and K there is one kernel, with one tile and one order of K. `family` is that of the kernels,
    such as "sm80"; "tried" leaves out families that have never run on hardware, and "any" none: the first result of
    each of their kernels is then compared with float64. Raises RequestError within `torch.compile`, where it would
    switch only during tracing; around a compiled call it takes effect.

    >>> with matmul_settings(batch_invariant=True):
    ...     settings.batch_invariant
    True
    >>> settings.batch_invariant
    False
    """

    def __init__(
        self,
        *,
        cpu_tensors: Literal["torch", "executor"] | None = None,
        batch_invariant: bool | None = None,
        family: str | None = None,
    ) -> None:
        torch = sys.modules.get("torch")
        if torch is not None and torch.compiler.is_compiling():
            raise RequestError("matmul_settings: found within torch.compile; expected around the compiled call")
        given = {"cpu_tensors": cpu_tensors, "batch_invariant": batch_invariant, "family": family}
        self._values = {name: value for name, value in given.items() if value is not None}
        self._before = settings.change(**self._values)

    def __enter__(self) -> None:
        """Keep it switched; after an earlier `with`, switch again."""
        if any(getattr(settings, name) != value for name, value in self._values.items()):
            self._before = settings.change(**self._values)

    def __exit__(self, *_: object) -> None:
        """Restore the previous values."""
        settings.change(**self._before)
