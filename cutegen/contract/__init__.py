"""Contract between a kernel and its launcher or artifact, independent of how the kernel was planned.

    launch.py        the launch contract: entry, operands by role, parameters, grid, shared memory
    launch_check.py  a contract from a file, checked for what a launcher relies on
    groups.py        products whose sizes only the device has, and what a host knows of them
    distributions.py how routers spread rows over groups: named sizes, to measure
    pairs.py         pairs of B's columns, of whose two sums an epilogue makes one
    quantized.py     a result of 8-bit floats with a factor for each block of a row
    buckets.py       the problem that a kernel is chosen for, instead of the called one
    problem.py       the extents of a problem: M, N, K and the batch
    source.py        the kernel's text, which is compiled and kept in the artifact
    tensor_map.py    properties of a matrix that a bulk tensor copy needs

All higher packages may use this one; it uses the hardware data and the errors.
"""

from __future__ import annotations

from cutegen.contract.launch import LaunchContract, LaunchGeometry, TensorContract
from cutegen.contract.problem import ProblemLike, ProblemShape

__all__ = ["LaunchContract", "LaunchGeometry", "ProblemLike", "ProblemShape", "TensorContract"]
