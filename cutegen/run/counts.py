"""What the executor counted in one launch of a planned kernel, beside what the plan says: two witnesses, one table.

The plan predicts for one CTA and one k-tile; a launch does that for every CTA and every k-tile. The kernel loads
one k-block of fragments ahead, and asynchronous copies fill every stage, with zeros past the end of K. Plain copies
load no zeros; they store every k-tile, and before the first one all stages but one.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction

from cutegen.arch import CpAsyncAtom, LdmatrixAtom, dtype
from cutegen.plan import GemmPlan
from cutegen.plan.gemm_plan import BulkTensorCopy, VectorCopy
from cutegen.plan.instructions import ambiguous, copies_per_k_tile, load_global, stores_per_k_tile
from cutegen.plan.launch import ProblemSize
from cutegen.plan.simt.predict import MAIN_LOOPS
from cutegen.plan.split_k import SUM_VECTOR_ELEMS
from cutegen.plan.text import plural
from cutegen.plan.traffic import LINE_BYTES, SECTOR_BYTES, ldmatrix_per_k_block
from cutegen.ptx import InstructionReport, LaunchReport
from cutegen.spec import STORE

Sites = Sequence[InstructionReport]
EDGES = "not predicted: some tiles are cut off by the matrices' edges"
BIAS = "not predicted: how often a bias is read is the compiler's choice"
UNALIGNED = "not predicted: rows do not begin at multiples of {} bytes"
COUNTED = ("wavefronts", "line_writes", "sectors", "boxes", "executed")


@dataclass(frozen=True, slots=True)
class Count:
    """A number; `predicted` is None where the plan does not say; `why` is its arithmetic, or why not."""

    predicted: int | None
    measured: int
    why: str

    @property
    def differs(self) -> bool:
        """Whether the two sides contradict each other."""
        return self.predicted is not None and self.predicted != self.measured


@dataclass(frozen=True, slots=True, kw_only=True)
class LaunchCounts:
    """Sums over a launch.

    `wavefronts` of shared memory, `line_writes` and `sectors` of global memory have the keys of `Predictions`; where
    neither A nor B is loaded by ldmatrix, "s2r" stands for the two together, and "g2s" where plain copies bring both.
    `boxes` are those of bulk tensor copies, of which neither wavefronts nor warps are counted. `executed` counts warps,
    by opcode.
    """

    wavefronts: Mapping[str, Count]
    line_writes: Mapping[str, Count]
    sectors: Mapping[str, Count]
    boxes: Mapping[str, Count]
    executed: Mapping[str, Count]

    def tables(self) -> dict[str, Mapping[str, Count]]:
        """The counts of each kind, by its name in COUNTED."""
        return {kind: getattr(self, kind) for kind in COUNTED}

    def differing(self) -> dict[str, Count]:
        """The counts that contradict the plan, by their whole names, as `wavefronts s2r.a`."""
        return {
            f"{kind} {key}": count
            for kind, table in self.tables().items()
            for key, count in table.items()
            if count.differs
        }


def count_launch(plan: GemmPlan, size: ProblemSize, report: LaunchReport) -> LaunchCounts:
    """Hold the report of a launch of `plan`'s kernel on a problem of `size` against the plan."""
    often = _Often.of(plan, size)
    return LaunchCounts(
        wavefronts=_wavefronts(plan, size, often, report),
        line_writes=_line_writes(plan, size, often, report),
        sectors=_sectors(plan, size, often, report),
        boxes=_boxes(plan, often, report),
        executed=_executed(plan, size, often, report),
    )


@dataclass(frozen=True, slots=True)
class _Times:
    """So many times, and that in words."""

    times: Fraction
    words: str

    def predict(self, unit: int, measured: int) -> Count:
        """`unit` as often as this, beside what was measured."""
        return Count(int(unit * self.times), measured, f"{unit:,} x {self.words}")


@dataclass(frozen=True, slots=True, kw_only=True)
class _Often:
    """How often a launch writes a C tile, fills a stage, multiplies a k-tile, and loads a k-tile of fragments.

    A `store` is a stage that is filled from registers. `slice` is how often the sums of a slice of K are left, which is
    never where K is whole.
    """

    tile: _Times
    fill: _Times
    store: _Times
    k_tile: _Times
    load: _Times
    slice: _Times | None = None

    @classmethod
    def of(cls, plan: GemmPlan, size: ProblemSize) -> _Often:
        if plan.split_k is not None:
            return cls._of_slices(plan, plan.split_k.slices, size)
        tiles = plan.launch.tiles(size.m, size.n, size.batch)
        what = plural(tiles, "CTA" if plan.launch.ctas_per_multiprocessor is None else "CTA tile")
        k_tiles = -(-size.k // plan.cta_tile[2])

        def for_each_tile(times: int | Fraction, words: str) -> _Times:
            return _Times(Fraction(tiles * times), f"{what} x {words}")

        tile = _Times(Fraction(tiles), what)
        if isinstance(plan.a.g2s, BulkTensorCopy):
            # A turn for each k-tile, and one of zeros where K has none: nothing is fetched or read ahead of its turn.
            turns = max(k_tiles, 1)
            each = for_each_tile(turns, plural(turns, "k-tile"))
            return cls(tile=tile, fill=each, store=each, k_tile=each, load=each)
        in_k = for_each_tile(k_tiles, plural(k_tiles, "k-tile"))
        if plan.stages == 1:
            return cls(tile=tile, fill=in_k, store=in_k, k_tile=in_k, load=in_k)
        blocks_ahead, stages_ahead = k_tiles + Fraction(1, plan.k_blocks), plan.stages - 1
        filled = _filled(plan, k_tiles)
        return cls(
            tile=tile,
            fill=in_k if filled == k_tiles else for_each_tile(filled, plural(filled, "stage")),
            store=for_each_tile(k_tiles + stages_ahead, f"({k_tiles:,} + {stages_ahead}) k-tiles"),
            k_tile=in_k,
            load=in_k if plan.by_thread else for_each_tile(blocks_ahead, f"({k_tiles:,} + 1/{plan.k_blocks}) k-tiles"),
        )

    @classmethod
    def _of_slices(cls, plan: GemmPlan, slices: int, size: ProblemSize) -> _Often:
        """Each slice has a CTA of its own, with a prologue of its own; the slices' k-tiles differ by one at most."""
        tiles = size.batch * plan.launch.tiles(size.m, size.n)
        k_tiles = -(-size.k // plan.cta_tile[2])
        shares = [k_tiles // slices + (index < k_tiles % slices) for index in range(slices)]
        # A single stage has no prologue.
        prologues = slices if plan.stages > 1 else 0
        filled = sum(_filled(plan, share) for share in shares)
        stages_ahead, blocks_ahead = prologues * (plan.stages - 1), Fraction(prologues, plan.k_blocks)

        def for_each_tile(times: int | Fraction, words: str) -> _Times:
            return _Times(Fraction(tiles * times), f"{plural(tiles, 'tile')} x {words}")

        return cls(
            tile=_Times(Fraction(tiles), plural(tiles, "tile")),
            slice=for_each_tile(slices, plural(slices, "slice")),
            fill=for_each_tile(filled, f"{plural(filled, 'fill')} of a stage in {plural(slices, 'slice')}"),
            store=for_each_tile(k_tiles + stages_ahead, f"({k_tiles:,} + {stages_ahead}) k-tiles"),
            k_tile=for_each_tile(k_tiles, plural(k_tiles, "k-tile")),
            load=for_each_tile(k_tiles + blocks_ahead, f"({k_tiles:,} + {prologues}/{plan.k_blocks}) k-tiles"),
        )


def _filled(plan: GemmPlan, k_tiles: int) -> int:
    """How often asynchronous copies fill a stage for so many k-tiles; where there are none, all but one are filled."""
    return max(k_tiles, plan.stages if k_tiles else plan.stages - 1)


def _wavefronts(plan: GemmPlan, size: ProblemSize, often: _Often, report: LaunchReport) -> dict[str, Count]:
    def count(times: _Times, unit: int, sites: Sites) -> Count:
        return times.predict(unit, sum(site.wavefronts for site in sites))

    unit = {key: row.predicted for key, row in plan.predictions.wavefronts.items()}
    unit |= {key: unit[f"{key}.a"] + unit[f"{key}.b"] for key in ("g2s", "s2r")}
    bulk = isinstance(plan.a.g2s, BulkTensorCopy)
    copies = () if bulk else _copies(plan, report)
    counts = {key: count(often.fill, unit[key], sites) for key, sites in copies}
    if key := _plain_key(plan):
        counts[key] = count(often.store, unit[key], _main_loop_sites(plan, report, "st.shared"))
        counts = dict(sorted(counts.items()))
    counts |= {key: count(often.load, unit[key], sites) for key, sites in _loads(plan, report)}
    if plan.epilogue.smem is not None:
        stores, reads = _epilogue_sites(plan, report, "st.shared"), _epilogue_sites(plan, report, "ld.shared")
        counts["epilogue.write"] = count(often.tile, unit["epilogue.write"], stores)
    if isinstance(plan.epilogue.store, VectorCopy):
        unknown = "" if _is_whole(plan, size) else EDGES  # a tile that is cut off is read element by element
        measured = sum(site.wavefronts for site in reads)
        counts["epilogue.read"] = _unless(unknown, often.tile, unit["epilogue.read"], measured)
    return counts


def _line_writes(plan: GemmPlan, size: ProblemSize, often: _Often, report: LaunchReport) -> dict[str, Count]:
    """Zeros past the end of K are written like data, so stages are counted, not k-tiles."""
    unknown = _why_unknown(plan, size, LINE_BYTES)
    counts = {}
    for key, sites in _copies(plan, report):
        measured = sum(site.line_wavefronts for site in sites)
        if (lines := plan.predictions.line_writes.get(key)) is not None:
            counts[key] = _unless(unknown, often.fill, lines.predicted, measured)
    return counts


def _sectors(plan: GemmPlan, size: ProblemSize, often: _Often, report: LaunchReport) -> dict[str, Count]:
    unknown = _why_unknown(plan, size, SECTOR_BYTES)

    def count(times: _Times, sites: Sites, *keys: str) -> Count:
        measured = sum(site.sectors for site in sites)
        missing = "" if plan.predictions.sectors.keys() >= set(keys) else BIAS
        if unknown or missing:
            return Count(None, measured, unknown or missing)
        return times.predict(sum(plan.predictions.sectors[key].predicted for key in keys), measured)

    counts = {key: count(often.k_tile, sites, key) for key, sites in _copies(plan, report)}
    if plain := _plain_key(plan):
        keys = [f"g2s.{x.name}" for x in plan.through_registers]
        counts[plain] = count(often.k_tile, _main_loop_sites(plan, report, "ld.global"), *keys)
        counts = dict(sorted(counts.items()))
    extras = plan.epilogue.fusion.tensors
    written = [f"epilogue.{x.name}" for x in extras if x.name == STORE]
    stores = (*report.matching("st.global"), *_bulk_stores(plan, report))
    loads = _epilogue_sites(plan, report, "ld.global")
    if plan.split_k is not None and not plan.split_k.atomics and often.slice is not None:
        # The text has them before whatever the epilogue stores and loads.
        vectors = plan.cta_tile[0] * plan.cta_tile[1] // (plan.threads * SUM_VECTOR_ELEMS)
        for key, sites in (("write", stores[:vectors]), ("read", loads[: vectors * plan.split_k.in_flight])):
            unit, measured = plan.predictions.sectors[f"split_k.{key}"].predicted, sum(site.sectors for site in sites)
            counts[f"split_k.{key}"] = often.slice.predict(unit, measured)
        stores, loads = stores[vectors:], loads[vectors * plan.split_k.in_flight :]
    if not plan.launch.adds_to_result:  # the executor does not count the traffic of atomics
        counts["epilogue"] = count(often.tile, stores, "epilogue", *written)
    if read := [f"epilogue.{x.name}" for x in extras if x.name != STORE]:
        counts["epilogue.read"] = count(often.tile, loads, *read)
    return counts


def _boxes(plan: GemmPlan, often: _Often, report: LaunchReport) -> dict[str, Count]:
    """One thread asks for a box, once: what a whole warp asks for is moved as often as it has threads."""
    counts = {}
    copies = dict(_copies(plan, report))
    for operand in (plan.a, plan.b):
        if isinstance(operand.g2s, BulkTensorCopy):
            key = f"g2s.{operand.name}"
            sites = copies[key]
            counts[key] = often.fill.predict(operand.g2s.boxes, sum(site.boxes for site in sites))
    if isinstance(plan.epilogue.store, BulkTensorCopy):
        measured = sum(site.boxes for site in _bulk_stores(plan, report))
        counts["epilogue"] = often.tile.predict(plan.epilogue.store.boxes, measured)
    return counts


def _unless(unknown: str, times: _Times, unit: int, measured: int) -> Count:
    return Count(None, measured, unknown) if unknown else times.predict(unit, measured)


def _executed(plan: GemmPlan, size: ProblemSize, often: _Often, report: LaunchReport) -> dict[str, Count]:
    """The instructions that a plan counts, for all warps of a CTA and a whole k-tile at a time."""
    return _executed_wherever(plan, often, report) | _executed_plain(plan, size, often, report)


def _executed_plain(plan: GemmPlan, size: ProblemSize, often: _Often, report: LaunchReport) -> dict[str, Count]:
    """Plain copies: vectors, and in the loops for edges single elements, which whole tiles do not need."""
    loads, stores = Counter[str](), Counter[str]()
    for operand in plan.through_registers:
        assert isinstance(operand.g2s, VectorCopy)
        warps, element = plan.threads // 32, operand.dtype
        loads[load_global(element.bits, element, plan.target)] += 0
        vectors = copies_per_k_tile(operand, plan.tiled_mma) * warps
        loads[load_global(operand.g2s.bits, element, plan.target)] += vectors
        for opcode, count in stores_per_k_tile(operand, plan.tiled_mma, plan.target).items():
            stores[opcode] += count * warps
    unknown = "" if _is_whole(plan, size) else EDGES
    executed = {opcode: _executions(plan, report, opcode) for opcode in (*loads, *stores)}
    counts = {opcode: _unless(unknown, often.k_tile, loads[opcode], executed[opcode]) for opcode in loads}
    counts |= {opcode: often.store.predict(stores[opcode], executed[opcode]) for opcode in stores}
    of = plan.through_registers if plan.by_thread else ()
    spellings = tuple(opcode for operand in of for opcode in ambiguous(operand, plan.tiled_mma, plan.target))
    return {opcode: count for opcode, count in counts.items() if not opcode.startswith(spellings)}


def _executed_wherever(plan: GemmPlan, often: _Often, report: LaunchReport) -> dict[str, Count]:
    """Instructions that only the main loop has."""
    warps, units, times = plan.tiled_mma.threads // 32, Counter[str](), {}
    for operand in (plan.a, plan.b):
        copy, load = operand.g2s.atom, operand.s2r.atom
        if isinstance(copy, CpAsyncAtom):
            units[copy.ptx] += copies_per_k_tile(operand, plan.tiled_mma) * warps
            times[copy.ptx] = often.fill
        if isinstance(load, LdmatrixAtom):
            units[load.ptx] += ldmatrix_per_k_block(operand, plan.tiled_mma) * plan.k_blocks * warps
            times[load.ptx] = often.load
    (m, n, k), (atom_m, atom_n, atom_k) = plan.cta_tile, plan.atom.shape_mnk
    lanes = 32 if plan.by_thread else 1
    units[plan.atom.ptx] = m * n * k // (atom_m * atom_n * atom_k * lanes)
    times[plan.atom.ptx] = often.k_tile
    return {opcode: times[opcode].predict(units[opcode], _executions(plan, report, opcode)) for opcode in sorted(units)}


def _executions(plan: GemmPlan, report: LaunchReport, opcode: str) -> int:
    return sum(site.executed for site in _main_loop_sites(plan, report, opcode))


def _copies(plan: GemmPlan, report: LaunchReport) -> Iterator[tuple[str, Sites]]:
    """The copies of A and of B, except plain ones. Each fill of a stage is written as all of A's, then all of B's."""
    a, b = plan.a.g2s, plan.b.g2s
    if isinstance(a, BulkTensorCopy) and isinstance(b, BulkTensorCopy):
        split = _split(report.matching(a.atom.ptx), a.boxes, b.boxes)
        yield from ((f"g2s.{name}", sites) for name, sites in split)
    elif plan.asynchronous:
        yield from _cp_async(plan, report)


def _cp_async(plan: GemmPlan, report: LaunchReport) -> Iterator[tuple[str, Sites]]:
    sites = [site for site in report.matching("cp.async") if "shared" in site.opcode.split(".")]
    asynchronous = [x for x in (plan.a, plan.b) if not x.g2s.through_registers]
    a, b = (copies_per_k_tile(x, plan.tiled_mma) if x in asynchronous else 0 for x in (plan.a, plan.b))
    split = dict(_split(sites, a, b))
    yield from ((f"g2s.{x.name}", split[x.name]) for x in asynchronous)


def _plain_key(plan: GemmPlan) -> str:
    """What plain copies bring: one operand, both, or nothing."""
    plain = plan.through_registers
    return f"g2s.{plain[0].name}" if len(plain) == 1 else "g2s" if plain else ""


def _bulk_stores(plan: GemmPlan, report: LaunchReport) -> Sites:
    """The bulk tensor copies that C leaves by, if it does."""
    store = plan.epilogue.store
    return report.matching(store.atom.ptx) if isinstance(store, BulkTensorCopy) else ()


def _loads(plan: GemmPlan, report: LaunchReport) -> Iterator[tuple[str, Sites]]:
    """The loads of fragments: A's and B's ldmatrix take turns by k-block; plain loads are told from them by opcode."""
    ldmatrix, plain = report.matching("ldmatrix"), _main_loop_sites(plan, report, "ld.shared")
    by_ldmatrix = {x.name: isinstance(x.s2r.atom, LdmatrixAtom) for x in (plan.a, plan.b)}
    if all(by_ldmatrix.values()):
        a, b = (ldmatrix_per_k_block(x, plan.tiled_mma) for x in (plan.a, plan.b))
        yield from ((f"s2r.{name}", sites) for name, sites in _split(ldmatrix, a, b))
    elif any(by_ldmatrix.values()):
        yield from ((f"s2r.{name}", ldmatrix if is_ldmatrix else plain) for name, is_ldmatrix in by_ldmatrix.items())
    else:
        yield "s2r", plain


def _split(sites: Sites, a: int, b: int) -> tuple[tuple[str, Sites], tuple[str, Sites]]:
    """The text has `a` instructions of A, then `b` of B, and so on: no compiler reorders these accesses to memory."""
    of_a = [i % (a + b) < a for i in range(len(sites))]
    return (
        ("a", [site for site, is_a in zip(sites, of_a, strict=True) if is_a]),
        ("b", [site for site, is_a in zip(sites, of_a, strict=True) if not is_a]),
    )


def _main_loop_sites(plan: GemmPlan, report: LaunchReport, opcode: str) -> Sites:
    """Instructions before the main loop's last line."""
    return [site for site in report.matching(opcode) if site.line <= _last_line(plan, report)]


def _epilogue_sites(plan: GemmPlan, report: LaunchReport, opcode: str) -> Sites:
    """Instructions behind the main loop's last line."""
    return [site for site in report.matching(opcode) if site.line > _last_line(plan, report)]


def _last_line(plan: GemmPlan, report: LaunchReport) -> int:
    """Of the last mma in the text; without tensor cores of the main loop's last fma or st.shared."""
    if not plan.by_thread:
        return max((site.line for site in report.matching("mma")), default=0)
    m, n, k = plan.cta_tile
    stores = sum(stores_per_k_tile(x, plan.tiled_mma, plan.target).total() for x in (plan.a, plan.b))
    fmas = report.matching(plan.atom.ptx)[: MAIN_LOOPS * m * n * k // plan.threads]
    stored = report.matching("st.shared")[: (MAIN_LOOPS + plan.stages - 1) * stores]
    return max(site.line for site in (*fmas, *stored))


def _is_whole(plan: GemmPlan, size: ProblemSize) -> bool:
    """Whether the matrices are cut into whole tiles, and there are some."""
    return all(
        extent and extent % tile == 0 for extent, tile in zip((size.m, size.n, size.k), plan.cta_tile, strict=True)
    )


def _why_unknown(plan: GemmPlan, size: ProblemSize, row_bytes: int) -> str:
    """Why a count in global memory is not predicted: the plan supposes whole tiles, and rows at whole `row_bytes`."""
    if not _is_whole(plan, size):
        return EDGES
    aligned = all(
        stride * dtype(tensor.dtype).bytes % row_bytes == 0
        for tensor in plan.launch.tensors
        if len(tensor.modes) == 2
        for stride in (size.strides[tensor.name].leading, size.strides[tensor.name].batch)
    )
    return "" if aligned else UNALIGNED.format(row_bytes)
