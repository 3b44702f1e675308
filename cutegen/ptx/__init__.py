"""Executes PTX on the CPU with numpy and checks it: results, memory traffic, races, undefined behavior.

    program = Program.parse(text)
    report = program.launch("kernel", grid=(2, 2), block=128, args=[a, b, c, 256, 256, 256], dynamic_smem_bytes=49152)

Independent of specs and plans: the PTX may come from any compiler. `docs/ptx.md` says which instructions it may have.
"""

from cutegen.ptx.arithmetic.tensor_core import AMPERE, HOPPER, TensorCore
from cutegen.ptx.errors import LaunchError
from cutegen.ptx.machine.policy import IN_ORDER, REVERSED, Policy, random_order
from cutegen.ptx.machine.report import InstructionReport, LaunchReport
from cutegen.ptx.machine.tensor_map import TensorMap, TensorMaps
from cutegen.ptx.program import Program
from cutegen.ptx.watch.violations import ALL_KINDS, UNDEFINED, ExecutionFault, Violation, ViolationKind

__all__ = [
    "ALL_KINDS",
    "AMPERE",
    "HOPPER",
    "IN_ORDER",
    "REVERSED",
    "UNDEFINED",
    "ExecutionFault",
    "InstructionReport",
    "LaunchError",
    "LaunchReport",
    "Policy",
    "Program",
    "TensorCore",
    "TensorMap",
    "TensorMaps",
    "Violation",
    "ViolationKind",
    "random_order",
]
