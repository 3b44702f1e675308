"""The plan of a probe: the loads of a planned GEMM from shared memory to registers, and nothing after them.

The GEMM's rules decide everything. The probe fills each stage of the GEMM's shared memory, loads each stage's fragments
as the GEMM would, and writes them out, so that they can be compared with what the MMA needs.
"""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from cutegen.contract.launch import REGISTERS, LaunchContract, Parameter, TensorContract
from cutegen.contract.problem import ProblemShape
from cutegen.hardware import Target, dtype
from cutegen.hardware.units import WARP
from cutegen.plan import gemm_plan as texts
from cutegen.plan.families import FAMILIES
from cutegen.plan.gemm_plan import GemmPlan
from cutegen.plan.values.copies import AccessKey
from cutegen.plan.values.decision import Decision, KeyCost
from cutegen.plan.values.gemm_plan import Predictions
from cutegen.plan.values.operand import Wavefronts
from cutegen.plan.values.path import FragmentTable, OperandPath, fragment_table
from cutegen.spec import GemmSpec
from cutegen.support.words import aligned, extents, plural, text_width

USED = ("tile.cta", "mma.", "s2r.", "smem.", "tile.stages")
"""Keys of the GEMM's decisions that the probe's kernel follows."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ProbePlan:
    """A finished plan of a probe. `gemm` is the plan of the GEMM whose loads it executes.

    `predictions` has the wavefronts of one stage's loads and the instructions of the probe's own PTX; the occupancy is
    the GEMM's.
    """

    gemm: GemmPlan
    predictions: Predictions
    launch: LaunchContract
    decisions: tuple[Decision, ...]

    @property
    def spec(self) -> GemmSpec:
        """The requested spec."""
        return self.gemm.spec

    @property
    def target(self) -> Target:
        """The target."""
        return self.gemm.target

    @property
    def problem(self) -> ProblemShape | None:
        """The problem of its GEMM's plan."""
        return self.gemm.problem

    @property
    def kernel_name(self) -> str:
        """Name of the PTX entry, without the suffix."""
        return self.gemm.kernel_name

    @property
    def extents(self) -> tuple[int, int, int]:
        """(M, N, K) of the operands that fill every stage: A is (M,K) and B (N,K)."""
        m, n, k = self.gemm.cta_tile
        return m, n, self.gemm.stages * k

    @property
    def operands(self) -> tuple[OperandPath, ...]:
        """The operands whose loads it probes."""
        return self.gemm.operands

    def fragments(self, operand: OperandPath) -> FragmentTable:
        """Elements that each thread must receive from one stage."""
        return fragment_table(self.gemm.tiled_mma, operand)

    def explain(self, *, everything: bool = False, costs: Sequence[KeyCost] = ()) -> str:
        """Return the `costs` of given keys, the probe's decisions, what it writes, and the cost of its loads."""
        width = text_width()
        blocks = (
            texts.title_lines(self.spec, self.target, self.problem, width),
            *([texts.cost_lines(costs, width)] if costs else ()),
            texts.decision_lines(self.decisions, everything, width),
            ["Registers written (32 bits)", *aligned(self._written(), header=_HEADER, right={1, 2, 3})],
            ["Shared memory read per stage", *aligned(self._read(), header=_READ_HEADER, right={1, 2})],
            texts.instruction_lines(self.predictions.instructions, width),
            ["Resources of its CTA", *aligned(self._resources())],
        )
        return "\n\n".join("\n".join(block) for block in blocks) + "\n"

    def to_json(self) -> dict[str, Any]:
        """The plan as plain tables: the content of an artifact's `plan.json`."""
        table = texts.plan_table(self.gemm)
        return {
            **{key: table[key] for key in _OF_THE_GEMM},
            "values": {x.name: self.fragments(x).values for x in self.operands},
            "wavefronts": {key: table["wavefronts"][key] for key in self.predictions.wavefronts},
            "instructions": dict(sorted(self.predictions.instructions.items())),
            "decisions": [x for x in table["decisions"] if _used(x["key"])],
            "launch": self.launch.to_json(),
        }

    def _written(self) -> list[tuple[str, ...]]:
        tables = [self.fragments(x) for x in self.operands]
        return [
            (f"tCr{x.operand} {extents(x.extents)}", f"{x.registers}", f"{self.gemm.threads}", f"{self.gemm.stages}")
            for x in tables
        ]

    def _resources(self) -> list[tuple[str, ...]]:
        threads, capacity = self.gemm.threads, self.target.smem_per_cta_bytes
        return [
            ("threads", f"{threads} in {plural(threads // WARP, 'warp')}"),
            ("shared memory", f"{self.gemm.smem_bytes:,} of {capacity:,} bytes"),
        ]

    def _read(self) -> list[tuple[str, ...]]:
        return [
            (key, f"{found.predicted:,}", f"{found.ideal:,}", texts.ways(found.ways))
            for key, found in self.predictions.wavefronts.items()
        ]


_OF_THE_GEMM = (
    *("spec", "description", "family", "kind", "target", "tile", "stages", "threads", "smem_bytes"),
    *("mma", "smem", "s2r"),
)
_HEADER = ("fragment (MMA, MMA_X, MMA_K)", "per thread", "threads", "stages")
_READ_HEADER = ("access", "wavefronts", "ideal", "conflicts")


def probed_family() -> str:
    """Name the family whose loads have a probe."""
    return next(family.name for family in FAMILIES.values() if family.mainloop.has_probe)


def plan_probe(gemm: GemmPlan) -> ProbePlan:
    """The probe of a planned GEMM's loads. Raises SpecError for a family that has no probe."""
    if not FAMILIES[gemm.family].mainloop.has_probe:
        raise gemm.spec.error(
            "family",
            found=f'"{gemm.family}", which has no probe',
            expected=f'"{probed_family()}", the only family with a probe',
            fix="leave family out",
        )
    instructions: Counter[str] = Counter()
    for operand in gemm.operands:
        if operand.s2r.by_ldmatrix:  # in the text each k-block once; stages are a loop at run time
            instructions += operand.loads(gemm.tiled_mma)
    wavefronts: dict[str, Wavefronts] = {
        key: gemm.predictions.wavefronts[key] for key in (AccessKey.s2r(x.name) for x in gemm.operands)
    }
    return ProbePlan(
        gemm=gemm,
        predictions=replace(
            gemm.predictions, wavefronts=wavefronts, line_writes={}, sectors={}, instructions=dict(instructions)
        ),
        launch=_launch_contract(gemm),
        decisions=tuple(decision for decision in gemm.decisions if _used(decision.key)),
    )


def _used(key: str) -> bool:
    return key.startswith(USED)


def _launch_contract(gemm: GemmPlan) -> LaunchContract:
    """Return the contract: one CTA, no predicates, no groups, operands as large as the stages.

    The probe reads and writes single elements. It reads B as a call passes it, even if the GEMM reads a transposed
    copy.
    """
    launch = gemm.launch.of_a_call()
    operands = [replace(x, align_bytes=dtype(x.dtype).bytes) for x in launch.operands]
    tables = [TensorContract(REGISTERS[x.name], x.dtype, ("thread", "value"), "value", x.align_bytes) for x in operands]
    return replace(
        launch,
        tensors=(*operands, *tables),
        scalars=(),
        epilogue=(),
        split=None,
        groups=None,
        parameters=(
            *(Parameter(x.name, "ptr") for x in (*operands, *tables)),
            *(Parameter(f"ld{x.name}", "i64") for x in operands),
        ),
    )
