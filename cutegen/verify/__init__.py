"""Checks a kernel's results against float64 and its counts against the plan.

    reference.py     random operands, the float64 reference, the comparison; also of a quantized result
    error_bounds.py  the epilogue in float64, with a bound on float32's errors
    grouped.py       groups: their part of each operand, and the expected result from that of each
    counts.py        the executor's counts and the plan's predictions
    probes.py        the same of a probe: its registers, its counts, one run
    cost_estimate.py how long the executor will take
    trial.py         one run of a kernel on random data, checked; which thread computed a wrong element
    trial_report.py  its results as text and JSON (foreign_report.py: for a foreign kernel)

A plan, its kernel and a run meet here, and in no lower package.
"""

from cutegen.verify.error_bounds import Bounded, Outcome
from cutegen.verify.reference import (
    Comparison,
    Reference,
    compare,
    expected_outcome,
    float64_reference,
    poison,
    random_extras,
    random_operands,
)

__all__ = [
    "Bounded",
    "Comparison",
    "Outcome",
    "Reference",
    "compare",
    "expected_outcome",
    "float64_reference",
    "poison",
    "random_extras",
    "random_operands",
]
