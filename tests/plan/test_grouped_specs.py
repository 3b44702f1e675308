"""Groups in a spec: which mode of a call and of a kernel belongs to them, and what they exclude."""

from __future__ import annotations

from dataclasses import fields, replace

import pytest

from cutegen.contract.problem import Groups, ProblemShape
from cutegen.errors import ProofError, SpecError
from cutegen.plan import GemmPlan, plan
from cutegen.plan.prove import prove
from cutegen.plan.swapped import as_multiplied
from cutegen.spec import FAMILIES, GemmSpec, Grouped, Operand, Problem, Schedule
from cutegen.spec.file import spec_of_table, spec_table


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


@pytest.mark.parametrize("of", ["m", "n", "k"])
def test_a_scheduler_that_loses_a_tile_of_a_group_is_refused(of: str) -> None:
    planned = plan(replace(grouped(of), family="sm80"), "sm_80")
    assert isinstance(planned, GemmPlan)

    class Forgetful(type(planned.scheduler)):  # type: ignore[misc]
        """Leaves out the last tile of the second group."""

        def work(self, *arguments: object) -> object:
            return (tile for tile in super().work(*arguments) if (tile.product, tile.m, tile.n) != (1, 0, 0))

    wrong = Forgetful(**{each.name: getattr(planned.scheduler, each.name) for each in fields(planned.scheduler)})
    with pytest.raises(ProofError, match="a tile of a group twice, or not at all"):
        prove(replace(planned, scheduler=wrong))
    other = Groups(of, "padded")  # type: ignore[arg-type]
    with pytest.raises(ProofError, match="ends of other groups"):
        prove(replace(planned, launch=replace(planned.launch, groups=other)))


def test_a_batch_slices_and_clusters_of_groups_are_refused_with_a_way_out() -> None:
    spec = replace(grouped("m"), family="sm80")
    with pytest.raises(
        SpecError, match=r"schedule.split_k: found 4 with groups; expected 1: .* leave schedule.split_k out"
    ):
        plan(replace(spec, schedule=Schedule(split_k=4)), "sm_80")
    with pytest.raises(SpecError, match=r"problem.groups: found groups, and a batch of 3; .* leave the batch out"):
        plan(spec, "sm_80", ProblemShape(8, 8, 8, 3))


def test_groups_that_begin_anywhere_along_the_contiguous_mode_are_copied_by_elements() -> None:
    for of, a, aligned in (("m", "m", 2), ("m", "k", 16), ("k", "k", 2), ("k", "m", 16)):
        spec = grouped(of)
        spec = replace(spec, family="sm80", problem=replace(spec.problem, a=Operand("bf16", a)))
        planned = plan(spec, "sm_80")
        assert isinstance(planned, GemmPlan)
        assert planned.launch.tensor("a").align_bytes == aligned
        assert planned.spec == spec


def test_a_search_for_groups_takes_their_mean_size_and_leaves_k_whole() -> None:
    spec = replace(grouped("m"), family="sm80")
    few, many = (plan(spec, "sm_80", ProblemShape(rows, 1536, 2048, groups=128)) for rows in (512, 128 * 512))
    assert isinstance(few, GemmPlan)
    assert isinstance(many, GemmPlan)
    assert few.cta_tile[0] < many.cta_tile[0]
    assert few.split_k is None
    assert "schedule.split_k" not in {decision.key for decision in few.decisions}
