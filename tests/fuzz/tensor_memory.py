"""Kernels of family sm100: planned, proved, compiled for each of its targets, and executed in two orders.

They are those of `tests/run/sm100_cases.py`. Nothing may be wrong, violate PTX, or need a convention, and counts are as
planned. The full run is the sample that docs/blackwell.md names.
"""

from __future__ import annotations

from cutegen.errors import CutegenError
from cutegen.spec import parse_spec
from cutegen.spec.file import spec_table
from cutegen.support.toml_text import toml_value
from tests.fuzz.built import own_cache
from tests.fuzz.case import ACCEPTED, REFUSED, Case, Outcome
from tests.run import sm100_cases


def case(seed: int) -> Case:
    """Its first line, a comment, is the problem, with a batch or 0, then the sizes of groups; the rest is a spec."""
    found = sm100_cases.random_case(seed)
    problem = ",".join(map(str, (found.m, found.n, found.k, found.batch or 0, *found.sizes)))
    table = spec_table(found.spec)
    return Case(seed, f"# {problem}\n" + "".join(f"{key} = {toml_value(value)}\n" for key, value in table.items()))


def read(case: Case) -> sm100_cases.Case:
    """Return the kernel and the problem that the text is.

    Raises CutegenError for what is no spec.
    """
    first, _, content = case.text.partition("\n")
    m, n, k, batch, *sizes = map(int, first.removeprefix("# ").split(","))
    spec = parse_spec(content, name=f"case_{case.seed}")
    return sm100_cases.Case(spec, m, n, k, batch or None, tuple(sizes))


def check(case: Case) -> Outcome:
    """Try it. What is wrong is raised."""
    try:
        found = read(case)
    except CutegenError as error:
        return Outcome(REFUSED, str(error))
    sm100_cases.try_case(found, own_cache())
    return Outcome(ACCEPTED)
