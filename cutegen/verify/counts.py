"""The executor's counts for one launch of a planned kernel, compared with the plan: two sources, one table.

The plan predicts one CTA and one k-tile; its loop says how often a launch executes each of them
(`plan/kernel/program.py`).
"""

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from math import prod

from cutegen.contract.launch import CallSize
from cutegen.contract.problem import ProblemShape, from_vector
from cutegen.hardware import dtype
from cutegen.hardware.units import LINE_BYTES, SECTOR_BYTES, WARP
from cutegen.plan import GemmPlan, swapped
from cutegen.plan.kernel.program import Action, Step
from cutegen.plan.kernel.scheduler import SUM_VECTOR_ELEMS, k_tiles_of
from cutegen.plan.values.copies import AccessKey, fetches_of, load_global
from cutegen.plan.values.path import ROWS, OperandPath
from cutegen.ptx import InstructionReport, LaunchReport
from cutegen.spec import STORE
from cutegen.support.words import plural

Sites = Sequence[InstructionReport]
EDGES = "not predicted: some tiles cross the matrices' edges"
BIAS = "not predicted: the compiler decides how often a bias is read"
STORES = "not predicted: the compiler joins single-element stores in only one of two main loops"
FEW_BLOCKS = "not predicted: a tile has fewer blocks than lanes copy"
UNALIGNED = "not predicted: rows do not begin at multiples of {} bytes"
COUNTED = ("wavefronts", "line_writes", "sectors", "boxes", "executed")


@dataclass(frozen=True, slots=True)
class Count:
    """A number; `predicted` is None without a prediction; `why` is its arithmetic, or why there is none."""

    predicted: int | None
    measured: int
    why: str

    @property
    def differs(self) -> bool:
        """True if the two sides contradict each other."""
        return self.predicted is not None and self.predicted != self.measured


@dataclass(frozen=True, slots=True, kw_only=True)
class LaunchCounts:
    """Sums over a launch.

    `wavefronts` of shared memory, `line_writes` and `sectors` of global memory have the keys of `Predictions`. If
    neither A nor B is loaded by ldmatrix, "s2r" is the sum of both, and so is "g2s" if plain copies move both. `boxes`
    are those of bulk tensor copies, whose wavefronts and warps are not counted. `executed` counts warps, by opcode.
    """

    wavefronts: Mapping[str, Count]
    line_writes: Mapping[str, Count]
    sectors: Mapping[str, Count]
    boxes: Mapping[str, Count]
    executed: Mapping[str, Count]

    def tables(self) -> dict[str, Mapping[str, Count]]:
        """Return the counts of each kind, by its name in COUNTED."""
        return {kind: getattr(self, kind) for kind in COUNTED}

    def differing(self) -> dict[str, Count]:
        """Return the counts that contradict the plan, by full name, such as `wavefronts s2r.a`."""
        return {
            f"{kind} {key}": count
            for kind, table in self.tables().items()
            for key, count in table.items()
            if count.differs
        }


def count_launch(plan: GemmPlan, size: CallSize, report: LaunchReport, given: Sequence[int] = ()) -> LaunchCounts:
    """Compare the report of a launch of `plan`'s kernel on a problem of `size` with the plan.

    `given` are the ends or sizes of groups.
    """
    often = _Often(plan, size, given)
    return LaunchCounts(
        wavefronts=_wavefronts(plan, often, report),
        line_writes=_line_writes(plan, often, report),
        sectors=_sectors(plan, often, report),
        boxes=_boxes(plan, often, report),
        executed=_executed_wherever(plan, often, report) | _executed_plain(plan, often, report),
    )


@dataclass(frozen=True, slots=True)
class _Times:
    """A factor, and the words for it."""

    times: Fraction
    words: str

    def predict(self, unit: int, measured: int) -> Count:
        """Return `unit` times this factor, with the measured count."""
        return Count(int(unit * self.times), measured, f"{unit:,} x {self.words}")

    def once_for(self, ctas: int) -> "_Times":
        """Return the times of what one of so many CTAs does for all of them."""
        return self if ctas == 1 else _Times(self.times / ctas, f"{self.words} / {ctas} CTAs")


@dataclass(frozen=True, slots=True)
class _Often:
    """Repetitions of what a plan predicts once: a C tile, a slice's sums, a k-tile's step of the loop."""

    plan: GemmPlan
    size: CallSize
    given: Sequence[int] = ()

    @property
    def tile(self) -> _Times:
        """The tiles of C."""
        return self._for_each_tile(lambda k: (Fraction(1), ""))

    @property
    def slice(self) -> _Times:
        """The partial sums that CTAs write, one per slice of K."""
        return self._for_each_tile(lambda k: (Fraction(self.plan.slices), plural(self.plan.slices, "slice")))

    @property
    def stored(self) -> _Times:
        """The tiles of C that warpgroups store: each the part of which a group has rows."""
        return self._for_each_tile(lambda k: (Fraction(1), ""), self._share_with_rows)

    def step(self, action: Action, *, past_end: bool = True) -> _Times:
        """Return a step of the main loop, in k-tiles; those past the end of K are left out unless `past_end`."""
        share = self._share_with_rows if action is Action.MULTIPLY else None

        multiplies = action is Action.MULTIPLY

        def of_tile(k: int) -> tuple[Fraction, str]:
            done = [self.plan.loop.executed(action, k_tiles) for k_tiles in self._k_tiles(k)]
            inside = sum((each.k_tiles for each in done), Fraction(0)) - (self._skipped(k) if multiplies else 0)
            beyond = sum((each.past_end for each in done), Fraction(0)) if past_end else Fraction(0)
            words = f"({int(inside):,} + {beyond}) k-tiles" if beyond else plural(int(inside), "k-tile")
            return inside + beyond, words

        return self._for_each_tile(of_tile, share)

    @property
    def whole_parts(self) -> _Times | None:
        """The parts of C that lie in one group and are stored by boxes; None if all of them are."""
        groups, part = self.plan.scheduler.groups, self.plan.epilogue.part
        if self.plan.epilogue.edge is None or groups is None or part is None:
            return None
        grouped, along = "mn".index(groups.of), ("n" if groups.of == "m" else "m")
        problem = swapped.shape_multiplied(self.size.problem) if self.plan.swapped else self.size.problem
        across = self.plan.cta_tile[1 - grouped] * self.plan.mma.cluster[1 - grouped]
        covered = -(-problem.extents[along] // across) * across
        beside = self.plan.epilogue.fusion.tile_of_c((covered, covered))[1 - grouped] // part[1 - grouped]
        step, vector, extent = self.plan.epilogue.box_step(groups), self.plan.group_vector, part[grouped]
        count = 0
        for each in (getattr(product, groups.of) for product in groups.products(self.given, problem)):
            tiles = from_vector(each, vector)
            if tiles.start % step == 0:  # the first part may have what is before the group
                count += max(0, len(tiles) // extent - (tiles.start < each.start)) * beside
        return _Times(Fraction(count), plural(count, "whole part"))

    @property
    def is_whole(self) -> bool:
        """True if complete tiles cover the matrices, as many as the launch has, and there is at least one."""
        (m, n), tile_k = self.plan.launch.cta_tile, self.plan.cta_tile[2]
        return all(
            shape.k > 0
            and shape.k % tile_k == 0
            and not shape.empty
            and tiles * m * n == shape.m * shape.n * shape.batch
            for shape, tiles in self._products()
        )

    def reaches_past_end(self, x: OperandPath) -> bool:
        """True if the last tile of an operand of blocks has more of them than are left.

        A tile that does not fill whole blocks of rows has as many wherever it begins.
        """
        along, rows = ROWS.index(x.operand), x.block[0]
        tile = self.plan.cta_tile[along]
        shapes = (shape for shape, _ in self._products())
        extents = (getattr(swapped.shape_multiplied(s) if self.plan.swapped else s, "mn"[along]) for s in shapes)
        return any((extent - tile) // rows + x.tile[0] > -(-extent // rows) for extent in extents)

    def _k_tiles(self, k: int) -> tuple[int, ...]:
        """Return the k-tiles of each CTA of a tile: slices differ by one at most."""
        k_tiles, slices = -(-k // self.plan.cta_tile[2]), self.plan.slices
        return tuple(len(k_tiles_of(index, slices, k_tiles)) for index in range(slices))

    def _products(self) -> list[tuple[ProblemShape, int]]:
        """Return the products of the launch with their tiles: one, of a batch, or those of groups that have tiles."""
        launch, problem = self.plan.launch, self.size.problem
        if launch.groups is None:
            return [(problem, launch.tiles(problem))]
        alone, of, vector = replace(launch, groups=None), launch.groups.of, self.plan.group_vector
        given = launch.groups.products(self.given, problem)
        parts = (replace(part, **{of: from_vector(getattr(part, of), vector)}) for part in given)
        shapes = [ProblemShape(len(part.m), len(part.n), len(part.k)) for part in parts]
        return [(shape, tiles) for shape in shapes if (tiles := alone.tiles(shape))]

    def _skipped(self, k: int) -> Fraction:
        """Return the share of a tile's last k-tile that is not multiplied: k-blocks past its part of K."""
        tile_k, block = self.plan.cta_tile[2], self.plan.atom.shape_mnk[2]
        if not self.plan.mma.skips_k_blocks or k < tile_k or k % tile_k == 0:
            return Fraction(0)
        return Fraction((tile_k - k % tile_k) // block * block, tile_k)

    def _share_with_rows(self, shape: ProblemShape) -> Fraction:
        """Return the share of a product's tiles whose warpgroups have rows of its group: others multiply nothing."""
        if not self.plan.skips_rows:
            return Fraction(1)
        rows, of_tile = (shape.n if self.plan.swapped else shape.m), self.plan.cta_tile[0]
        warpgroups, of_one = self.plan.tiled_mma.atom_layout.shape[0], self.plan.atom.shape_mnk[0]
        left = [rows - first for first in range(0, rows, of_tile)]
        return Fraction(sum(min(warpgroups, -(-each // of_one)) for each in left), warpgroups * len(left))

    def _for_each_tile(
        self, of_tile: Callable[[int], tuple[Fraction, str]], share: Callable[[ProblemShape], Fraction] | None = None
    ) -> _Times:
        """Return how often something of each tile is done, or of the `share` of a product's tiles."""
        launch, products = self.plan.launch, self._products()
        one_each = launch.split is None and not self.plan.scheduler.source.loops
        tiles = sum(tiles for _, tiles in products)
        what, each = plural(tiles, "CTA" if one_each else "CTA tile"), [of_tile(shape.k) for shape, _ in products]
        shares = [Fraction(1) if share is None else share(shape) for shape, _ in products]
        counted = zip(products, each, shares, strict=True)
        times = sum((tiles * times * part for (_, tiles), (times, _), part in counted), Fraction(0))
        words = {words for _, words in each}
        said = words.pop() if len(words) == 1 else "k-tiles of each group" if words else ""
        if any(part != 1 for part in shares):
            what += ", of warpgroups that have rows of their groups"
        return _Times(times, f"{what} x {said}" if said else what)


def _wavefronts(plan: GemmPlan, often: _Often, report: LaunchReport) -> dict[str, Count]:
    def count(times: _Times, unit: int, sites: Sites) -> Count:
        return times.predict(unit, sum(site.wavefronts for site in sites))

    unit = {key: row.predicted for key, row in plan.predictions.wavefronts.items()}
    unit[AccessKey.G2S] = sum(unit[AccessKey.g2s(x.name)] for x in plan.operands)
    plainly_read = (x for x in plan.operands if x.s2r.in_registers and not x.s2r.by_ldmatrix)
    unit[AccessKey.S2R] = sum(unit[AccessKey.s2r(x.name)] for x in plainly_read)
    written = (each for each in _copies(plan, report) if each.operand.g2s.fetch is Action.FETCH)
    counts = {each.key: count(often.step(Action.FETCH), unit[each.key], each.sites) for each in written}
    if key := _plain_key(plan):
        stored = sum(site.wavefronts for site in _main_loop_sites(plan, report, "st.shared"))
        unknown = STORES if "st.shared." in _spellings(plan) else ""
        counts[key] = _unless(unknown, often.step(Action.STORE), unit[key], stored)
        counts = dict(sorted(counts.items()))
    actions = {x.read_key: x.read_action for x in plan.operands} | {AccessKey.S2R: Action.LOAD}
    counts |= {key: count(often.step(actions[key]), unit[key], sites) for key, sites in _loads(plan, report)}
    if vectors := _clustered_vectors(plan):
        left = _epilogue_sites(plan, report, "st.shared")[:vectors]
        counts[AccessKey.CLUSTER_WRITE] = count(often.slice, unit[AccessKey.CLUSTER_WRITE], left)
        added = report.matching("ld.shared::cluster")
        counts[AccessKey.CLUSTER_READ] = count(often.slice, unit[AccessKey.CLUSTER_READ], added)
    if plan.epilogue.smem is not None:
        opcode = "stmatrix" if plan.epilogue.stmatrix else "st.shared"
        stores, reads = _epilogue_sites(plan, report, opcode), _epilogue_sites(plan, report, "ld.shared")
        if opcode == "st.shared" and plan.split_k is not None and plan.loop.persistent:
            stores = stores[_clustered_vectors(plan) :]
            # Before them, one thread tells the others whether the tile's other slices are done.
            stores = stores[1:] if plan.split_k.leaves_sums else stores
        counts[AccessKey.EPILOGUE_WRITE] = count(often.stored, unit[AccessKey.EPILOGUE_WRITE], stores)
    if plan.epilogue.store is not None and not plan.epilogue.store_opcodes():  # boxes are counted as such
        unknown = "" if often.is_whole else EDGES  # a partial tile is not read completely
        measured = sum(site.wavefronts for site in reads)
        counts[AccessKey.EPILOGUE_READ] = _unless(unknown, often.tile, unit[AccessKey.EPILOGUE_READ], measured)
    return counts


def _sum_vectors(plan: GemmPlan) -> int:
    """Return a thread's vectors of sums per tile."""
    return plan.cta_tile[0] * plan.cta_tile[1] // (plan.mma.accumulator.threads * SUM_VECTOR_ELEMS)


def _vectors_read(plan: GemmPlan) -> int:
    """Return the vectors of a slice's sums that the text reads in one place: a tile's, or a shared part's."""
    assert plan.split_k is not None
    if not plan.split_k.shared:
        return _sum_vectors(plan)
    assert plan.epilogue.part is not None
    return prod(plan.epilogue.part) // (plan.mma.accumulator.group_threads * SUM_VECTOR_ELEMS)


def _clustered_vectors(plan: GemmPlan) -> int:
    """Return those that it stores to shared memory for its cluster, before the epilogue's own stores."""
    return _sum_vectors(plan) if plan.split_k is not None and plan.split_k.clustered > 1 else 0


def _line_writes(plan: GemmPlan, often: _Often, report: LaunchReport) -> dict[str, Count]:
    """Return wavefronts of copies by the lines that they write; zeros past the end of K are written like data."""
    unknown = _why_unknown(plan, often, LINE_BYTES)
    counts = {}
    for each in _copies(plan, report):
        measured = sum(site.line_wavefronts for site in each.sites)
        if (lines := plan.predictions.line_writes.get(each.key)) is not None:
            counts[each.key] = _unless(unknown, often.step(Action.FETCH), lines.predicted, measured)
    return counts


def _sectors(plan: GemmPlan, often: _Often, report: LaunchReport) -> dict[str, Count]:
    unknown = _why_unknown(plan, often, SECTOR_BYTES)

    few = {AccessKey.g2s(x.name) for x in plan.operands if x.block[0] > 1 and x.g2s.fetch is Action.FETCH}

    def count(times: _Times, sites: Sites, *keys: str, past_end: bool = False) -> Count:
        measured = sum(site.sectors for site in sites)
        missing = "" if plan.predictions.sectors.keys() >= set(keys) else BIAS
        missing = FEW_BLOCKS if few.intersection(keys) else missing
        if why := unknown or missing or (EDGES if past_end else ""):
            return Count(None, measured, why)
        return times.predict(sum(plan.predictions.sectors[key].predicted for key in keys), measured)

    def fetched(action: Action) -> _Times:
        return often.step(action, past_end=False)  # nothing is read past the end of K

    counts = {
        each.key: count(
            fetched(each.operand.g2s.fetch), each.sites, each.key, past_end=often.reaches_past_end(each.operand)
        )
        for each in _copies(plan, report)
    }
    if plain := _plain_key(plan):
        keys = [AccessKey.g2s(x.name) for x in plan.through_registers]
        counts[plain] = count(fetched(Action.GLOBAL_LOAD), _main_loop_sites(plan, report, "ld.global"), *keys)
        counts = dict(sorted(counts.items()))
    extras = plan.epilogue.fusion.tensors
    written = [f"epilogue.{x.name}" for x in extras if x.name == STORE]
    stores = (*report.matching("st.global"), *_bulk_stores(plan, report))
    loads = _epilogue_sites(plan, report, "ld.global")
    groups = plan.launch.groups
    if groups is not None and groups.layout == "padded":
        loads = loads[:-1]  # the last one reads the size of each group, to clear what it leaves
    # A bias may be loaded before the main loop, which has loads of its own only if operands pass through registers.
    early = [] if plan.through_registers else _main_loop_sites(plan, report, "ld.global")
    if plan.split_k is not None and plan.split_k.leaves_sums:
        # In the text they precede the stores and loads of the epilogue.
        vectors = _sum_vectors(plan) // plan.split_k.clustered
        loaded = _vectors_read(plan) * plan.split_k.in_flight
        for key, sites in (("write", stores[:vectors]), ("read", loads[:loaded])):
            unit, measured = plan.predictions.sectors[f"split_k.{key}"].predicted, sum(site.sectors for site in sites)
            counts[f"split_k.{key}"] = often.slice.predict(unit, measured)
        stores, loads = stores[vectors:], loads[loaded:]
    if not plan.launch.adds_to_result:  # the executor does not count the traffic of atomics
        counts["epilogue"] = count(often.tile, stores, "epilogue", *written)
    if read := [f"epilogue.{x.name}" for x in extras if x.name != STORE]:
        counts[AccessKey.EPILOGUE_READ] = count(often.tile, [*early, *loads], *read)
    return counts


def _boxes(plan: GemmPlan, often: _Often, report: LaunchReport) -> dict[str, Count]:
    """Return the boxes: one thread issues each once; a request by a full warp would move it 32 times."""
    counts = {
        each.key: often.step(Action.BULK_FETCH)
        .once_for(each.operand.g2s.receivers)
        .predict(_sends(plan, each.operand).total(), sum(site.boxes for site in each.sites))
        for each in _copies(plan, report)
        if each.operand.g2s.fetch is Action.BULK_FETCH
    }
    if stored := plan.epilogue.boxes:
        measured = sum(site.boxes for site in _bulk_stores(plan, report))
        whole = often.whole_parts
        counts["epilogue"] = (
            often.tile.predict(stored, measured)
            if whole is None
            else whole.predict(stored // plan.epilogue.pieces, measured)
        )
    return counts


def _unless(unknown: str, times: _Times, unit: int, measured: int) -> Count:
    return Count(None, measured, unknown) if unknown else times.predict(unit, measured)


def _executed_plain(plan: GemmPlan, often: _Often, report: LaunchReport) -> dict[str, Count]:
    """Return plain copies: vectors, and in edge loops single elements, which complete tiles do not need."""
    units: dict[Action, Counter[str]] = {Action.GLOBAL_LOAD: Counter(), Action.STORE: Counter()}
    spellings = _spellings(plan)
    for x in plan.through_registers:
        units[Action.GLOBAL_LOAD][load_global(x.dtype.bits, x.dtype, plan.target)] += 0
        for action, unit in units.items():
            unit.update(x.opcodes(Step(action), plan.tiled_mma, plan.target))
    unknown = "" if often.is_whole else EDGES
    counts = {}
    for action, unit in units.items():
        times = often.step(action, past_end=action is Action.STORE)
        for opcode, count in unit.items():
            if not opcode.startswith(spellings):
                measured, why = _executions(plan, report, opcode), unknown if action is Action.GLOBAL_LOAD else ""
                counts[opcode] = _unless(why, times, count * plan.threads // WARP, measured)
    return counts


def _spellings(plan: GemmPlan) -> tuple[str, ...]:
    """Return the opcode prefixes of plain copies that the compiler writes in more than one form."""
    landing = ((x.g2s, x.landing(plan.tiled_mma, plan.target)) for x in plan.through_registers)
    return tuple(name for g2s, at in landing for name in g2s.ambiguous(at))


def _executed_wherever(plan: GemmPlan, often: _Often, report: LaunchReport) -> dict[str, Count]:
    """Return instructions that only the main loop has: cp.async, ldmatrix and the MMA."""
    units: dict[Action, Counter[str]] = {action: Counter() for action in (Action.FETCH, Action.LOAD, Action.MULTIPLY)}
    for x in plan.operands:
        units[Action.FETCH] += x.opcodes(Step(Action.FETCH), plan.tiled_mma, plan.target)
        if x.s2r.by_ldmatrix:
            units[Action.LOAD] += x.loads(plan.tiled_mma)
    warps = dict.fromkeys(units, plan.tiled_mma.threads // WARP)
    if units[Action.FETCH]:
        warps[Action.FETCH] = plan.loop.fetching(Action.FETCH).threads // WARP
    units[Action.MULTIPLY] += plan.opcodes(Step(Action.MULTIPLY))
    issued_for = {Action.MULTIPLY: plan.atom.ctas}
    return {
        opcode: often.step(action)
        .once_for(issued_for.get(action, 1))
        .predict(count * warps[action], _executions(plan, report, opcode))
        for action, unit in units.items()
        for opcode, count in sorted(unit.items())
    }


def _executions(plan: GemmPlan, report: LaunchReport, opcode: str) -> int:
    return sum(site.executed for site in _main_loop_sites(plan, report, opcode))


@dataclass(frozen=True, slots=True)
class _Copy:
    """An operand's copies to shared memory that have instructions of their own in the text."""

    operand: OperandPath
    sites: Sites

    @property
    def key(self) -> str:
        return AccessKey.g2s(self.operand.name)


def _copies(plan: GemmPlan, report: LaunchReport) -> Iterator[_Copy]:
    """Return the operands' copies except plain ones. Each kind fills a stage with one operand after the other."""
    launch = swapped.as_planned(plan).launch
    for fetch in fetches_of(x.g2s for x in plan.operands if not x.g2s.through_registers):
        copied = [x for x in plan.operands if x.g2s.fetch is fetch]
        opcodes = {opcode for x in copied for opcode in _sends(plan, x)}
        sites = sorted((site for opcode in opcodes for site in report.matching(opcode)), key=lambda site: site.line)
        first = sorted(copied, key=lambda x: x.name not in launch.ahead)  # copied before the others
        split = _split(sites, {x.name: _sends(plan, x).total() for x in copied}, [x.name for x in first])
        yield from (_Copy(x, split[x.name]) for x in copied)


def _sends(plan: GemmPlan, x: OperandPath) -> Counter[str]:
    """Return the instructions that a thread, or the producer thread, issues to fetch one k-tile."""
    return x.opcodes(Step(x.g2s.fetch), plan.tiled_mma, plan.target)


def _plain_key(plan: GemmPlan) -> str:
    """Name what plain copies move: one operand, both, or nothing."""
    plain = plan.through_registers
    return AccessKey.g2s(plain[0].name) if len(plain) == 1 else AccessKey.G2S if plain else ""


def _bulk_stores(plan: GemmPlan, report: LaunchReport) -> Sites:
    """Return the bulk tensor copies that store C, if any."""
    return tuple(site for opcode in plan.epilogue.store_opcodes() for site in report.matching(opcode))


def _loads(plan: GemmPlan, report: LaunchReport) -> Iterator[tuple[str, Sites]]:
    """Return the fragment loads: ldmatrix of A and B alternate by k-block; plain loads differ by opcode.

    An operand that is read in place is not loaded. The compiler may merge loads of factors.
    """
    ldmatrix, plain = report.matching("ldmatrix"), _main_loop_sites(plan, report, "ld.shared")
    in_registers = [x for x in plan.operands if x.s2r.in_registers]
    by_ldmatrix = [x for x in in_registers if x.s2r.by_ldmatrix]
    others = [x for x in in_registers if not x.s2r.by_ldmatrix]
    if by_ldmatrix:
        of_a_block = {x.name: x.loads(plan.tiled_mma).total() // plan.mma.k_blocks for x in by_ldmatrix}
        yield from ((AccessKey.s2r(name), sites) for name, sites in _split(ldmatrix, of_a_block).items())
    if len(others) == 1:
        yield AccessKey.s2r(others[0].name), plain
    elif any(x.read_action is Action.LOAD for x in others):
        yield AccessKey.S2R, plain


def _split(sites: Sites, counts: Mapping[str, int], first: Sequence[str] = ()) -> dict[str, Sites]:
    """Split by order: the text has so many instructions of each operand in turn, and compilers do not reorder them.

    The `first` ones of each may be in another order.
    """
    found: dict[str, list[InstructionReport]] = {name: [] for name in counts}
    orders = [[name for name in order for _ in range(counts[name])] for order in (first or [*counts], [*counts])]
    in_turn = len(orders[0])
    for i, site in enumerate(sites):
        found[orders[min(i // in_turn, 1)][i % in_turn]].append(site)
    return {**found}


def _main_loop_sites(plan: GemmPlan, report: LaunchReport, opcode: str) -> Sites:
    """Return instructions before the main loop's last line, without the scheduler's own, which are the first."""
    last_line = _last_line(plan, report)
    own = sum(number for kind, number in plan.scheduler.source.opcodes if kind.startswith(opcode))
    return [site for site in report.matching(opcode) if site.line <= last_line][own:]


def _epilogue_sites(plan: GemmPlan, report: LaunchReport, opcode: str) -> Sites:
    """Return instructions after the main loop's last line."""
    last_line = _last_line(plan, report)
    return [site for site in report.matching(opcode) if site.line > last_line]


def _last_line(plan: GemmPlan, report: LaunchReport) -> int:
    """Return the last line of the main loop's last MMA or st.shared; an epilogue may have FMAs and stores, too. Without
    st.shared, return the last line of the text: the compiler may have joined those of one loop alone.
    """
    multiplies, stores = (_written(plan, action) for action in (Action.MULTIPLY, Action.STORE))
    multiplied, stored = report.matching(plan.atom.ptx), report.matching("st.shared")
    if plan.by_thread:
        multiplied = multiplied[:multiplies]
    if plan.epilogue.smem is not None or plan.split_k is not None:
        stored = stored[:stores]
    return max((site.line for site in (*multiplied, *stored)), default=0)


def _written(plan: GemmPlan, action: Action) -> int:
    """Count the instructions of a step of the main loop in the text."""

    def opcodes(step: Step) -> Mapping[str, int]:
        issued = plan.opcodes(step)
        return issued if step.action is action else {}

    return sum(plan.loop.written(opcodes).values())


def _why_unknown(plan: GemmPlan, often: _Often, row_bytes: int) -> str:
    """Return why a global-memory count is not predicted: the plan assumes complete tiles and aligned rows."""
    if not often.is_whole:
        return EDGES
    aligned = all(
        stride * dtype(tensor.dtype).bytes % row_bytes == 0
        for tensor in plan.launch.tensors
        if len(tensor.modes) == 2
        for stride in (often.size.strides[tensor.name].leading, often.size.strides[tensor.name].batch)
    )
    return "" if aligned else UNALIGNED.format(row_bytes)
