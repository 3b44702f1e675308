"""Result of rendering: the text of one kernel file and the name of its entry."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class KernelSource:
    """A generated, standalone CuTe DSL file.

    The file defines `compile_kernel(gpu_arch: str)`, which returns the DSL's compiled object; `entry` is the name of
    its PTX `.entry`.
    """

    text: str
    entry: str
