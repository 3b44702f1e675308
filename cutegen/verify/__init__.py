"""Says whether a kernel did what it should: its numbers beside float64, its counts beside the plan's.

    reference.py     random operands, the float64 reference, the comparison
    error_bounds.py  the epilogue in float64, with a bound on float32's errors
    counts.py        what the executor counted, beside what the plan predicts (probe_counts.py: for a probe)
    probe_check.py   what a probe's registers hold, beside what they should
    producer.py      which CTA, thread and register computed an element
    cost_estimate.py how long the executor will take
    trial.py         one run of a kernel on random data, judged (probe_trial.py: of a probe)
    trial_report.py  what came of it, in words (foreign_report.py: of a kernel that is not ours)

A plan, its kernel and a run meet here, and nowhere below.
"""

from __future__ import annotations

from cutegen.verify.error_bounds import Bounded, Outcome
from cutegen.verify.reference import (
    Comparison,
    FirstWrong,
    Reference,
    compare,
    expected_outcome,
    float64_reference,
    random_extras,
    random_operands,
)

__all__ = [
    "Bounded",
    "Comparison",
    "FirstWrong",
    "Outcome",
    "Reference",
    "compare",
    "expected_outcome",
    "float64_reference",
    "random_extras",
    "random_operands",
]
