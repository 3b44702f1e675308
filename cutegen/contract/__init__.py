"""Contract between a kernel and its launcher or artifact; it says nothing of how the kernel was planned.

    launch.py       the launch contract: entry, operands by role, parameters, grid, shared memory
    launch_check.py a contract from a file, held against what a launcher relies on
    buckets.py      the problem that a kernel is chosen for, in the place of the one that is called
    problem.py      the extents of a problem: M, N, K and the batch
    source.py       the kernel's text, which is compiled and kept in the artifact
    tensor_map.py   what a bulk tensor copy must know of a matrix

Everything above this room may use it; it knows the hardware's rows and the errors.
"""

from __future__ import annotations

from cutegen.contract.launch import LaunchContract, LaunchGeometry, TensorContract
from cutegen.contract.problem import ProblemLike, ProblemShape

__all__ = ["LaunchContract", "LaunchGeometry", "ProblemLike", "ProblemShape", "TensorContract"]
