"""A family of kernels is a composition: an MMA, its main loop, and the schedule of tiles over CTAs.

Each part makes its own decisions (`cutegen/plan/parts.py`); `Family.plan` calls them in one order for all families.
"""

from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace

from cutegen.algebra import Extents
from cutegen.contract.problem import ProblemShape
from cutegen.errors import SpecError
from cutegen.hardware import Target
from cutegen.plan import swapped
from cutegen.plan.contract import kernel_name, launch_contract
from cutegen.plan.epilogue.pairs import check_pairs
from cutegen.plan.epilogue.quantized import check_quantized
from cutegen.plan.epilogue.store import choose_fusion
from cutegen.plan.gemm_plan import GemmPlan
from cutegen.plan.operands.staging import check_stage
from cutegen.plan.parts import CountedPlan, Draft, Mainloop, Mma, Schedule
from cutegen.plan.predict import predict_line_writes, predict_occupancy, predict_sectors, predict_wavefronts
from cutegen.plan.prove import prove
from cutegen.plan.schedule.cluster import decide_tiles
from cutegen.plan.schedule.groups import check_one_product, decide_groups, mean_product
from cutegen.plan.schedule.order import tiles_in_flight
from cutegen.plan.search.problem import Proposal, first_that_holds, least_time, timed
from cutegen.plan.values.decision import Choice
from cutegen.plan.values.gemm_plan import PredictedTime, Predictions, step_opcodes
from cutegen.spec import GemmSpec, Tile
from cutegen.spec.families import PartKeys

CtaTileRule = Callable[[GemmSpec, Target], Choice[Extents]]
Search = Callable[[GemmSpec, Target, ProblemShape], Iterable[Proposal]]


def no_search(spec: GemmSpec, target: Target, problem: ProblemShape) -> Iterable[Proposal]:
    """Return no candidates: the rules choose."""
    return ()


def _searched(search: Search, spec: GemmSpec, target: Target, problem: ProblemShape) -> Iterable[Proposal]:
    """Return the candidates for a problem; with groups those for products of their mean size, whose K is not split."""
    if spec.problem.groups is None:
        return search(spec, target, problem)
    asked = spec.schedule.split_k
    whole = replace(spec, schedule=replace(spec.schedule, split_k=asked or 1))
    found = search(whole, target, mean_product(spec, problem))
    return (replace(one, spec=replace(one.spec, schedule=replace(one.spec.schedule, split_k=asked))) for one in found)


@dataclass(frozen=True, slots=True, kw_only=True)
class Family:
    """A composition with its name in specs.

    `cta_tile` is the rule for the CTA tile, `search` gives the candidates for a problem, and `space` those for tuning,
    if there are more. `parts` are files of `templates/`, or texts of that form, that add to the kernel's text at the
    points of its skeleton (`cutegen/render/environment.py`).
    """

    name: str
    mma: Mma
    mainloop: Mainloop
    schedule: Schedule
    cta_tile: CtaTileRule
    search: Search = no_search
    space: Search | None = None
    parts: tuple[str, ...] = ()

    @property
    def keys(self) -> tuple[PartKeys, ...]:
        """The parts as specs know them: MMA, main loop, schedule."""
        return self.mma.keys, self.mainloop.keys, self.schedule.keys

    def tuned_over(self, spec: GemmSpec, target: Target, problem: ProblemShape) -> Iterable[Proposal]:
        """Return the candidates for tuning, the fastest by predicted time first."""
        return _searched(self.space or self.search, spec, target, problem)

    def plan(self, spec: GemmSpec, target: Target, problem: ProblemShape | None = None) -> GemmPlan:
        """Decide everything that `spec` leaves open, for `target` and a problem. Raises SpecError if that fails."""
        return self.plan_first(self.proposed(spec, target, problem), spec, target, problem)

    def proposed(self, spec: GemmSpec, target: Target, problem: ProblemShape | None) -> Iterable[Proposal]:
        """Return the candidates for a problem, the fastest by predicted time first; none without one.

        Raises SpecError for a target or a spec that this family does not support.
        """
        self.check(spec, target, problem)
        return _searched(self.search, spec, target, problem) if problem else ()

    def time_of(self, plan: GemmPlan, problem: ProblemShape) -> PredictedTime:
        """Return the time of a plan of this family for any problem, on the reference GPU of the plan's target.

        Without a performance model, or where the model does not know such a kernel, it is the least that rates allow.
        """
        if plan.predicted_time is not None and plan.problem == problem:
            return plan.predicted_time
        try:
            proposed = self.proposed(_settled(plan), plan.target, problem)
            first = next((one for one in proposed if one.fits), None)
        except SpecError:  # the spec has no product like this one, such as groups without their number
            first = None
        return least_time(plan, problem) if first is None else timed(plan, first)

    def plan_first(
        self, proposed: Iterable[Proposal], spec: GemmSpec, target: Target, problem: ProblemShape | None
    ) -> GemmPlan:
        """Return the plan of the first of `proposed` that the rules accept, else of `spec`. Raises SpecError."""
        found = first_that_holds(spec, proposed, lambda filled: self._exchange(filled, target, problem))
        if problem is None or found.predicted_time is not None:
            return found
        return replace(found, predicted_time=least_time(found, problem))

    def check(self, spec: GemmSpec, target: Target, problem: ProblemShape | None) -> None:
        """Raise SpecError for a target or a spec that this family does not support, before anything is chosen."""
        check_one_product(spec, problem)
        self.mainloop.check(spec, target, self.name)
        self.schedule.check(spec, problem, self.name)
        self.mma.check(spec, target)

    def _exchange(self, spec: GemmSpec, target: Target, problem: ProblemShape | None) -> GemmPlan:
        """Plan the kernel of the product that the spec requests, or of the swapped one."""
        check_pairs(spec)
        check_quantized(spec)
        if not spec.schedule.swap:
            return self._decide(spec, target, problem)
        shape = swapped.shape_multiplied(problem) if problem else None
        exchanged = self._decide(swapped.as_multiplied(spec), target, shape)
        return swapped.as_called(exchanged, spec, problem)

    def _decide(self, asked: GemmSpec, target: Target, problem: ProblemShape | None) -> GemmPlan:
        """Apply the rules in order: each sees only what earlier ones settled."""
        spec = self.mainloop.as_copied(asked)
        cta_tile = self.cta_tile(spec, target)
        # A tile that does not fit one stage is refused before tables are made of it.
        check_stage(spec, target, cta_tile.value, self.mainloop.reserved_bytes)
        mma, mma_decisions = self.mma.choose(spec, target, cta_tile)
        split_k, split_decisions = self.schedule.split(spec, mma)
        operands = self.mainloop.operands(spec, mma, target)
        roles = self.mainloop.roles(spec, target, mma, self.mma.registers(target, mma, operands))
        fusion, fusion_decisions = choose_fusion(spec, by_rows=mma.accumulator.drained_by_rows)
        memory = self.mainloop.memory(Draft(spec, target, mma, operands, fusion, roles))
        stages, epilogue = memory.stages.value, memory.epilogue.value
        paths = tuple(each.plan(stages) for each in operands)

        threads = sum(role.threads for role in roles.roles)
        occupancy = predict_occupancy(target, threads, memory.regions.bytes, roles.registers_at_launch)
        mean = mean_product(spec, problem) if problem else None
        in_flight = tiles_in_flight(mean, target, mma, paths, occupancy, split_k)
        scheduler = self.schedule.choose(spec, mma, split_k, in_flight, occupancy)
        policy = self.mainloop.policy(spec, target, mma, split_k, in_flight)
        loop = self.mainloop.loop(roles, memory, mma, paths)
        if scheduler.value.source.loops:
            loop = loop.over_tiles()
        if scheduler.value.source.searched:
            loop = loop.in_one_place()
        written = loop.written(lambda step: step_opcodes(step, paths, mma, target))
        counted = CountedPlan(operands=paths, epilogue=epilogue, mma=mma, target=target, groups=scheduler.value.groups)
        instructions = Counter({**self.mma.counted(written, counted), **epilogue.opcodes()})
        instructions.update(dict(scheduler.value.source.opcodes))
        copy_choices = (choice for hop in ("g2s", "s2r", "smem") for choice in (getattr(x, hop) for x in operands))
        plan = GemmPlan(
            spec=spec,
            family=self.name,
            target=target,
            problem=problem,
            kernel_name=kernel_name(spec),
            mma=mma,
            stages=stages,
            evicted_first=policy.evicted_first,
            prefetched=policy.prefetched,
            pace=policy.pace,
            operands=paths,
            epilogue=epilogue,
            scheduler=scheduler.value,
            loop=loop,
            memory=memory.regions,
            predictions=Predictions(
                wavefronts=predict_wavefronts(paths, epilogue, split_k, mma.cta_tile),
                line_writes=predict_line_writes(paths),
                sectors=predict_sectors(paths, epilogue, split_k, mma),
                instructions=dict(instructions),
                occupancy=occupancy,
            ),
            launch=launch_contract(
                spec,
                paths,
                epilogue,
                mma,
                scheduler.value,
                threads=threads,
                smem_bytes=memory.regions.bytes,
                programmatic=policy.programmatic,
                ahead=policy.ahead,
                addressed=(*(each.operand for each in policy.prefetched), *epilogue.addressed),
            ),
            decisions=(
                *decide_groups(spec),
                *decide_tiles(spec),
                *mma_decisions,
                *(choice.decision for choice in (*copy_choices, memory.stages)),
                *policy.of_l2,
                *fusion_decisions,
                *(choice.decision for choice in (memory.epilogue, scheduler)),
                *split_decisions,
                *policy.of_time,
                *roles.decisions,
                *self.schedule.decisions(mma, scheduler.value, in_flight),
            ),
        )
        prove(plan)
        return replace(plan, spec=asked)


def _settled(plan: GemmPlan) -> GemmSpec:
    """Return the plan's spec with the keys given that performance models look at."""
    spec = swapped.as_read(plan.spec)
    decided = {decision.key for decision in plan.decisions}
    schedule = replace(spec.schedule, split_k=plan.slices if "schedule.split_k" in decided else spec.schedule.split_k)
    if "schedule.consumers" in decided:
        schedule = replace(schedule, consumers="pingpong" if plan.mma.role.alternates else "cooperative")
    if "schedule.cluster" in decided:
        m, n, k = plan.mma.cluster
        schedule = replace(schedule, cluster=(m, n) if k == 1 else (m, n, k))
    if plan.swapped:
        schedule = replace(schedule, swap=True)
    mma = replace(spec.mma, atom_layout=plan.atoms_mnk) if "mma.atom_layout" in decided else spec.mma
    return replace(spec, family=plan.family, tile=Tile(plan.cta_tile, plan.stages), mma=mma, schedule=schedule)
