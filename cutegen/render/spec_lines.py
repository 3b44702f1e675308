"""The spec at the end of a kernel, as comments: the reference for its constants after edits.

It leaves open no key that depends on a problem, so that the plan can be made again without the problem.
"""

import textwrap
from dataclasses import replace
from typing import Any

from cutegen.errors import SpecError
from cutegen.plan import GemmPlan, ProbePlan
from cutegen.plan import plan as plan_again
from cutegen.plan.mainloop.l2 import EVICT_FIRST
from cutegen.plan.schedule.cluster import CLUSTER
from cutegen.plan.schedule.consumers import COOPERATIVE, PINGPONG
from cutegen.render.python_text import LINE_WIDTH
from cutegen.spec import G2s, GemmSpec, Raster, Tile
from cutegen.spec.families import FAMILIES
from cutegen.spec.file import parse_spec, spec_table
from cutegen.support.toml_text import toml_key, toml_value

_TITLE = "# The spec, by which `cutegen run` reads this file"
_INDENT = "#    "
_CONTINUED = "#        "
_COMPLETE = ("problem", "tile", "mma", "smem", "g2s", "s2r", "epilogue", "schedule")


def spec_lines(plan: GemmPlan | ProbePlan) -> tuple[str, ...]:
    """Return the block as lines without line ends."""
    spec = settled_spec(plan.gemm if isinstance(plan, ProbePlan) else plan)
    lines = [_TITLE]
    for name, value in spec_table(replace(spec, kind=plan.spec.kind, description="")).items():
        rows = {f"{name}.{toml_key(k)}": v for k, v in value.items()} if name in _COMPLETE else {name: value}
        for key, each in rows.items():
            lines += textwrap.wrap(
                f"{key} = {toml_value(each)}",
                LINE_WIDTH,
                initial_indent=_INDENT,
                subsequent_indent=_CONTINUED,
                break_long_words=False,
                break_on_hyphens=False,
            )
    return tuple(lines)


def written_spec(text: str, name: str, where: str) -> GemmSpec | None:
    """Return the spec of a kernel's text, for a kernel of this name; None if there is none. Raises SpecError."""
    _, title, block = text.rpartition(f"\n{_TITLE}\n")
    if not title:
        return None
    lines: list[str] = []
    for line in block.splitlines():
        if line.startswith(_CONTINUED) and lines:
            lines[-1] += " " + line[len(_CONTINUED) :]
        elif line.startswith(_INDENT):
            lines.append(line[len(_INDENT) :])
        else:
            break
    return parse_spec("\n".join(lines), file=where, name=name)


def settled_spec(plan: GemmPlan) -> GemmSpec:
    """Return the plan's spec with every key filled in that depends on a problem."""
    spec = _filled(plan)
    # Stages that a spec gives leave the rest of shared memory to C, which may then be stored another way.
    may_differ = len(plan.roles) > 1 and (plan.epilogue.smem is None or plan.mma.accumulator.promotion)
    if plan.spec.tile.stages is None and may_differ and not _stores_alike(spec, plan):
        return replace(spec, tile=Tile(plan.cta_tile))
    return spec


def _stores_alike(spec: GemmSpec, plan: GemmPlan) -> bool:
    try:
        again = plan_again(spec, plan.target)
    except SpecError:
        return False
    return isinstance(again, GemmPlan) and again.epilogue == plan.epilogue


def _filled(plan: GemmPlan) -> GemmSpec:
    spec, without = replace(plan.spec, family=None), FAMILIES[plan.family].without
    split = plan.split_k

    def known(key: str, value: Any) -> Any:
        """Return `value`, or nothing for a key that the family does not use."""
        return None if key in without else value

    (m, n, k), order, schedule = plan.mma.cluster, plan.scheduler.order, spec.schedule
    filled: dict[str, Any] = {
        "raster": Raster(order.along, order.group, order.zigzag),
        "split_k": split.slices if split else None if schedule.split_k == 1 else schedule.split_k,
        "reduction": known("schedule.reduction", _reduction(plan)),
        "consumers": known("schedule.consumers", PINGPONG if plan.mma.role.alternates else COOPERATIVE),
        "cluster": known("schedule.cluster", (m, n, k) if k > 1 else (m, n)),
        "swap": True if plan.swapped else schedule.swap,
    }
    return replace(
        spec,
        family=plan.family,
        tile=Tile(plan.cta_tile, plan.stages),
        mma=replace(
            spec.mma,
            cta_group=known("mma.cta_group", plan.atom.ctas),
            atom=known("mma.atom", plan.atom.name),
            atom_layout=known("mma.atom_layout", plan.atoms_mnk),
        ),
        g2s=_asked_of_l2(plan),
        schedule=replace(schedule, **filled),
    )


def _asked_of_l2(plan: GemmPlan) -> G2s:
    """Return the spec's copies, with the keys of the L2 cache."""
    g2s = plan.spec.g2s
    copies = {name: g2s.of(name) for name in (*plan.evicted_first, *(each.operand for each in plan.prefetched))}
    for name in plan.evicted_first:
        copies[name] = replace(copies[name], l2=EVICT_FIRST)
    for each in plan.prefetched:
        copies[each.operand] = replace(copies[each.operand], prefetch=each.k_tiles)
    return replace(g2s, a=copies.get("a", g2s.a), b=copies.get("b", g2s.b))


def _reduction(plan: GemmPlan) -> str | None:
    if plan.split_k is None:  # without a problem there are no slices to add
        return None
    if plan.split_k.atomics:
        return "atomics"
    return CLUSTER if plan.mma.cluster[2] > 1 else "workspace"
