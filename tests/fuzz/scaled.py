"""Kernels with factors of blocks, built and executed against float64: recipes, groups, pairs, quantized results.

Those of `tests/run/scaled_cases.py`, which draws what is executed as well.
"""

from __future__ import annotations

from cutegen.errors import CutegenError
from cutegen.spec import parse_spec
from cutegen.spec.file import spec_table
from cutegen.support.toml_text import toml_value
from tests.fuzz.built import own_cache
from tests.fuzz.case import ACCEPTED, FOUND, REFUSED, Case, Outcome, random_of
from tests.run.scaled_cases import drawn, failure_of


def case(seed: int) -> Case:
    """A spec that is planned."""
    spec, _ = drawn(random_of("scaled", seed))
    return Case(seed, "".join(f"{key} = {toml_value(value)}\n" for key, value in spec_table(spec).items()))


def check(case: Case) -> Outcome:
    """Build it, and execute a launch of any extents, or of groups of any sizes."""
    try:
        spec = parse_spec(case.text, name="case")
    except CutegenError as error:
        return Outcome(REFUSED, str(error))
    wrong = failure_of(spec, random_of("scaled launch", case.seed), own_cache())
    return Outcome(FOUND, wrong) if wrong else Outcome(ACCEPTED)
