"""A spec without a family: which one it gets, why, and why not the others."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest

from cutegen.contract.problem import ProblemShape
from cutegen.errors import SpecError
from cutegen.hardware import TARGETS, Instruction
from cutegen.plan import GemmPlan, plan
from cutegen.plan.families import FAMILIES
from cutegen.plan.search.problem import Proposal
from cutegen.plan.values.decision import Decision
from cutegen.spec import PROBE, G2s, G2sCopy, GemmSpec, Mma, S2r, S2rCopy, Schedule, Tile, load_spec
from tests.plan.specs import gemm

OPEN = replace(gemm(), family=None)


def chosen(spec: GemmSpec, arch: str, problem: tuple[int, int, int] | None = None) -> tuple[str, Decision]:
    found = plan(spec, arch, problem)
    assert isinstance(found, GemmPlan)
    assert found.spec is spec
    (decision,) = (each for each in found.decisions if each.key == "family")
    assert decision.chosen == found.family
    assert {each.what for each in decision.rejected} == FAMILIES.keys() - {found.family}
    return found.family, decision


@pytest.mark.parametrize("arch", TARGETS)
def test_without_a_problem_the_first_that_the_target_has(arch: str) -> None:
    family, decision = chosen(OPEN, arch)
    row = TARGETS[arch]
    bulk = "sm120" if row.has(Instruction.BULK_TENSOR) else "sm80"
    of_tensor_memory = "sm100" if row.has(Instruction.TCGEN05) else bulk
    assert family == ("sm90" if row.has(Instruction.WGMMA) else of_tensor_memory)
    why = {each.what: each.why for each in decision.rejected}
    if family == "sm80":
        assert "bulk tensor copies" in why["sm120"]
    if family != "sm90":
        assert "sm_90, which has wgmma" in why["sm90"]


@pytest.mark.parametrize(
    ("problem", "family"),
    # Measured on an H200: 38 us by sm80 and 27 by sm90 where K is split; 181 by sm90, 295 and 339 by the others at the
    # large square; 1.92 by sm80 and 2.42 by sm90 where there is little to multiply.
    [((256, 256, 65536), "sm90"), ((4096, 4096, 4096), "sm90"), ((16, 6568, 16), "sm80")],
)
def test_a_problem_gets_the_family_of_the_least_predicted_time(problem: tuple[int, int, int], family: str) -> None:
    found, decision = chosen(OPEN, "sm_90", problem)
    assert found == family
    assert "us predicted" in decision.for_problem
    others = (each.why for each in decision.rejected if each.what not in ("simt", "sm100"))
    predicted, *of_others = (float(text.split(" us")[0].split(": ")[-1]) for text in (decision.for_problem, *others))
    assert predicted <= min(of_others)


def test_a_kernel_has_one_prediction_whoever_asks() -> None:
    _, decision = chosen(OPEN, "sm_90", (4096, 4096, 4096))
    rejected = {each.what: each.why for each in decision.rejected}
    alone = plan(replace(OPEN, family="sm120"), "sm_90", (4096, 4096, 4096))
    (tile,) = (each for each in alone.decisions if each.key == "tile.cta")
    predicted = re.findall(r"\S+ us predicted", tile.for_problem)
    assert predicted == re.findall(r"^\S+ us predicted", rejected["sm120"])
    assert "counted as" in rejected["sm120"]


@pytest.mark.parametrize(("arch", "lacking"), [("sm_80", ("sm90", "sm120")), ("sm_120", ("sm90",))])
def test_a_family_that_the_target_lacks_has_no_time_for_a_problem(arch: str, lacking: tuple[str, ...]) -> None:
    """It would be slower here, too; but why it was not taken is that it cannot be."""
    family, decision = chosen(OPEN, arch, (100, 72, 88))
    assert family == "sm80"
    why = {each.what: each.why for each in decision.rejected}
    for name in lacking:
        assert why[name].startswith(f'family: found "{name}" for {arch}; expected sm_90')


@pytest.mark.parametrize("problem", [None, (512, 512, 512)])
@pytest.mark.parametrize(
    ("keys", "family"),
    [
        ({"mma": Mma(threads="(16,16):(1,16)"), "tile": Tile(cta=(128, 128, 8))}, "simt"),
        ({"s2r": S2r(a=S2rCopy("universal"))}, "sm80"),
        ({"g2s": G2s(a=G2sCopy("cp.async.cg"))}, "sm80"),
        ({"g2s": G2s(a=G2sCopy("cp.async.bulk.tensor"))}, "sm90"),
        ({"mma": Mma(atom="SM90_64x128x16_F32F16F16_SS"), "tile": Tile(cta=(128, 128, 64))}, "sm90"),
        ({"problem": gemm(dtype="tf32").problem, "g2s": G2s(a=G2sCopy("cp.async.bulk.tensor"))}, "sm120"),
        ({"problem": gemm(align=(2, 2, 2)).problem}, "sm80"),
    ],
)
def test_keys_decide(keys: dict[str, object], family: str, problem: tuple[int, int, int] | None) -> None:
    assert chosen(replace(OPEN, **keys), "sm_90", problem)[0] == family  # type: ignore[arg-type]


@pytest.mark.parametrize("arch", ["sm_80", "sm_90"])
def test_one_stage_is_no_candidate_of_warpgroups(arch: str) -> None:
    """Nothing hides a copy there: it has no time, and the rules refuse it."""
    asked = replace(OPEN, tile=Tile(stages=1))
    assert chosen(asked, arch, (1000, 1000, 1000))[0] == "sm80"
    with pytest.raises(SpecError, match=r"tile\.stages: found 1; expected 2 or more"):
        plan(replace(asked, family="sm90"), "sm_90", (1000, 1000, 1000))


@pytest.mark.parametrize("arch", ["sm_89", "sm_90", "sm_120"])
@pytest.mark.parametrize("dtype", ["s8", "e4m3"])
@pytest.mark.parametrize("majors", ["mkn", "knn", "mnn"])
def test_columns_of_bytes_find_the_family_that_takes_them(majors: str, dtype: str, arch: str) -> None:
    """The narrowest tiles have columns of 8 bytes: no span of memory for warpgroups, which refuse them anyway."""
    for problem in ((1000, 1000, 1000), (4096, 16, 4096), (16, 4096, 4096)):
        assert chosen(replace(gemm(majors, dtype), family=None), arch, problem)[0] in ("sm80", "sm120")


def test_the_plan_is_the_familys_own() -> None:
    named, found = plan(replace(OPEN, family="sm90"), "sm_90"), plan(OPEN, "sm_90")
    assert isinstance(named, GemmPlan)
    assert isinstance(found, GemmPlan)
    assert found.decisions[1:] == named.decisions
    assert (found.launch, found.loop, found.smem_bytes) == (named.launch, named.loop, named.smem_bytes)


def test_what_every_family_refuses_is_refused_by_a_rule() -> None:
    with pytest.raises(SpecError, match=r"tile\.cta: found 256x256x64|tile\.stages: found 4"):
        plan(replace(gemm(tile=Tile(cta=(256, 256, 64), stages=4)), family=None), "sm_80")


@pytest.mark.parametrize("problem", [None, (16, 4096, 4096)])
@pytest.mark.parametrize("keys", [{"swap": True}, {"cluster": (2, 1)}, {"consumers": "pingpong"}])
@pytest.mark.parametrize(("arch", "family"), [("sm_80", "sm80"), ("sm_120", "sm120")])
def test_a_key_that_no_family_of_a_target_has_names_the_target_that_has_it(
    arch: str, family: str, keys: dict[str, Any], problem: tuple[int, int, int] | None
) -> None:
    """And no family that the target lacks."""
    asked = replace(OPEN, schedule=Schedule(**keys))
    with pytest.raises(SpecError) as caught:
        plan(asked, arch, problem)
    (key,) = keys
    assert caught.value.key == f"schedule.{key}"
    assert caught.value.found.endswith(f' in family "{family}"')
    assert caught.value.fix == f'leave schedule.{key} out, or --arch sm_90, whose family "sm90" has it'
    assert plan(asked, "sm_90", problem).family == "sm90"


def test_a_probe_is_of_the_family_that_has_probes() -> None:
    assert plan(replace(OPEN, kind=PROBE), "sm_90").spec.kind == PROBE


def test_a_shipped_spec_shows_it() -> None:
    assert load_spec("hgemm_tn").family is None


def test_a_candidate_whose_stages_do_not_fit_is_no_prediction(monkeypatch: pytest.MonkeyPatch) -> None:
    """The family is ranked by the time of what it can be; one that would be fast, and fits nowhere, is nothing."""
    problem = (4096, 4096, 4096)
    assert chosen(OPEN, "sm_90", problem)[0] == "sm90"
    family = FAMILIES["sm90"]

    def search(*asked: Any) -> Iterator[Proposal]:
        first, *_ = family.search(*asked)
        yield replace(first, predicted_us=1.0, fits=False)
        yield replace(first, predicted_us=1e6)

    monkeypatch.setitem(FAMILIES, "sm90", replace(family, search=search))
    found, decision = chosen(OPEN, "sm_90", problem)
    assert found == "sm120"
    assert "1e+06 us predicted" in {each.what: each.why for each in decision.rejected}["sm90"]


@pytest.mark.parametrize("arch", ["sm_80", "sm_90", "sm_120"])
def test_one_stage_is_planned_for_a_problem_by_a_family_that_has_one(arch: str) -> None:
    assert chosen(replace(OPEN, tile=Tile(stages=1)), arch, (100, 72, 88))[0] == "sm80"
    with pytest.raises(SpecError, match=r"tile\.stages: found 1; expected 2 or more"):
        plan(replace(OPEN, tile=Tile(stages=1), family="sm90"), "sm_90", (100, 72, 88))


def test_where_there_are_no_warpgroups_nothing_is_compared_with_them() -> None:
    """Family sm120 keeps the time that its search predicts, and is taken: with a fifth added it would not be."""
    problem = (1056, 312, 528)
    family, decision = chosen(OPEN, "sm_120", problem)
    asked = replace(OPEN, family=family), TARGETS["sm_120"], ProblemShape(*problem)
    first = next(iter(FAMILIES["sm120"].search(*asked)))
    assert family == "sm120"
    assert decision.for_problem.endswith(f"{first.predicted_us:.3g} us estimated")


@pytest.mark.parametrize("problem", [None, (64, 64, 64)])
@pytest.mark.parametrize(
    ("spec", "key", "found"),
    [
        (replace(OPEN, mma=Mma(threads="(16,7):(7,1)")), "mma.threads", "112 threads"),
        (gemm(dtype="f32", tile=Tile(stages=5)), "tile.stages", "5"),
        (
            gemm(align=(4, None, None), tile=Tile((128, 128, 64), 16)),
            "tile.stages",
            "16 stages: 16 x (16,384 +",
        ),
    ],
    ids=["threads, which simt alone has", "types that simt alone has", "an alignment that sm80 takes"],
)
def test_the_refusal_is_of_a_family_that_has_the_keys_and_types(
    spec: GemmSpec, key: str, found: str, problem: tuple[int, int, int] | None
) -> None:
    """Not of an earlier one, which would advise to leave out what the next family needs."""
    with pytest.raises(SpecError) as caught:
        plan(replace(spec, family=None), "sm_90", problem)
    assert caught.value.key == key
    assert found in caught.value.found
    assert " in family " not in caught.value.found


def test_a_blackwell_gets_tensor_memory_by_an_estimate() -> None:
    family, decision = chosen(OPEN, "sm_100", (4096, 4096, 4096))
    assert family == "sm100"
    assert decision.for_problem.endswith("us estimated")
    assert "at an assumed rate" in {each.what: each.why for each in decision.rejected}["sm120"]


def test_calls_get_families_that_have_run() -> None:
    """`matmul` on a Blackwell takes no kernel that no hardware has run; a spec that names the family does."""
    called = plan(OPEN, "sm_100", (4096, 4096, 4096), tried=True)
    assert isinstance(called, GemmPlan)
    assert called.family == "sm120"
    (decision,) = (each for each in called.decisions if each.key == "family")
    why = {each.what: each.why for each in decision.rejected}
    assert "one that has run on hardware" in why["sm100"]
    named = plan(replace(OPEN, family="sm100"), "sm_100", tried=True)
    assert isinstance(named, GemmPlan)
    assert named.family == "sm100"
