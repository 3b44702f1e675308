"""`tcgen05`: tensor memory, its loads and stores, and the tensor core's operations on it.

Source: PTX ISA, "TensorCore 5th Generation Family Instructions". Refused by name: sparse A, `.ws`, `.ashift`,
`scale-input-d`, reuse of the collector, decompression, `.4x256b`, `tcgen05.ld.red`.
"""

import re
from collections.abc import Callable

import numpy as np

from cutegen.ptx.machine.blocks import Awaited, End, executing
from cutegen.ptx.machine.descriptor import KINDS, PACKED_KINDS
from cutegen.ptx.machine.grid import in_cta
from cutegen.ptx.machine.lowering import Lowering, Modifiers, Predicate, Step, count_operands
from cutegen.ptx.machine.memory import MAX_CLUSTER_CTAS
from cutegen.ptx.machine.rows import Row, Ways
from cutegen.ptx.machine.spaces import to_shared
from cutegen.ptx.machine.tensor_memory import COPY_SHAPES, LANE_SHIFT, LEAST_COLUMNS, QUARTER_LANES, SHAPES, warp_words
from cutegen.ptx.machine.tensor_mma import MmaForm, MmaOperands, issue_copy, issue_mma, issue_shift
from cutegen.ptx.machine.tensor_unit import Target
from cutegen.ptx.machine.warp import LANES, Path, Warp
from cutegen.ptx.text.flow import Ends
from cutegen.ptx.text.syntax import Address, Immediate, Instruction, Operand, Register, Vector, scalar_type
from cutegen.ptx.watch.actor import tensor_core
from cutegen.ptx.watch.tensor_order import COLUMNS, Region, Way
from cutegen.ptx.watch.violations import ViolationKind

_U16, _U32, _B64 = scalar_type("u16"), scalar_type("u32"), scalar_type("b64")
_GROUP = re.compile(r"cta_group::([12])")
_REFUSED = {
    "sp": "sparse A",
    "ws": ".ws",
    "ashift": ".ashift",
    **{f"collector::a::{word}": "reuse of the collector" for word in ("fill", "use", "lastuse")},
    **{f"b8x16.{word}": "decompression" for word in ("b6x16_p32", "b4x16_p64")},
}
_BLOCKS = {"scale_vec::1X": 1, "scale_vec::2X": 2, "scale_vec::4X": 4}
_MOST_REGISTERS = 128


def _take_group(instruction: Instruction, modifiers: Modifiers) -> int:
    """The CTAs of the group."""
    word = modifiers.need("cta_group::1", "cta_group::2")
    match = _GROUP.fullmatch(word)
    assert match is not None
    return int(match[1])


def _take(modifiers: Modifiers, *words: str) -> None:
    for word in words:
        modifiers.need(word)


def _check_whole(warp: Warp, site: int) -> None:
    """A `.sync.aligned` instruction needs all lanes of a warp."""
    if not warp.full:
        lane = int(np.argmin(warp.mask))
        message = "it needs all 32 lanes of the warp together"
        warp.cta.fault(ViolationKind.DIVERGENCE, site, warp.thread0 + lane, message)


def _uniform(warp: Warp, site: int, values: np.ndarray, what: str) -> int:
    """The value that all lanes have."""
    if (values != values[0]).any():
        lane = int(np.argmax(values != values[0]))
        warp.cta.fault(ViolationKind.DIVERGENCE, site, warp.thread0 + lane, f"{what} differs between lanes")
    return int(values[0])


def _check_columns(warp: Warp, site: int, count: int) -> None:
    if count < LEAST_COLUMNS or count > COLUMNS or count & (count - 1):
        message = f"{count} columns of tensor memory; expected a power of two from {LEAST_COLUMNS} to {COLUMNS}"
        warp.cta.fault(ViolationKind.TENSOR_MEMORY, site, int(warp.threads()[0]), message, always=True)


def _alloc(context: Lowering, instruction: Instruction, predicate: Predicate | None, ways: Ways) -> End:
    """The end of a block with `tcgen05.alloc.cta_group::G.sync.aligned{.shared::cta}.b32 [a], n`."""
    modifiers = context.modifiers(instruction, 2)
    _take(modifiers, "alloc", "sync", "aligned", "b32")
    generic = not modifiers.flag("shared::cta")
    ctas = _take_group(instruction, modifiers)
    modifiers.finish()
    place = context.address(instruction, instruction.operands[0])
    columns = context.source(instruction, instruction.operands[1], _U32)
    site = context.access(instruction, "shared", 4)

    def end(warp: Warp, path: Path) -> Awaited | None:
        with warp.narrowed(executing(warp, predicate)):
            if warp.count:
                _check_whole(warp, site)
                count = _uniform(warp, site, warp.cells[columns], "the number of columns")
                _check_columns(warp, site, count)
                first = warp.cta.cluster.tensor.allocate(warp, site, count, ctas)
                if not isinstance(first, int):
                    return first
                with warp.narrowed(np.equal(LANES, 0)):
                    address = warp.addresses(*place)
                    address = to_shared(address) if generic else address
                    warp.cta.shared.write(warp, site, address, 4, np.array([first], np.uint32))
        path.block = ways.following
        return None

    return end


def _lower_dealloc(context: Lowering, instruction: Instruction) -> Step:
    """`tcgen05.dealloc.cta_group::G.sync.aligned.b32 taddr, n`."""
    modifiers = context.modifiers(instruction, 2)
    _take(modifiers, "dealloc", "sync", "aligned", "b32")
    ctas = _take_group(instruction, modifiers)
    modifiers.finish()
    place, columns = (context.source(instruction, operand, _U32) for operand in instruction.operands)
    site = context.site

    def step(warp: Warp) -> None:
        _check_whole(warp, site)
        unit = warp.cta.cluster.tensor
        unit.check_group(warp, site, ctas)
        first = _uniform(warp, site, warp.cells[place], "the address")
        count = _uniform(warp, site, warp.cells[columns], "the number of columns")
        memory = unit.memory(warp.cta.rank)
        allocated = memory.allocations.get(first, (0, None))[0]
        if allocated != count:
            found = f"{allocated} columns are allocated" if allocated else "no tcgen05.alloc has returned this address"
            message = f"tcgen05.dealloc of {count} columns at {first:#x}: {found}"
            warp.cta.fault(ViolationKind.TENSOR_MEMORY, site, int(warp.threads()[0]), message, first, always=True)
        access = unit.order.access(warp, site, Way.DEALLOC)
        if ctas == 2:
            unit.memory(warp.cta.rank ^ 1).free_by_peer(access, first, count)
        memory.free(access, first, count)

    return step


def _lower_relinquish(context: Lowering, instruction: Instruction) -> Step:
    """`tcgen05.relinquish_alloc_permit.cta_group::G.sync.aligned`."""
    modifiers = context.modifiers(instruction, 0)
    _take(modifiers, "relinquish_alloc_permit", "sync", "aligned")
    ctas, site = _take_group(instruction, modifiers), context.site
    modifiers.finish()

    def step(warp: Warp) -> None:
        _check_whole(warp, site)
        unit = warp.cta.cluster.tensor
        unit.check_group(warp, site, ctas)
        unit.memory(warp.cta.rank).has_relinquished = True

    return step


def _lower_wait(context: Lowering, instruction: Instruction) -> Step:
    """`tcgen05.wait::ld.sync.aligned`, `tcgen05.wait::st.sync.aligned`."""
    modifiers = context.modifiers(instruction, 0)
    loads = modifiers.need("wait::ld", "wait::st") == "wait::ld"
    _take(modifiers, "sync", "aligned")
    modifiers.finish()
    site = context.site

    def step(warp: Warp) -> None:
        _check_whole(warp, site)
        if loads:
            warp.loads.wait()
        else:
            warp.stores.wait()
        warp.cta.cluster.tensor.order.wait(warp, Way.LOAD if loads else Way.STORE)

    return step


def _lower_fence(context: Lowering, instruction: Instruction) -> Step:
    """`tcgen05.fence::before_thread_sync`, `tcgen05.fence::after_thread_sync`."""
    modifiers = context.modifiers(instruction, 0)
    before = modifiers.need("fence::before_thread_sync", "fence::after_thread_sync") == "fence::before_thread_sync"
    modifiers.finish()
    if before:
        return lambda warp: warp.cta.cluster.tensor.order.fence_before(warp)
    return lambda warp: warp.cta.cluster.tensor.order.fence_after(warp)


class _Words:
    """The words of a load or a store, by the address that a warp gives."""

    def __init__(self, instruction: Instruction, modifiers: Modifiers, registers: int, packing: str) -> None:
        shape = modifiers.one_of(*SHAPES)
        times = modifiers.one_of(*(f"x{1 << power}" for power in range(8)))
        self._packed = modifiers.flag(packing)
        _take(modifiers, "sync", "aligned", "b32")
        modifiers.finish()
        if shape is None or times is None:
            raise instruction.error(f"expected one of .{', .'.join(SHAPES)}, and .x1 to .x128")
        per_time, most = SHAPES[shape]
        count = int(times[1:])
        if count > most or per_time * count != registers:
            message = f".{shape}.{times} has {per_time * count} registers, at most {_MOST_REGISTERS}; found {registers}"
            raise instruction.error(message)
        self._narrow = shape.startswith("16x")
        second = _second_column(instruction) if shape == "16x32bx2" else 0
        self._lanes, self._columns = warp_words(shape, count, second)

    def of(self, warp: Warp, site: int, address: int) -> list[Region]:
        """The words of each register (registers, 32); of packed ones the low halves, then the high halves."""
        lane, column = address >> LANE_SHIFT, address & ((1 << LANE_SHIFT) - 1)
        quarter = warp.number % 4
        offset = lane % QUARTER_LANES
        if offset not in ((0, 16) if self._narrow else (0,)):
            message = f"lane {lane}; expected a multiple of {16 if self._narrow else 32}"
            warp.cta.fault(ViolationKind.TENSOR_MEMORY, site, int(warp.threads()[0]), message, address, always=True)
        if lane // QUARTER_LANES != quarter:
            message = f"lane {lane} of tensor memory from warp {warp.number}, which reaches lanes"
            message += f" {32 * quarter} to {32 * quarter + 31}: hardware ignores the upper bits of the lane"
            warp.cta.fault(ViolationKind.CONVENTION, site, int(warp.threads()[0]), message, address)
        lanes = self._lanes + (QUARTER_LANES * quarter + offset)
        width = 2 if self._packed else 1
        if column + width * (int(self._columns.max()) + 1) > COLUMNS:
            message = f"columns from {column} on, beyond the {COLUMNS} of tensor memory"
            warp.cta.fault(ViolationKind.OUT_OF_BOUNDS, site, int(warp.threads()[0]), message, address, always=True)
        return [Region(lanes, column + width * self._columns + i) for i in range(width)]


def _second_column(instruction: Instruction) -> int:
    """The immediate of `.16x32bx2`."""
    found = [operand.value for operand in instruction.operands if isinstance(operand, Immediate)]
    if len(found) != 1 or not isinstance(found[0], int):
        raise instruction.error("expected an immediate, the column of the second half")
    return found[0]


def _registers(instruction: Instruction, operand: Operand) -> tuple[Operand, ...]:
    return operand.items if isinstance(operand, Vector) else (operand,)


def _lower_load(context: Lowering, instruction: Instruction) -> Step:
    """`tcgen05.ld.sync.aligned.shape.xN{.pack::16b}.b32 r, [taddr]{, imm}`."""
    modifiers = Modifiers(instruction)
    modifiers.need("ld")
    if modifiers.has("red"):
        raise instruction.error("tcgen05.ld.red is not supported")
    count_operands(instruction, 3 if "16x32bx2" in instruction.parts else 2)
    items = _registers(instruction, instruction.operands[0])
    rows = context.rows32(instruction, items)
    words = _Words(instruction, modifiers, len(items), "pack::16b")
    if len(set(rows.tolist())) != len(rows):
        raise instruction.error("expected registers that are all different")
    place, site = context.address(instruction, instruction.operands[1]), context.site

    def step(warp: Warp) -> None:
        _check_whole(warp, site)
        unit = warp.cta.cluster.tensor
        address = _uniform(warp, site, warp.addresses(*place), "the address")
        regions, memory = words.of(warp, site, address), unit.memory(warp.cta.rank)
        access = unit.order.access(warp, site, Way.LOAD)
        for region in regions:
            memory.shadow.read(access, region)

        def read() -> np.ndarray:
            values = memory.words[regions[0].index]
            if len(regions) == 1:
                return values
            return values & 0xFFFF | memory.words[regions[1].index] << 16

        warp.loads.issue(rows, read, access.tick, site, at_once=warp.cta.schedule.lands_at_once())

    return step


def _lower_store(context: Lowering, instruction: Instruction) -> Step:
    """`tcgen05.st.sync.aligned.shape.xN{.unpack::16b}.b32 [taddr]{, imm}, r`."""
    modifiers = Modifiers(instruction)
    modifiers.need("st")
    count_operands(instruction, 3 if "16x32bx2" in instruction.parts else 2)
    items = _registers(instruction, instruction.operands[-1])
    rows = context.rows32(instruction, items)
    words = _Words(instruction, modifiers, len(items), "unpack::16b")
    place, site = context.address(instruction, instruction.operands[0]), context.site

    def step(warp: Warp) -> None:
        _check_whole(warp, site)
        unit = warp.cta.cluster.tensor
        address = _uniform(warp, site, warp.addresses(*place), "the address")
        regions, memory = words.of(warp, site, address), unit.memory(warp.cta.rank)
        access = unit.order.access(warp, site, Way.STORE)
        for region in regions:
            memory.shadow.write(access, region)
        values = warp.files[32][rows]

        def write() -> None:
            if len(regions) == 1:
                memory.words[regions[0].index] = values
                return
            memory.words[regions[0].index] = values & 0xFFFF
            memory.words[regions[1].index] = values >> 16

        warp.stores.issue(write, at_once=warp.cta.schedule.lands_at_once())

    return step


def _filled_rows(instruction: Instruction) -> set[int]:
    """The registers of a load."""
    items = _registers(instruction, instruction.operands[0]) if instruction.operands else ()
    return {item.row for item in items if isinstance(item, Register) and item.file_bits == 32}


def _each_lane(warp: Warp, act: Callable[[int], None]) -> None:
    """Calls `act` with each active lane, which is then the only active one."""
    for lane in warp.lanes().tolist():
        with warp.narrowed(np.equal(LANES, lane)):
            act(lane)


def _lower_mma(context: Lowering, instruction: Instruction) -> Step:
    """`tcgen05.mma.cta_group::G.kind::K{.block_scale{.size}}{.collector::a::discard} [d], a, b, i, ...`."""
    modifiers = Modifiers(instruction)
    modifiers.need("mma")
    for word, what in _REFUSED.items():
        if modifiers.has(word):
            raise instruction.error(f"tcgen05.mma with {what} is not supported")
    ctas = _take_group(instruction, modifiers)
    kind = modifiers.need(*(f"kind::{kind}" for kind in KINDS)).removeprefix("kind::")
    modifiers.flag("collector::a::discard")
    scaled = kind.startswith("mx")
    if modifiers.flag("block_scale") != scaled:
        raise instruction.error(f"kind::{kind} {'needs' if scaled else 'has no'} .block_scale")
    form = MmaForm(kind=kind, ctas=ctas, blocks=_take_blocks(instruction, modifiers, kind) if scaled else 0)
    modifiers.finish()
    return _issue_of(context, instruction, form)


def _take_blocks(instruction: Instruction, modifiers: Modifiers, kind: str) -> int:
    """Factors per row and instruction."""
    sizes = {"block16": 4, "block32": 1 if kind == "mxf8f6f4" else 2, **_BLOCKS}
    word = modifiers.one_of(*sizes)
    if word is None and kind == "mxf4nvf4":
        raise instruction.error("kind::mxf4nvf4 names the size of its blocks, .block16 or .block32")
    blocks = sizes[word] if word else 2 if kind in PACKED_KINDS else 1
    if blocks not in {"mxf8f6f4": (1,), "mxf4": (2,), "mxf4nvf4": (2, 4)}[kind]:
        raise instruction.error(f"kind::{kind} has no .{word}")
    return blocks


def _issue_of(context: Lowering, instruction: Instruction, form: MmaForm) -> Step:
    operands = list(instruction.operands)
    scaled = form.blocks > 0
    disables = not scaled and len(operands) > 4 and isinstance(operands[4], Vector)
    expected = 7 if scaled else 5 + disables
    if len(operands) == expected + 1 and not scaled:
        raise instruction.error("tcgen05.mma with scale-input-d is not supported")
    count_operands(instruction, expected)
    in_tensor_memory = isinstance(operands[1], Address)
    d = context.address(instruction, operands[0])
    a_place = context.address(instruction, operands[1]) if in_tensor_memory else None
    a = None if in_tensor_memory else context.source(instruction, operands[1], _B64)
    b, kind = context.source(instruction, operands[2], _B64), context.source(instruction, operands[3], _U32)
    factors = [context.address(instruction, each) for each in operands[4:6]] if scaled else []
    mask = None
    if disables:
        mask = [
            context.source(instruction, each, _U32) for each in context.vector(instruction, operands[4], 4 * form.ctas)
        ]
    accumulates, inverted = context.predicate(instruction, operands[-1])
    site = context.access(instruction, "shared", 16)

    def step(warp: Warp) -> None:
        def act(lane: int) -> None:
            cells = warp.cells
            given = MmaOperands(
                d=_address(warp, d),
                a=0 if a is None else int(cells[a][lane]),
                b=int(cells[b][lane]),
                a_address=None if a_place is None else _address(warp, a_place),
                instruction=int(cells[kind][lane]),
                accumulates=bool(cells[accumulates][lane]) != inverted,
                disabled=None if mask is None else _bits([int(cells[each][lane]) for each in mask]),
                factors=(_address(warp, factors[0]), _address(warp, factors[1])) if factors else None,
            )
            issue_mma(warp, site, form, given)

        _each_lane(warp, act)

    return step


def _address(warp: Warp, place: tuple[int, int]) -> int:
    """The address of the only active lane."""
    return int(warp.addresses(*place)[0]) & 0xFFFFFFFF


def _bits(words: list[int]) -> np.ndarray:
    return np.array([word >> bit & 1 for word in words for bit in range(32)], bool)


def _lower_copy(context: Lowering, instruction: Instruction) -> Step:
    """`tcgen05.cp.cta_group::G.shape{.multicast} [taddr], s-desc`."""
    modifiers = context.modifiers(instruction, 2)
    modifiers.need("cp")
    if modifiers.has("b8x16") or modifiers.has("4x256b"):
        what = "decompression" if modifiers.has("b8x16") else ".4x256b"
        raise instruction.error(f"tcgen05.cp with {what} is not supported")
    ctas = _take_group(instruction, modifiers)
    name = modifiers.need(*dict.fromkeys(name for name, _ in COPY_SHAPES))
    copies = [multicast for shape, multicast in COPY_SHAPES if shape == name and multicast is not None]
    multicast = modifiers.need(*copies) if copies else None
    modifiers.finish()
    shape = COPY_SHAPES[name, multicast]
    place = context.address(instruction, instruction.operands[0])
    source = context.source(instruction, instruction.operands[1], _B64)
    site = context.access(instruction, "shared", 16)

    def step(warp: Warp) -> None:
        def act(lane: int) -> None:
            issue_copy(warp, site, shape, ctas, _address(warp, place), int(warp.cells[source][lane]))

        _each_lane(warp, act)

    return step


def _lower_shift(context: Lowering, instruction: Instruction) -> Step:
    """`tcgen05.shift.cta_group::G.down [taddr]`."""
    modifiers = context.modifiers(instruction, 1)
    _take(modifiers, "shift", "down")
    ctas = _take_group(instruction, modifiers)
    modifiers.finish()
    place, site = context.address(instruction, instruction.operands[0]), context.site
    return lambda warp: _each_lane(warp, lambda _: issue_shift(warp, site, ctas, _address(warp, place)))


def _lower_commit(context: Lowering, instruction: Instruction) -> Step:
    """`tcgen05.commit.cta_group::G.mbarrier::arrive::one{.shared::cluster}{.multicast::cluster}.b64 [a]{, mask}`."""
    modifiers = Modifiers(instruction)
    _take(modifiers, "commit", "mbarrier::arrive::one", "b64")
    ctas = _take_group(instruction, modifiers)
    generic, multicast = not modifiers.flag("shared::cluster"), modifiers.flag("multicast::cluster")
    modifiers.finish()
    count_operands(instruction, 1 + multicast)
    place = context.address(instruction, instruction.operands[0])
    mask = context.source(instruction, instruction.operands[1], _U16) if multicast else None
    site = context.access(instruction, "shared", 8)

    def step(warp: Warp) -> None:
        def act(lane: int) -> None:
            unit = warp.cta.cluster.tensor
            unit.check_group(warp, site, ctas)
            addresses = warp.addresses(*place)
            address = int((to_shared(addresses) if generic else addresses)[0])
            ranks = None if mask is None else int(warp.cells[mask][lane])
            unit.commit(warp, site, _targets(warp, site, address, ranks))

        _each_lane(warp, act)

    return step


def _targets(warp: Warp, site: int, address: int, mask: int | None) -> list[Target]:
    """The mbarriers at which a commit arrives: one, or those at the same offset in each CTA of a mask."""
    cluster, thread = warp.cta.cluster, int(warp.threads()[0])
    if mask is None:
        places = [cluster.at(warp, site, thread, address)]
    else:
        if mask >> len(cluster.ctas):
            message = f"the multicast mask {mask:#x} names CTAs beyond a cluster of {len(cluster.ctas)}"
            warp.cta.fault(ViolationKind.OUT_OF_BOUNDS, site, thread, message, always=True)
        here = [(rank, in_cta(rank, address)) for rank in range(MAX_CLUSTER_CTAS) if mask >> rank & 1]
        places = [(cluster.peer(warp, site, thread, rank, at), at) for rank, at in here]
    return [(cta, cta.mbarriers.at(warp, site, [thread], at)) for cta, at in places]


_TENSOR_CORE = "wait for a tcgen05.commit"
ROWS = {
    "tcgen05.alloc": Row(end=_alloc, ends=Ends.WAIT),
    "tcgen05.dealloc": Row(step=_lower_dealloc, sources_only=True),
    "tcgen05.relinquish_alloc_permit": Row(step=_lower_relinquish),
    **dict.fromkeys(("tcgen05.wait::ld", "tcgen05.wait::st"), Row(step=_lower_wait)),
    **dict.fromkeys(("tcgen05.fence::before_thread_sync", "tcgen05.fence::after_thread_sync"), Row(step=_lower_fence)),
    "tcgen05.ld": Row(step=_lower_load, fills=_filled_rows),
    "tcgen05.st": Row(step=_lower_store),
    "tcgen05.mma": Row(step=_lower_mma, agent=tensor_core("tcgen05.mma", awaited_by=_TENSOR_CORE)),
    "tcgen05.cp": Row(step=_lower_copy, agent=tensor_core("tcgen05.cp", awaited_by=_TENSOR_CORE)),
    "tcgen05.shift": Row(step=_lower_shift),
    "tcgen05.commit": Row(step=_lower_commit, passes_seen=True),
}
