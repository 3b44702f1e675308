"""Groups in a spec: which mode of a call and of a kernel belongs to them, and what they exclude."""

from __future__ import annotations

from dataclasses import replace

import pytest

from cutegen.contract.groups import Groups
from cutegen.errors import SpecError
from cutegen.plan import plan
from cutegen.plan.swapped import as_multiplied
from cutegen.spec import FAMILIES, GemmSpec, Grouped, Operand, Problem
from cutegen.spec.parse import spec_of_table
from cutegen.spec.write import spec_table


def grouped(of: str, layout: str = "packed", **keys: object) -> GemmSpec:
    problem = Problem(
        a=Operand("bf16", "k"),
        b=Operand("bf16", "n"),
        c=Operand("bf16", "n"),
        groups=Grouped(of, layout),  # type: ignore[arg-type]
    )
    return GemmSpec(problem=problem, name="experts", **keys)  # type: ignore[arg-type]


@pytest.mark.parametrize("given", [("m", "packed"), ("m", "padded"), ("n", "padded"), ("k", "packed")])
def test_a_table_of_groups_is_read_back(given: tuple[str, str]) -> None:
    spec = grouped(*given)
    assert spec_of_table(spec_table(spec)) == spec
    assert spec.problem.groups is not None
    assert spec.problem.groups.value == Groups(*given)  # type: ignore[arg-type]


@pytest.mark.parametrize(("of", "of_kernel"), [("m", "n"), ("n", "m"), ("k", "k")])
def test_a_kernel_that_multiplies_b_by_a_has_the_other_mode_of_groups(of: str, of_kernel: str) -> None:
    assert as_multiplied(grouped(of)).problem.groups == Grouped(of_kernel)  # type: ignore[arg-type]
    assert as_multiplied(as_multiplied(grouped(of))) == grouped(of)


LACKING = [name for name, family in FAMILIES.items() if "problem.groups" in family.without]


@pytest.mark.parametrize("family", LACKING)
def test_a_family_without_groups_says_so(family: str) -> None:
    with pytest.raises(SpecError, match=rf'problem.groups: found {{ of = "m", .* in family "{family}"; .*leave'):
        plan(replace(grouped("m"), family=family), "sm_90a")
