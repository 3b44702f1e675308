"""Rule for the stages: one k-tile at a time, or the next one loaded to registers meanwhile."""

from __future__ import annotations

from cutegen.hardware import Instruction, Target
from cutegen.plan.rules.pipeline import pipeline_bytes, too_much
from cutegen.plan.values.decision import Choice, Decision, Rejected
from cutegen.spec import GemmSpec
from cutegen.spec.families import family_with

WORDS = {
    1: "a k-tile is copied, then multiplied, with a barrier after each; loads from global memory are not overlapped",
    2: "the next k-tile is loaded to registers while this one is multiplied, with one barrier per k-tile",
}


def choose_stages(spec: GemmSpec, target: Target, stage_bytes: tuple[int, ...]) -> Choice[int]:
    """Choose two stages if they fit. Raises SpecError for numbers other than one and two, and for what does not fit."""
    given = spec.tile.stages
    if given not in (None, *WORDS):
        raise spec.error(
            "tile.stages",
            found=str(given),
            expected="1 or 2: a thread's registers hold one k-tile in flight",
            fix=f'2 is the nearest; family = "{family_with(Instruction.CP_ASYNC)}" has deeper pipelines with cp.async',
        )
    fitting = [stages for stages in WORDS if pipeline_bytes(stage_bytes, stages) <= target.smem_per_cta_bytes]
    if not fitting or given not in (None, *fitting):
        raise too_much(spec, target, stage_bytes, given or 1, fitting)
    if given is not None:
        return Choice(given, Decision.as_given("tile.stages", str(given), WORDS[given]))
    chosen = fitting[-1]
    why_not = {1: WORDS[1], 2: f"{pipeline_bytes(stage_bytes, 2):,} bytes > {target.smem_per_cta_bytes:,}"}
    rejected = tuple(Rejected(f"{x} stage{'s' * (x > 1)}", why_not[x]) for x in WORDS if x != chosen)
    return Choice(chosen, Decision("tile.stages", str(chosen), WORDS[chosen], rejected=rejected))
