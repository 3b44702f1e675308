"""The explanation holds everything that was decided, and the JSON is the same for the same plan."""

from __future__ import annotations

import json

import pytest

from cutegen.contract import LaunchContract
from cutegen.plan import GemmPlan, ProbePlan, plan
from cutegen.plan.gemm_plan import plan_json, ranking
from cutegen.spec import GemmSpec, Operand, Problem, Smem, SmemLayout, load_spec, shipped_specs


@pytest.fixture(scope="module", params=shipped_specs())
def made(request: pytest.FixtureRequest) -> GemmPlan | ProbePlan:
    spec = load_spec(request.param)
    return plan(spec, spec.needs)


def words(text: str) -> str:
    """The text without its line breaks."""
    return " ".join(text.split())


def test_every_decision_is_explained(made: GemmPlan | ProbePlan) -> None:
    text = words(made.explain())
    for decision in made.decisions:
        state = "given" if decision.given else "chosen"
        assert f"{decision.key} {state} {decision.chosen}" in text
        assert words(decision.why).removeprefix("given").removeprefix("; ") in text


def test_everything_that_was_rejected_can_be_seen(made: GemmPlan | ProbePlan) -> None:
    text = words(made.explain(everything=True))
    for decision in made.decisions:
        for rejected in decision.rejected:
            assert words(f"not {rejected.what}: {rejected.why}") in text
    assert "more alternative" not in text
    assert len(made.explain()) < len(made.explain(everything=True))


def test_predictions_are_there(made: GemmPlan | ProbePlan) -> None:
    text = made.explain().replace("\n    .", ".")  # a long opcode goes on in a second line
    for key in (*made.predictions.wavefronts, *made.predictions.instructions):
        assert key in text
    assert f"{made.launch.dynamic_smem_bytes:,} of {made.target.smem_per_cta_bytes:,} bytes" in text


def test_the_same_plan_gives_the_same_text(made: GemmPlan | ProbePlan) -> None:
    again = plan(load_spec(made.spec.name), made.target)
    assert plan_json(again) == plan_json(made)
    assert again.explain() == made.explain()


def test_json_is_plain_and_holds_the_launch_contract(made: GemmPlan | ProbePlan) -> None:
    table = json.loads(plan_json(made))
    assert table == json.loads(json.dumps(made.to_json()))
    assert LaunchContract.from_json(table["launch"]) == made.launch
    assert [row["key"] for row in table["decisions"]] == [decision.key for decision in made.decisions]
    assert table["instructions"] == dict(made.predictions.instructions)
    gemm = made.gemm if isinstance(made, ProbePlan) else made
    assert table["mma"]["accumulator"] == gemm.atom.c_dtype.name


def test_the_layout_in_use_is_marked_in_the_ranking() -> None:
    k_major = Operand("f16", "k")
    problem = Problem(a=k_major, b=k_major, c=Operand("f16", "n"))
    spec = GemmSpec(family="sm80", problem=problem, smem=Smem(a=SmemLayout(pad=0), b=SmemLayout(pad=12)))
    made = plan(spec, "sm_80")
    assert [row[1][:5] for row in ranking(made.a.smem, everything=True) if row[0] == "*"] == ["plain"]
    # The ranking has no such pad, so the layout that is used stands before it.
    assert ranking(made.b.smem)[0][:2] == ("*", "pad 12")


def test_conflicts_are_said_in_ways() -> None:
    k_major = Operand("f16", "k")
    problem = Problem(a=k_major, b=k_major, c=Operand("f16", "n"))
    text = plan(GemmSpec(family="sm80", problem=problem, smem=Smem(a=SmemLayout(pad=0))), "sm_80").explain()
    (line,) = [
        line
        for line in text.splitlines()
        if line.startswith("  s2r.a ") and "wavefronts" not in line and "-way" in line
    ]
    assert line.split() == ["s2r.a", "2,048", "256", "8-way"]
