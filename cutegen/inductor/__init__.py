"""Lets `torch.compile` choose cutegen's ops for the products of a model.

enabling.py   `enable`, `disable`: a pass of Inductor's own configuration
passes.py     the pass: products of a graph, with their activations, become `torch.ops.cutegen.matmul`
tails.py      the activation after a product, as Inductor decomposes it
candidates.py a product that could be replaced, as plain values
choosing.py   which of them are replaced: those that are faster when both are measured

`docs/inductor.md` describes the hooks that torch has, and why it is this one.
"""

from __future__ import annotations

from cutegen.inductor.candidates import Candidate
from cutegen.inductor.enabling import disable, enable

__all__ = ["Candidate", "disable", "enable"]
