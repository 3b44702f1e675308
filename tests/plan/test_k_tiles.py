"""K-tiles of 256 bytes, and what promoted sums wait for: the page's figures against stored times of an H100."""

from __future__ import annotations

import json
from collections.abc import Iterator

import pytest

from cutegen.contract.problem import ProblemShape
from cutegen.hardware import GPUS, target
from cutegen.plan import swapped
from cutegen.plan.search import warpgroups
from cutegen.plan.search.warpgroup_model import estimate
from cutegen.plan.search.warpgroup_rows import H200, MEASURED
from cutegen.spec import GemmSpec, Operand, Problem
from tests.gpu.measured import STORED, TORCH, geometric_mean
from tests.gpu.settings import Setting, parsed
from tests.gpu.sweep_kernels import Shape, shape_of
from tests.plan.pages import words_of

PAGE = words_of("lab/tile_model.md")
JOINED = json.loads(STORED.with_name("h100_k_tiles.json").read_text())["us"]
PROMOTED = {
    shape_of(text): us for text, us in json.loads(STORED.with_name("h100_promoted.json").read_text())["us"].items()
}
FITTED = 15
"""Problems that the corrections of promoted sums were made from, the first ones; the others were drawn behind that."""
SPEC = GemmSpec(
    family="sm90",
    problem=Problem(a=Operand("e4m3", "k"), b=Operand("e4m3", "k"), c=Operand("f16", "n"), accumulator="f32"),
)


def joined() -> Iterator[tuple[Setting, float]]:
    """Each kernel with two k-tiles in one, and its time over that with k-tiles of a line."""
    for times in JOINED.values():
        for name, (line_us, joined_us) in times.items():
            yield parsed(name.replace("x64_", "x128_", 1)), joined_us / line_us


def test_k_tiles_of_256_bytes_gain_where_five_stages_fit() -> None:
    alone = [(setting.stages or 0, share) for setting, share in joined() if setting.slices == 1]
    five = [share for stages, share in alone if stages >= warpgroups.JOINED_STAGES]
    said = f"{geometric_mean(five):.2f} times as long if five or more stages of them fit"
    assert said in PAGE
    assert f"{min(five):.2f} to {max(five):.2f}" in PAGE
    assert f"{geometric_mean([share for stages, share in alone if stages == 4]):.2f} with four stages" in PAGE
    three = [share for stages, share in alone if stages == 3]
    assert f"{min(three):.1f} to {max(three):.1f} with three" in PAGE
    slices = [share for setting, share in joined() if setting.slices > 1]
    assert geometric_mean(slices) == pytest.approx(1, abs=0.02)


def predicted_us(setting: Setting, problem: Shape) -> float:
    """By the corrections of promoted sums; infinite for a kernel that is not compared."""
    shape, to = ProblemShape(*problem), target("sm_90")
    for row, candidate in warpgroups._candidates(SPEC, to, shape, MEASURED):
        clustered = row.cluster[2] > 1
        is_it = (row.cta, row.consumers, row.cluster[:2], row.slices, row.swap) == (
            setting.cta,
            setting.consumers,
            setting.cluster,
            setting.slices,
            setting.swap,
        )
        if is_it and clustered == (setting.reduction == "cluster"):
            multiplied = swapped.shape_multiplied(shape) if row.swap else shape
            return estimate(warpgroups.work_of(SPEC, to, candidate, row), multiplied, GPUS["sm_90"], H200).us
    return float("inf")


def regret(problem: Shape) -> float:
    times = {parsed(name): us for name, us in PROMOTED[problem].items() if name != TORCH}
    return times[min(times, key=lambda setting: predicted_us(setting, problem))] / min(times.values())


def test_the_page_says_how_good_the_choice_for_promoted_sums_is() -> None:
    found = [regret(problem) for problem in PROMOTED]
    fitted, behind = geometric_mean(found[:FITTED]), geometric_mean(found[FITTED:])
    assert f"the selected kernel takes {fitted:.2f} times as long as the best of those measured" in PAGE
    assert f"On {len(found) - FITTED} problems drawn afterwards it takes {behind:.2f}, and" in PAGE
    assert max(found) < 1.25
