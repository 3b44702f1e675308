"""`cutegen.inductor.enable`: a pass of cutegen's among Inductor's own, for the products that it computes faster."""

from collections.abc import Callable
from functools import partial
from types import TracebackType
from typing import Any, Literal, Self

import torch
import torch._inductor.config as config
from torch import Tensor
from torch._inductor import custom_graph_pass
from torch._subclasses.fake_tensor import unset_fake_temporarily

from cutegen.bench.measure import captured, graph_times
from cutegen.errors import CutegenError, RequestError
from cutegen.inductor.passes import ACTIVATIONS, Candidate, Choose, Form, MatmulPass
from cutegen.matmul import matmul
from cutegen.support.words import literal

# Chooses the products that cutegen computes: those that are faster when both are measured on the GPU.


ROUNDS = 7
SETS = 4
"""Sets of operands that a graph goes through, so that small products do not stay in the L2 cache."""

Times = Callable[[Candidate], tuple[float, float]]
"""Microseconds of torch and of cutegen."""


class Measured:
    """Chooses what is at least `least_speedup` times as fast as torch's product and activation; keeps what it measured.

    `times` measures a candidate. A candidate that cannot be computed or measured is not chosen. Only tensors on a GPU
    are.
    """

    def __init__(self, least_speedup: float, times: Times | None = None) -> None:
        self.least_speedup, self._times = least_speedup, times or measured_us
        self.known: dict[Candidate, tuple[float, float] | None] = {}
        """Times of torch and of cutegen by candidate; None if there are none."""

    def __call__(self, candidate: Candidate) -> bool:
        """Return whether cutegen computes this candidate."""
        if candidate.a.device.type != "cuda":
            return False
        if candidate not in self.known:
            self.known[candidate] = self._measured(candidate)
        found = self.known[candidate]
        return found is not None and found[0] >= self.least_speedup * found[1]

    def _measured(self, candidate: Candidate) -> tuple[float, float] | None:
        try:
            return self._times(candidate)
        except (CutegenError, torch.OutOfMemoryError):  # no kernel for it, or no memory to measure it
            return None


def measured_us(candidate: Candidate) -> tuple[float, float]:
    """Measure torch's product and activation, and cutegen's call, in CUDA graphs; in microseconds.

    Raises the errors of `cutegen.matmul`, and torch's if memory is short.
    """
    with unset_fake_temporarily(), torch.no_grad(), torch.random.fork_rng(devices=[candidate.a.device]):
        sets = [_tensors(candidate) for _ in range(SETS)]
        graphs = {
            name: captured([partial(run, candidate, x) for x in sets])
            for name, run in (("torch", in_torch), ("cutegen", in_cutegen))
        }
        found = graph_times(graphs, rounds=ROUNDS)
        return found["torch"].median_us, found["cutegen"].median_us


def in_torch(candidate: Candidate, x: dict[str, Tensor]) -> Tensor:
    """Compute a candidate with torch's functions."""
    batched = x["a"].dim() == 3
    if (added := x.get("c", x.get("bias"))) is None:
        made = (torch.bmm if batched else torch.mm)(x["a"], x["b"])
    else:
        factors = {"alpha": candidate.alpha, "beta": candidate.beta}
        made = (torch.baddbmm if batched else torch.addmm)(added, x["a"], x["b"], **factors)
    found: Tensor = made if candidate.activation is None else ACTIVATIONS[candidate.activation](made)
    return found


def in_cutegen(candidate: Candidate, x: dict[str, Tensor]) -> Tensor:
    """Compute a candidate with `cutegen.matmul`."""
    terms: dict[str, Any] = {name: x[name] for name in ("bias", "c") if name in x}
    if candidate.alpha != 1:
        terms["alpha"] = candidate.alpha
    if candidate.c is not None:
        terms["beta"] = candidate.beta
    found: Tensor = matmul(x["a"], x["b"], activation=candidate.activation, **terms)
    return found


def _tensors(candidate: Candidate) -> dict[str, Tensor]:
    forms: dict[str, Form | None] = {name: getattr(candidate, name) for name in ("a", "b", "bias", "c")}
    return {name: form.random() for name, form in forms.items() if form is not None}


# `cutegen.inductor.enable`: a pass of cutegen's among Inductor's own.


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

    def __enter__(self) -> Self:
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
