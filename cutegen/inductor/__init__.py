"""Lets `torch.compile` choose cutegen's ops for the products of a model.

enabling.py  `enable`, `disable`: a pass of Inductor's own configuration, for products that are measured to be faster
passes.py    the pass: products of a graph, with their activations, become `torch.ops.cutegen.matmul`

`docs/inductor.md` describes the hooks that torch has, and why it is this one.
"""

from cutegen.inductor.enabling import disable, enable
from cutegen.inductor.passes import Candidate

__all__ = ["Candidate", "disable", "enable"]
