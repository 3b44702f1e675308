"""Chooses the products that cutegen computes: those that are faster when both are measured on the GPU."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import torch
from torch import Tensor
from torch._subclasses.fake_tensor import unset_fake_temporarily

from cutegen.bench.measure import captured, graph_times
from cutegen.errors import CutegenError
from cutegen.inductor.candidates import Candidate, Form
from cutegen.inductor.tails import ACTIVATIONS
from cutegen.matmul import matmul

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
