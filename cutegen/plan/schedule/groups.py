"""Rule for groups: products of one launch whose sizes the device has, and what a kernel of them cannot have."""

from __future__ import annotations

from cutegen.contract.problem import ProblemShape
from cutegen.plan.values.decision import Decision
from cutegen.plan.values.gemm_plan import MmaPlan
from cutegen.spec import GemmSpec
from cutegen.support.words import extents

KEY = "problem.groups"
_BELONG = {
    "m": "rows of A and C belong to groups, each with a matrix of B",
    "n": "columns of B and C belong to groups, each with a matrix of A",
    "k": "K is cut into groups, each with a matrix of C",
}
_PLACED = {
    "packed": "groups follow one another, and the device has their ends",
    "padded": "every group has room for the whole extent, and the device has their sizes",
}


def check_groups(spec: GemmSpec, mma: MmaPlan) -> None:
    """Raise SpecError if the kernel splits K, or if a cluster has tiles along the grouped mode, in its own terms."""
    assert spec.problem.groups is not None
    if spec.schedule.slices > 1:
        raise spec.error(
            "schedule.split_k",
            found=f"{spec.schedule.split_k} with groups",
            expected="1: only the device knows how many k-tiles and tiles there are to share",
            fix="leave schedule.split_k out",
        )
    along = dict(zip("mnk", mma.cluster, strict=True))
    if along.get(spec.problem.groups.of, 1) > 1:
        cluster = tuple(1 if mode == spec.problem.groups.of else along[mode] for mode in "mn")
        raise spec.error(
            "schedule.cluster",
            found=f"{extents(mma.cluster[:2])} with groups of the kernel's {spec.problem.groups.of}",
            expected=f"1 along {spec.problem.groups.of}: tiles of one cluster would be those of two groups",
            fix=f"schedule.cluster = {list(cluster)}, or leave it out",
        )


def check_one_product(spec: GemmSpec, problem: ProblemShape | None) -> None:
    """Raise SpecError for groups of a batch."""
    if spec.problem.groups is None or problem is None or problem.batch == 1:
        return
    raise spec.error(
        KEY,
        found=f"groups, and a batch of {problem.batch}",
        expected="a batch of 1: groups take its place in a launch",
        fix="leave the batch out; padded groups have a matrix each",
    )


def decide_groups(spec: GemmSpec) -> tuple[Decision, ...]:
    """Return the decision on groups, if the spec has them."""
    if (grouped := spec.problem.groups) is None:
        return ()
    why = f"{_BELONG[grouped.of]}; {_PLACED[grouped.layout]}, where a kernel makes any int32 safe"
    return (Decision.as_given(KEY, f"of {grouped.of}, {grouped.layout}", why),)
