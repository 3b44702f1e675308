"""Contract between a kernel and its launcher or artifact, independent of how the kernel was planned.

    launch.py      the launch contract: entry, operands by role, parameters, grid, shared memory
    problem.py     the extents of a problem, and of the one that a kernel is chosen for; groups whose sizes only the
                   device has; pairs of B's columns; a quantized result
    source.py      the kernel's text, which is compiled and kept in the artifact
    tensor_map.py  properties of a matrix that a bulk tensor copy needs

All higher packages may use this one; it uses the hardware data and the errors.
"""

from cutegen.contract.launch import LaunchContract, LaunchGeometry, TensorContract
from cutegen.contract.problem import ProblemLike, ProblemShape

__all__ = ["LaunchContract", "LaunchGeometry", "ProblemLike", "ProblemShape", "TensorContract"]
