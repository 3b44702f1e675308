"""`show SPEC s2r`: the copies from shared memory to fragments."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

from cutegen.algebra import format_layout, offsets
from cutegen.cli.views.registers import holds, register_lines
from cutegen.cli.views.view import View, named_layouts, phase_header, phase_rows, titled
from cutegen.contract.problem import ProblemShape
from cutegen.hardware.units import WARP
from cutegen.plan import GemmPlan
from cutegen.plan.explain import ways
from cutegen.plan.values.accesses import AccessKey
from cutegen.plan.values.fragment_table import fragment_table
from cutegen.plan.values.gemm_plan import OperandPlan
from cutegen.plan.values.warp_load import first_fragment_load


def s2r(plan: GemmPlan, thread: int, problem: ProblemShape) -> View:
    """The chosen instruction and the rejected ones, thread-value layouts, who addresses what, what `thread` gets."""
    blocks: list[list[str]] = []
    table: dict[str, Any] = {"spec": plan.spec.name, "thread": thread}
    for operand in (plan.a, plan.b):
        fragment = fragment_table(plan.tiled_mma, operand)
        blocks += [*_blocks(plan, operand, thread // WARP), register_lines(fragment, operand.modes, thread)]
        table[operand.name] = {**_table(plan, operand), "holds": holds(fragment, thread)}
    return View(tuple(blocks), table)


def _blocks(plan: GemmPlan, operand: OperandPlan, warp: int) -> list[list[str]]:
    x = operand.name.upper()
    found = plan.predictions.wavefronts[AccessKey.s2r(operand.name)]
    facts = [
        ("atom", operand.fragment_copy.atom.name),
        ("instruction", operand.fragment_copy.instruction),
        ("wavefronts", f"{found.predicted:,} of at least {found.ideal:,}, {ways(found.ways)}"),
        *(("rejected", f"{rejected.what}: {rejected.why}") for rejected in operand.fragment_copy.rejected),
    ]
    return [
        titled(f"{x} from shared memory to registers, each k-tile", facts),
        named_layouts("Thread and value to column-major coordinate in the tiled MMA's tile", _tv_layouts(operand)),
        titled(
            f"First load of warp {warp}: what its lanes address, phase by phase",
            _phases(plan, operand, warp),
            header=phase_header(operand.modes),
            right={1},
        ),
    ]


def _tv_layouts(operand: OperandPlan) -> dict[str, str]:
    tiled_copy = operand.fragment_copy.tiled_copy
    return {
        "get_layoutS_TV()": format_layout(tiled_copy.layout_src_tv),
        "get_layoutD_TV()": format_layout(tiled_copy.layout_dst_tv),
    }


def _phases(plan: GemmPlan, operand: OperandPlan, warp: int) -> list[tuple[str, ...]]:
    load = first_fragment_load(plan.tiled_mma, operand, warp)
    placed = offsets(operand.smem.layout_of_one_stage)[load.addressed] * operand.dtype.bytes
    return phase_rows(placed, load.addressed, operand.tile[0], load.access_bytes)


def _table(plan: GemmPlan, operand: OperandPlan) -> dict[str, Any]:
    found = plan.predictions.wavefronts[AccessKey.s2r(operand.name)]
    return {
        **operand.fragment_copy.to_json(),
        "layouts": _tv_layouts(operand),
        "wavefronts": asdict(found),
    }
