"""`cutegen.inductor.enable`: a pass of cutegen's among Inductor's own."""

from __future__ import annotations

from types import TracebackType
from typing import Any, Literal

import torch
import torch._inductor.config as config
from torch._inductor import custom_graph_pass

from cutegen.errors import RequestError
from cutegen.inductor.choosing import Measured
from cutegen.inductor.passes import Choose, MatmulPass
from cutegen.support.literals import literal

LEAST_SPEEDUP = 1.02
"""More than two measurements of one kernel differ by."""
_HOOK = "post_grad_custom_pre_pass"


class Enabled:
    """The pass while it is enabled; as a context manager, until the end of `with`."""

    def __init__(self, graph_pass: MatmulPass) -> None:
        self.graph_pass = graph_pass

    @property
    def replaced(self) -> tuple[Any, ...]:
        """The products that were replaced, in the order of compilation; a graph of torch's cache has none."""
        return tuple(self.graph_pass.replaced)

    def __enter__(self) -> Enabled:
        """Keep it enabled."""
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        """Disable it."""
        disable()


def enable(
    *, choose: Choose | Literal["measured", "always"] = "measured", least_speedup: float = LEAST_SPEEDUP
) -> Enabled:
    """Let `torch.compile` compute products by cutegen, from now on: `mm`, `addmm`, `bmm`, `baddbmm` and activations.

    "measured" measures torch's and cutegen's way on the GPU while a graph is compiled, and takes cutegen's if it is
    `least_speedup` times as fast or more. "always" takes it for every product that cutegen has, on any device. A
    function decides for each `Candidate` itself; torch then does not keep compiled graphs on disk.

    Programs that are compiled to C++ (AOTInductor) have no Python to call cutegen from, and keep torch's products.

    Raises RequestError if `choose` is something else, if it is enabled already, or if this torch has one place for a
    pass and another pass is there.
    """
    made = MatmulPass(*_chooser(choose, least_speedup))
    others = _others()
    if any(isinstance(each, MatmulPass) for each in others):
        raise RequestError("inductor.enable: found it enabled; expected cutegen.inductor.disable() before")
    if others and not hasattr(custom_graph_pass, "get_custom_graph_passes"):
        raise RequestError(
            f"inductor.enable: torch._inductor.config.{_HOOK}: found {literal(others[0])}; expected None: torch "
            f"{torch.__version__} has one place for a pass"
        )
    setattr(config, _HOOK, [*others, made] if others else made)
    return Enabled(made)


def disable() -> None:
    """Undo `enable`; graphs that were compiled stay as they are."""
    left = [each for each in _others() if not isinstance(each, MatmulPass)]
    setattr(config, _HOOK, left if len(left) > 1 else left[0] if left else None)


def _others() -> list[Any]:
    """Return the passes at the hook."""
    there = getattr(config, _HOOK)
    return [] if there is None else [*there] if isinstance(there, (list, tuple)) else [there]


def _chooser(choose: Any, least_speedup: float) -> tuple[Choose, str | None]:
    """Return the function that decides, and the name of its decisions. Raises RequestError."""
    if choose == "always":
        return (lambda candidate: True), "always"
    if choose == "measured":
        gpu = torch.cuda.get_device_name() if torch.cuda.is_available() else "no GPU"
        return Measured(least_speedup), f"measured on {gpu}, {least_speedup}"
    if not callable(choose):
        raise RequestError(
            f'inductor.enable: choose: found {literal(choose)}; expected "measured", "always" or a function'
        )
    return choose, None
