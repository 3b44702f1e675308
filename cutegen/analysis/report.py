"""One kernel on one problem: the plan's predictions and the results of compiler, CPU executor and GPU."""

from collections.abc import Sequence
from dataclasses import dataclass

from cutegen.analysis.limits import KTileCost, Limit, k_tile_cost, k_tiles_of_a_cta, limits, rates_of
from cutegen.analysis.sass import MULTIPLIES, Loop, main_loop
from cutegen.bench.ceilings import Ceilings
from cutegen.bench.peak_kernel import MmaTypes
from cutegen.build import Artifact, disassemble
from cutegen.contract.problem import ProblemShape
from cutegen.errors import OutsideError
from cutegen.plan import GemmPlan
from cutegen.plan.predict import predict_occupancy
from cutegen.plan.values.gemm_plan import Occupancy
from cutegen.run import Kernel
from cutegen.verify import random_extras, random_operands
from cutegen.verify.counts import LaunchCounts, count_launch


@dataclass(frozen=True, slots=True, kw_only=True)
class Report:
    """Static knowledge about a kernel.

    `occupancy` follows from the compiler's registers; the plan's own is an estimate. `loop` is None without a
    disassembly, and `no_loop` says why.
    """

    plan: GemmPlan
    artifact: Artifact
    problem: ProblemShape
    occupancy: Occupancy
    loop: Loop | None
    no_loop: str
    cost: KTileCost

    @property
    def types(self) -> MmaTypes:
        """The types of the MMA atom."""
        atom = self.plan.atom
        return MmaTypes.of(atom.a_dtype.name, atom.c_dtype.name, atom.instruction)

    @property
    def ctas(self) -> int:
        """CTAs with a tile or a slice: a persistent CTA counts once per tile, one that only keeps an SM free never."""
        return self.plan.launch.tiles(self.problem) * self.plan.slices

    @property
    def k_tiles(self) -> int:
        """The turns of a CTA's main loop; those of the longest slice if K is split."""
        return k_tiles_of_a_cta(self.plan, self.problem)

    def waves(self, sms: int) -> float:
        """Return how often the CTAs fill a GPU of `sms` SMs; a partial last wave takes as long as a full one."""
        return self.ctas / (sms * self.occupancy.ctas_per_sm)

    def limits(self, ceilings: Ceilings | None = None) -> tuple[Limit, ...]:
        """Return cycles of each resource for one k-tile, the bottleneck first; with measured rates if available."""
        rates = rates_of(self.plan)
        if ceilings is None:
            return limits(self.cost, rates)
        hbm_bytes_per_cycle = ceilings.read_bytes_per_s / ceilings.clock_hz(self.types) / ceilings.sms
        rate = ceilings.of(self.types).flops_per_cycle
        return limits(self.cost, rates.having(self.plan.atom.instruction, rate), hbm_bytes_per_cycle)


@dataclass(frozen=True, slots=True)
class Execution:
    """Counts of the CPU executor on a problem small enough for it."""

    problem: ProblemShape
    counts: LaunchCounts


def report(plan: GemmPlan, artifact: Artifact, problem: ProblemShape) -> Report:
    """Return predictions and the compiler's results. Needs no GPU."""
    manifest = artifact.manifest
    loop, no_loop = _loop(artifact, MULTIPLIES[plan.atom.instruction])
    return Report(
        plan=plan,
        artifact=artifact,
        problem=problem,
        occupancy=predict_occupancy(plan.target, plan.threads, plan.smem_bytes, manifest.registers),
        loop=loop,
        no_loop=no_loop,
        cost=k_tile_cost(plan, problem, None if loop is None else len(loop.instructions) / plan.loop.k_tiles_per_turn),
    )


def execute(plan: GemmPlan, kernel: Kernel) -> Execution:
    """Execute the kernel's PTX on one CTA tile, with one k-tile more than there are stages. Raises PtxFault."""
    (m, n), k = plan.launch.cta_tile, plan.cta_tile[2]
    problem = ProblemShape(m, n, (plan.stages + 1) * k)
    a, b, out = random_operands(kernel.contract, problem.m, problem.n, problem.k, seed=0)
    extras = random_extras(kernel.contract, problem.m, problem.n, k=problem.k, seed=0)
    launch = kernel.execute(a, b, out=out, **extras)
    return Execution(problem, count_launch(plan, kernel.call_size(a, b, out, **extras), launch))


def _loop(artifact: Artifact, multiply: Sequence[str]) -> tuple[Loop | None, str]:
    try:
        return main_loop(disassemble(artifact.cubin), artifact.manifest.entry, multiply), ""
    except OutsideError as error:
        return None, str(error)
