"""Path of one element: from global memory to the accumulators of its products, or from its accumulator to memory."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, replace
from itertools import accumulate
from typing import Any

from cutegen.contract.problem import ProblemShape, from_vector
from cutegen.errors import RequestError
from cutegen.hardware.units import WARP
from cutegen.plan import GemmPlan
from cutegen.show.follow import Element, OperandElementPath, follow, locations
from cutegen.show.view import View, section
from cutegen.support.words import aligned, extents, plural, span

SHOWN_LOADS = 16
Fact = tuple[str, str]


def view(
    plan: GemmPlan, element: Element, problem: ProblemShape, *, sizes: Sequence[int] = (), everything: bool = False
) -> View:
    """Show its places in the order of its path. Raises RequestError if the problem has no such element.

    With the `sizes` of packed groups, coordinates count from the first element of all groups.
    """
    asked, group = element, _group(plan, element)
    size = extents((problem.m, problem.n, problem.k))
    if sizes:
        element, problem, group = _in_its_group(plan, element, problem, sizes)
    way = follow(plan, element, problem)
    title = f"{asked} of {plan.spec.name or 'unnamed spec'} for {plan.target.name}, problem {size}"
    match way:
        case locations.ResultElementPath():
            blocks = _result(way, title, group, in_parts=plan.epilogue.part is not None)
        case locations.ResultFactorPath():
            blocks = _result_factor(way, title, group)
        case OperandElementPath():
            blocks = _operand(way, title, group, everything=everything)
    head = {"spec": plan.spec.name, "target": plan.target.name, "problem": [problem.m, problem.n, problem.k]}
    return View(tuple(blocks), {**head, **table(way)})


def table(way: locations.ElementPath) -> dict[str, Any]:
    """Return a path as plain values, with derived values; `null` for a place that it does not have."""
    place = way.source if isinstance(way, OperandElementPath) else way.target
    found: dict[str, Any] = {
        "operand": way.element.operand,
        "coordinate": list(way.element.coordinate),
        "read_as": way.read_as,
        "dtype": way.dtype,
        "slices": way.slices,
        "global": {**asdict(place), "sector": place.sector, "byte_in_sector": place.byte_in_sector},
    }
    if isinstance(way, OperandElementPath):
        return found | {
            "k_tile": way.k_tile,
            "slice": way.slice,
            "copy": _copy_table(way.copy),
            "shared": _shared_table(way.shared),
            "loads": [{**asdict(load), "held": _held_table(load.held)} for load in way.loads],
            "reads": [{**asdict(read), "encoded": f"{read.encoded:#018x}"} for read in way.reads],
            "meets": [asdict(meeting) for meeting in way.meets],
            "sums": None if way.sums is None else asdict(way.sums),
            "pair": None if way.pair is None else asdict(way.pair),
            "scales": None if way.scales is None else {"rows": _ends(way.scales.rows), "k": _ends(way.scales.k)},
            "tensor_memory": None if way.tensor_memory is None else asdict(way.tensor_memory),
        }
    if isinstance(way, locations.ResultFactorPath):
        return found | {"meets": [asdict(meeting) for meeting in way.meets], "factor": _factor_table(way.factor)}
    staged = way.staged
    return found | {
        "held": _held_table(way.held),
        "sums": None if way.sums is None else asdict(way.sums),
        "members": {name: _held_table(held) for name, held in way.members.items()},
        "staged": None if staged is None else {**asdict(staged), "place": _shared_table(staged.place)},
        "store": None if way.store is None else _copy_table(way.store),
        "factor": None if way.factor is None else _factor_table(way.factor),
    }


def _factor_table(factor: locations.FactorOfResult) -> dict[str, Any]:
    return {**asdict(factor), "columns": _ends(factor.columns)}


def _ends(numbers: range) -> list[int]:
    """Return the first and the last of consecutive numbers."""
    return [numbers[0], numbers[-1]]


def _group(plan: GemmPlan, element: Element) -> tuple[Fact, ...]:
    """Return what a coordinate of an element means if the problem is one of several groups."""
    if (grouped := plan.spec.problem.groups) is None:
        return ()
    of = grouped.value.of
    if of not in element.modes:
        return (("group", "in the matrix of one group"),)
    first = {"m": "row", "n": "column", "k": "element of K"}[of]
    return (("group", f"{of} and bytes count from its group's first {first}, where its tiles begin"),)


def _in_its_group(
    plan: GemmPlan, element: Element, problem: ProblemShape, sizes: Sequence[int]
) -> tuple[Element, ProblemShape, tuple[Fact, ...]]:
    """Return an element in the matrices of its group, that group's problem, and which it is. Raises RequestError."""
    grouped = plan.spec.problem.groups
    assert grouped is not None
    groups = grouped.value
    if groups.layout == "padded" or groups.of not in element.modes:
        raise RequestError(
            f"--sizes: found with {element}, which is in the matrix of one group whatever their sizes; leave it out"
        )
    place = element.modes.index(groups.of)
    at, ends = element.coordinate[place], tuple(accumulate(sizes))
    for number, part in enumerate(groups.products(ends, problem)):
        if at in (of_group := getattr(part, groups.of)):
            tiled = from_vector(of_group, plan.group_vector)
            row, column = (x - tiled.start * (i == place) for i, x in enumerate(element.coordinate))
            first = "its first" if tiled == of_group else f"{groups.of} {tiled.start}"
            what = f"{groups.of} {of_group.start} to {of_group.stop - 1}: coordinates and bytes count from {first}"
            part = replace(part, **{groups.of: tiled})
            alone = ProblemShape(len(part.m), len(part.n), len(part.k))
            fact = ("group", f"{number} of 0 to {len(sizes) - 1}, {what}, where its tiles begin")
            return replace(element, coordinate=(row, column)), alone, (fact,)
    raise RequestError(
        f"--element: found {groups.of} {at}; expected 0 to {ends[-1] - 1}, the {ends[-1]} of all groups of --sizes"
    )


def _held_table(held: locations.Held) -> dict[str, Any]:
    return {**asdict(held), "warp": held.warp, "lane": held.lane}


def _copy_table(copy: locations.CopyStep) -> dict[str, Any]:
    if isinstance(copy, locations.BoxStep):
        return {"kind": "box", **asdict(copy)}
    return {"kind": "vector", **asdict(copy), "warp": copy.warp, "lane": copy.lane}


def _shared_table(place: locations.SharedLocation) -> dict[str, Any]:
    return {**asdict(place), "swizzle": _swizzle_name(place), "bank": place.bank}


def _operand(way: OperandElementPath, title: str, group: tuple[Fact, ...], *, everything: bool) -> Iterator[list[str]]:
    name = way.read_as.upper()
    facts = [*_global(way.source, way.dtype, way.element), *group]
    if way.read_as != way.element.operand:
        facts.append(("swapped", f"the kernel swaps A and B: it reads this matrix as its {name}"))
    facts += _in_tile(way)
    if way.slices > 1:
        facts.append(("slice of K", f"{way.slice} of 0 to {way.slices - 1}, each in its own CTA"))
    facts += [*_copied(way.copy, way.element.operand, "copied by"), *_shared(way.shared, name)]
    if (place := way.tensor_memory) is not None:
        at = f"column {place.column}, lane {place.lane} of each quarter: byte {place.byte} of the word"
        facts.append(("tensor memory", f"{at}, by tcgen05.cp"))
    yield section(title, facts)
    if way.loads:
        yield _loads(way.loads, name, everything=everything)
    for read in way.reads:
        yield section(f"{name} is multiplied in place", list(_read(read, way)))
    yield _meetings(way.meets, way)


def _in_tile(way: OperandElementPath) -> Iterator[Fact]:
    (x, y), (number, _), (first, second) = way.element.modes, way.source.tile, way.source.within
    if way.scales is not None:
        rows, k = way.scales.rows, way.scales.k
        of_rows = f"{rows[0]} to {rows[-1]}" if len(rows) > 1 else str(rows[0])
        plural = "s" if len(rows) > 1 else ""
        of_pairs = "" if way.pair is None else f"the {way.pair.member}{plural} of column{plural} {of_rows} of C"
        lines = of_pairs or f"{x} {of_rows}"
        yield "scales", f"products of {lines} and {y} {k[0]} to {k[-1]}"
        yield "CTA's tile", f"factor {first} of tile {number}, k-tile {way.k_tile}"
        return
    row = f"{x} {first} of tile {number}"
    if way.pair is not None:
        yield "pair", f"the {way.pair.member} of column {way.pair.pair} of C; a tile of sums has both members"
        row = f"column {first} of tile {number}"
    yield "CTA's tile", f"{row}, {y} {second} of k-tile {way.k_tile}"


def _result(
    way: locations.ResultElementPath, title: str, group: tuple[Fact, ...], *, in_parts: bool
) -> Iterator[list[str]]:
    facts = list(group)
    if way.sums is not None:
        facts += _sums(way.sums)
    for name, held in (way.members or {"accumulator": way.held}).items():
        place = f"({', '.join(map(str, held.place))}) of (MMA, MMA_M, MMA_N)"
        facts.append((name, f"{_thread(held.thread)}: value {held.value} of tCrC, {place}"))
    facts += _added(way)
    if way.factor is not None:
        facts.append(("quantized", f"divided by the factor of {_of_block(way.factor)}"))
        facts += _quantized(way.factor)
    if way.staged is not None:
        facts += _staged(way.staged, in_parts=in_parts)
    if way.store is not None:
        facts += _copied(way.store, "part" if in_parts else "tile", "stored by")
    else:
        facts.append(("stored by", "the thread that holds it, directly to global memory"))
    tile, within = way.target.tile, way.target.within
    facts.append(("CTA's tile", f"m {within[0]} of tile {tile[0]}, n {within[1]} of tile {tile[1]}"))
    facts += _global(way.target, way.dtype, way.element)
    yield section(title, facts)


def _result_factor(way: locations.ResultFactorPath, title: str, group: tuple[Fact, ...]) -> Iterator[list[str]]:
    facts = [*group, *_added(way), ("divides", _of_block(way.factor)), *_largest(way.factor)]
    facts.append(("stored by", _thread(way.factor.stored_by)))
    tile, within = way.target.tile, way.target.within
    facts.append(("CTA's tile", f"m {within[0]} of tile {tile[0]}, block {within[1]} of tile {tile[1]} along n"))
    yield section(title, [*facts, *_global(way.target, way.dtype, way.element)])
    yield _by_values("Accumulators of its block, by the threads that hold them: values of tCrC", way.meets)


def _added(way: locations.ResultElementPath | locations.ResultFactorPath) -> Iterator[Fact]:
    """Yield what a kernel does to C before its epilogue: it may be transposed there, and of several slices."""
    if way.read_as != "c":
        yield "swapped", "the kernel swaps A and B: its rows are this matrix's columns"
    if way.slices > 1:
        yield "slices of K", f"each of {way.slices} CTAs holds a partial sum; the epilogue adds them"


def _of_block(factor: locations.FactorOfResult) -> str:
    return f"row {factor.coordinate[0]}, columns {factor.columns[0]} to {factor.columns[-1]} of C"


def _largest(factor: locations.FactorOfResult) -> Iterator[Fact]:
    yield "largest", f"of the values of threads {span(factor.threads)}, before any is rounded"
    if factor.shared:
        place, apart = factor.shared[0], factor.shared[1] - factor.shared[0]
        meet = f"{len(factor.shared)} warps meet in shared memory"
        yield "", f"{meet}: byte {place:,} of the CTA's, and every {apart:,} bytes from there"


def _quantized(factor: locations.FactorOfResult) -> Iterator[Fact]:
    yield from _largest(factor)
    (row, block), at = factor.coordinate, factor.offset_elems
    yield "factor", f"({row}, {block}) of C's factors, f32, stored by {_thread(factor.stored_by)}"
    yield "", f"byte {4 * at:,} from their first, if rows are contiguous and strides whole vectors, as calls make them"


def _global(place: locations.GlobalLocation, dtype: str, element: Element) -> Iterator[Fact]:
    x, y = element.modes
    other = y if place.major == x else x
    yield (
        "global memory",
        f"{dtype}, contiguous along {place.major}; stride along {other}: {place.leading_elems:,} elements",
    )
    yield (
        "",
        f"byte {place.byte:,} from the matrix's first: sector {place.sector:,} of 32 bytes, "
        f"byte {place.byte_in_sector} of it",
    )


def _copied(copy: locations.CopyStep, operand: str, verb: str) -> Iterator[Fact]:
    if isinstance(copy, locations.BoxStep):
        yield verb, f"one thread's {copy.instruction[0]}"
        count = "the one box" if copy.boxes == 1 else f"box {copy.box} of 0 to {copy.boxes - 1}"
        shares = f", the share of CTA {copy.share} of {copy.shares} of the cluster" if copy.shares > 1 else ""
        yield "", f"{count} of {extents(copy.extents)}{shares}: its row {copy.row}, element {copy.along} of that"
        return
    yield verb, f"{_thread(copy.thread)}: {', '.join(copy.instruction)}"
    vector = f"vector {copy.step} of 0 to {copy.steps - 1}" if copy.steps > 1 else "its one vector"
    (x, y), more = copy.first, f", element {copy.index} of {copy.elems}" if copy.elems > 1 else ""
    yield (
        "",
        f"{vector}, of {copy.bits} bits, from ({x}, {y}) of the {operand if len(operand) > 1 else 'tile'} on{more}",
    )
    yield (
        "",
        f"with lanes {copy.lanes_first} to {copy.lanes_last} in {plural(copy.wavefronts, 'wavefront')}; the warp's "
        f"request touches {plural(copy.warp_sectors, 'sector')}",
    )


def _shared(place: locations.SharedLocation, name: str, *, stages: bool = True) -> Iterator[Fact]:
    where = f"stage {place.stage}, " if stages else ""
    yield (
        "shared memory",
        f"{where}byte {place.offset_bytes:,} of {name}'s, byte {place.address_bytes:,} of the CTA's: bank {place.bank}",
    )
    if place.xor:
        bits = ", ".join(f"{x.bit} ^ {x.with_bit} (= {x.by})" for x in place.xor)
        yield "swizzle", f"{_swizzle_name(place)} of byte {place.plain_bytes:,}: bits {bits}"
        yield "", f"{place.plain_bytes:#x} -> {place.offset_bytes:#x}"


def _swizzle_name(place: locations.SharedLocation) -> str | None:
    swizzle = place.swizzle
    return None if swizzle is None else f"Sw<{swizzle.bits},{swizzle.base},{swizzle.shift}>"


def _staged(staged: locations.StagedResult, *, in_parts: bool) -> Iterator[Fact]:
    whole = "its warpgroup's share of the tile" if in_parts else "the full tile"
    part = f"part {staged.part} of 0 to {staged.parts - 1} of its warpgroup's"
    yield "stored with", part if staged.parts > 1 else whole
    if staged.matrix is not None:
        yield "written by", staged.instruction
        yield (
            "",
            f"its warp's instruction {staged.number}, matrix {staged.matrix}, row {staged.row}, which lane "
            f"{staged.addressing_lane} addresses",
        )
    else:
        yield "written by", f"the thread that holds it: {staged.instruction}"
    yield from _shared(staged.place, "C", stages=False)


def _loads(loads: Sequence[locations.FragmentLoad], name: str, *, everything: bool) -> list[str]:
    """Write a line per lane that receives the element; long lists are truncated, with a remark."""
    shown = loads if everything else loads[:SHOWN_LOADS]
    columns: dict[str, Callable[[locations.FragmentLoad], object]] = {
        "warp": lambda load: load.warp,
        "k-block": lambda load: load.k_block,
        "load": lambda load: f"{load.number} of {load.loads}",
        "phase": lambda load: load.phase,
        "row": lambda load: load.row,
        "by lane": lambda load: load.addressing_lane,
        "at byte": lambda load: f"{load.row_address_bytes:,}",
        "thread": lambda load: load.held.thread,
        "lane": lambda load: load.lane,
        "register": lambda load: f"{load.register}" + (f", bit {load.bits_from} on" if load.bits_from else ""),
        f"value of tCr{name}": lambda load: f"{load.held.value}, ({','.join(map(str, load.held.place))})",
    }
    if loads[0].matrix is None:
        del columns["row"]  # of a matrix of ldmatrix
    rows = [[f"{told(load)}" for told in columns.values()] for load in shown]
    title = f"To registers by {loads[0].instruction}; bytes of the CTA's shared memory"
    lines = [title, *aligned(rows, header=tuple(columns))]
    left = len(loads) - len(shown)
    return lines + ([f"  and {plural(left, 'more row')} (see --all)"] if left else [])


def _read(read: locations.DescriptorRead, way: OperandElementPath) -> Iterator[Fact]:
    x, _ = way.element.modes
    by = f"warpgroup {', '.join(map(str, read.warpgroups))}" if read.warpgroups else "an elected thread"
    yield "descriptor", f"{read.encoded:#018x}: start address: byte {read.start_bytes:,} of the CTA's shared memory"
    yield "", f"{read.layout}, leading offset {read.lbo_bytes} bytes, stride offset {read.sbo_bytes} bytes"
    yield "block", f"{read.block} along {x}, k-block {read.k_block}, multiplied by {by}"
    yield "in the block", f"row {read.row}, k {read.along_k}"
    i, j = read.core
    yield "core matrix", f"({i}, {j}) of 8 rows of 16 bytes: row {read.core_row}, byte {read.core_byte}"


def _meetings(meets: Sequence[locations.AccumulatorHits], way: OperandElementPath) -> list[str]:
    along, tile = "row" if way.read_as == "a" else "column", "C's tile" if way.pair is None else "the tile of sums"
    title = f"Accumulators of its products: {along} {way.line} of {tile}, values of tCrC"
    if way.scales is not None:
        by = "read it" if way.tensor_memory is None else "load them"
        title = f"Accumulators that it scales, by the threads that {by}: values of tCrC"
    lines = _by_values(title, meets)
    return lines if way.sums is None else [*lines, *aligned(list(_sums(way.sums)))]


def _by_values(title: str, meets: Sequence[locations.AccumulatorHits]) -> list[str]:
    """Write threads that have the same values in one line."""
    by_values: dict[tuple[int, ...], list[int]] = {}
    for meeting in meets:
        by_values.setdefault(meeting.values, []).append(meeting.thread)
    rows = [(span(threads), span(values)) for values, threads in by_values.items()]
    return [title, *aligned(rows, header=("threads", "values"))]


def _sums(place: locations.SumsLocation) -> Iterator[Fact]:
    lanes, columns = ("s" * (len(each) > 1) + f" {span(each)}" for each in (place.lanes, place.columns))
    yield "tensor memory", f"lane{lanes}, column{columns} of the buffer of C's tile, by tcgen05.mma"
    yield "loaded by", place.instruction


def _thread(thread: int) -> str:
    return f"thread {thread} (warp {thread // WARP}, lane {thread % WARP})"
