"""Rule for groups: products of one launch whose sizes the device has, and what a kernel of them cannot have."""

from dataclasses import replace
from typing import Any

from cutegen.contract.problem import MAX_BATCH, ProblemShape
from cutegen.hardware import dtype
from cutegen.hardware.factor_atoms import ATOM_ROWS
from cutegen.plan.values.decision import Decision
from cutegen.plan.values.gemm_plan import MmaPlan
from cutegen.spec import MODES, GemmSpec
from cutegen.spec.parts import DEFAULT_ALIGN_BYTES
from cutegen.support.words import extents, plural

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
    """Raise SpecError for slices of K, and for a cluster, or a pair, that groups cannot have, in the kernel's terms."""
    assert spec.problem.groups is not None
    if spec.schedule.slices > 1:
        raise spec.error(
            "schedule.split_k",
            found=f"{spec.schedule.split_k} with groups",
            expected="1: only the device knows how many k-tiles and tiles there are to share",
            fix="leave schedule.split_k out",
        )
    of, along = spec.problem.groups.of, dict(zip("mnk", mma.cluster, strict=True))
    if of == "k" and mma.atom.ctas > 1:
        raise spec.error(
            "mma.cta_group",
            found=f"{mma.atom.ctas} with groups of k",
            expected="1: a CTA sets what follows a group in its own shared memory to 0, and multiplies that alone",
            fix="leave mma.cta_group out",
        )
    most = {"m": mma.atom.ctas}.get(of, 1)
    if along[of] > most:
        cluster = tuple(most if mode == of else along[mode] for mode in "mn")
        raise spec.error(
            "schedule.cluster",
            found=f"{extents(mma.cluster[:2])} with groups of the kernel's {of}",
            expected=f"{most} along {of}: CTAs of a cluster would have none of a group's last rows or columns",
            fix=f"schedule.cluster = {list(cluster)}, or leave it out",
        )
    _check_atoms(spec, mma)


def _check_atoms(spec: GemmSpec, mma: MmaPlan) -> None:
    """Raise SpecError for tiles by which packed groups with atoms of factors are not counted in atoms."""
    grouped, factors = spec.problem.groups, spec.problem.scale_a
    if grouped is None or factors is None or not factors.in_atoms or grouped.layout == "padded" or grouped.of == "k":
        return
    index = "mnk".index(grouped.of)
    rows = mma.cta_tile[index] * mma.cluster[index]
    if rows != ATOM_ROWS:
        raise spec.error(
            "tile.cta",
            found=f"{extents(mma.cta_tile)}, in clusters of {extents(mma.cluster[:2])}",
            expected=f"{ATOM_ROWS} along the kernel's {grouped.of}, and not {rows}: each group begins an atom of "
            f"{ATOM_ROWS} factors, which the tiles before it count",
            fix=f"{grouped.of.upper()} = {ATOM_ROWS} of one CTA",
        )


def check_one_product(spec: GemmSpec, problem: ProblemShape | None) -> None:
    """Raise SpecError for groups of a batch, and for a problem of groups that the spec does not have."""
    if spec.problem.groups is None and problem is not None and problem.groups is not None:
        raise spec.error(
            KEY,
            found=f"a problem of {plural(problem.groups, 'group')}, and none in the spec",
            expected="both, or neither",
            fix='problem.groups = { of = "m" }, or a problem without groups',
        )
    if spec.problem.groups is None or problem is None or problem.batch == 1:
        return
    raise spec.error(
        KEY,
        found=f"groups, and a batch of {problem.batch}",
        expected="a batch of 1: groups take its place in a launch",
        fix="leave the batch out; padded groups have a matrix each",
    )


def mean_product(spec: GemmSpec, problem: ProblemShape) -> ProblemShape:
    """Return the problem to choose tiles for: with groups a batch of as many products of their mean size.

    >>> from cutegen.spec import load_spec
    >>> str(mean_product(load_spec("sm80_bf16_grouped"), ProblemShape(512, 1536, 2048, groups=128)))
    '128 x 4x1536x2048'
    """
    if spec.problem.groups is None:
        return problem
    groups = spec.problem.groups.value
    mean = replace(problem, batch=min(problem.products, MAX_BATCH), groups=None)
    if groups.layout == "padded":
        return mean
    return replace(mean, **{groups.of: max(1, -(-problem.extents[groups.of] // problem.products))})


def beginning_anywhere(spec: GemmSpec) -> GemmSpec:
    """Return the spec with one element as the alignment of each matrix that packs groups along its contiguous mode."""
    if (grouped := spec.problem.groups) is None:
        return spec
    problem, parts = spec.problem, dict[str, Any]()
    for name, modes in MODES.items():
        operand = problem.operand(name)
        if grouped.value.packs(modes) and operand.major == grouped.of:
            parts[name] = replace(operand, align=dtype(operand.dtype).bytes)
    for name in ("residual", "aux"):
        if (extra := getattr(problem, name)) is not None:
            matrix = problem.matrix(name)
            if grouped.value.packs(MODES["c"]) and matrix.major == grouped.of:
                parts[name] = replace(extra, align=dtype(matrix.dtype).bytes)
            elif extra.align is None and "c" in parts:
                parts[name] = replace(extra, align=matrix.align or DEFAULT_ALIGN_BYTES)
    return replace(spec, problem=replace(problem, **parts)) if parts else spec


def decide_groups(spec: GemmSpec) -> tuple[Decision, ...]:
    """Return the decision on groups, if the spec has them."""
    if (grouped := spec.problem.groups) is None:
        return ()
    why = f"{_BELONG[grouped.of]}; {_PLACED[grouped.layout]}, where a kernel makes any int32 safe"
    return (Decision.as_given(KEY, f"of {grouped.of}, {grouped.layout}", why),)
