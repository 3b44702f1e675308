"""Proves a finished plan again from layout algebra, independently of the rules that made it."""

from collections import Counter
from functools import cache
from itertools import combinations, product
from math import gcd, prod

import numpy as np

from cutegen.algebra import TiledMma, inner_layout, modes, offsets, offsets_2d, size
from cutegen.contract.launch import RESULT
from cutegen.contract.problem import Pairs, ProblemShape
from cutegen.contract.tensor_map import BOX_MULTIPLE_BYTES
from cutegen.errors import ProofError
from cutegen.hardware import LdmatrixAtom, MmaAtom, StmatrixAtom, ldmatrix_trace
from cutegen.hardware.factor_atoms import ATOM_ROWS, ATOM_WORDS, COLUMN_ROWS, copy_of
from cutegen.hardware.tcgen05 import COLUMNS, columns_of_sums, places_of_sums
from cutegen.hardware.units import BANK_BYTES, BULK_ALIGN_BYTES, REGISTER_BITS, WARP, WARPGROUP
from cutegen.plan.gemm_plan import GemmPlan
from cutegen.plan.geometry import Coordinates, along_and_across, fragment_loads, over_tile, vectors
from cutegen.plan.kernel.accumulator import Accumulator, Home
from cutegen.plan.kernel.handshakes import prove_handshakes
from cutegen.plan.kernel.memory import BARRIERS, LARGEST, SLICES, Phase
from cutegen.plan.kernel.pipeline import AB, C_STORE, MBARRIER_BYTES, OF_FACTORS, Scope, mbarriers_bytes
from cutegen.plan.kernel.program import Action
from cutegen.plan.kernel.scheduler import SUM_VECTOR_ELEMS, TileOrder, WorkTile
from cutegen.plan.operands.factor_atoms import WORDS_OF_ROWS
from cutegen.plan.values.copies import BulkTensorCopy, TileCopy, VectorCopy
from cutegen.plan.values.epilogue import EpilogueParts, EpiloguePlan, Quantization
from cutegen.plan.values.fragments import ByDescriptor, CopiedToTmem, FragmentCopy, LdmatrixLoads, PlainLoads
from cutegen.plan.values.gemm_plan import MmaPlan
from cutegen.plan.values.operand import SmemTile
from cutegen.plan.values.path import ROWS, OperandPath, fragment_table
from cutegen.spec import MODES

MATRIX_ROWS = 8
ROW_BYTES = 16
MOST_COUNTED = 127
"""Most CTAs of a tile that add its slices together: each byte of a signed counter counts the CTAs in one state."""


def prove(plan: GemmPlan) -> None:
    """Raise ProofError unless the plan moves every element exactly once, aligned, to its place for the tensor core."""
    for operand in plan.operands:
        along = plan.mma.copied[ROWS.index(operand.operand)], plan.cta_tile[2]
        holds = all(have >= needed for have, needed in zip(operand.covers, along, strict=True))
        matches = operand.covers == along if operand.is_multiplied else holds
        _demand(matches, f"{operand.name}'s tile does not match the CTA tile")
        _prove_placed(f"smem.{operand.name}", operand.smem, (*operand.tile, plan.stages), operand.dtype.bytes)
        copying = plan.loop.fetching(operand.g2s.fetch).threads
        _prove_copy(f"g2s.{operand.name}", operand.g2s, operand.smem, operand, operand.tile, copying)
        if operand.is_multiplied:
            source = plan.atom.source(operand.operand)
            _demand(operand.home is source, f"{operand.name} is in {operand.home}, and the MMA reads {source}")
            _prove_fragments(operand, plan.mma)
            read = (plan.atom.a_dtype, plan.atom.b_dtype)[ROWS.index(operand.operand)]
            left = operand.multiplied
            _demand(left is read, f"{operand.name} is {left.name} in registers, and the MMA reads {read.name}")
        else:
            pairs = plan.epilogue.fusion.pairs
            _prove_factors(operand, plan.mma, 2 if pairs and pairs.operand == operand.operand.lower() else 1)
    _prove_roles(plan)
    _prove_pipelines(plan)
    prove_handshakes(plan.loop)
    _prove_accumulator(plan.mma)
    tile = plan.epilogue.fusion.tile_of_c((plan.cta_tile[0], plan.cta_tile[1]))
    _prove_epilogue(plan.epilogue, tile, plan.threads, plan.mma.accumulator.group_threads)
    _prove_edge(plan)
    if plan.epilogue.parts is not None:
        _prove_parts(plan.epilogue.parts, plan.epilogue, plan.mma.accumulator)
    _prove_fusion(plan)
    _prove_split_k(plan)
    _prove_memory(plan)
    _prove_scheduler(plan)
    _prove_groups(plan)


def _prove_roles(plan: GemmPlan) -> None:
    """Prove that the threads of the tiled MMA are a role's, and that `setmaxnreg` is executed by whole warpgroups."""
    role = plan.mma.role
    tiled = plan.tiled_mma.threads * (role.groups if role.alternates else 1)
    multiplying = plan.loop.role(plan.loop.main.role).threads
    counts = f"{multiplying} threads multiply, {role.name} has {role.threads} and the tiled MMA {tiled}"
    _demand(tiled == role.threads == multiplying, counts)
    registers = [each.registers for each in plan.roles for _ in range(0, each.threads, WARP)]
    of_warpgroups = (set(registers[i : i + WARPGROUP // WARP]) for i in range(0, len(registers), WARPGROUP // WARP))
    equal = all(len(found) == 1 for found in of_warpgroups)
    _demand(equal, "the warps of a warpgroup request different numbers of registers")


def _prove_pipelines(plan: GemmPlan) -> None:
    """Prove that pipelines hold what the plan copies, stores and adds: their bytes, and the CTAs that share them."""
    loop, k, multiply_for = plan.loop, plan.mma.cluster[2], plan.atom.ctas
    ab, store = loop.pipeline(AB), loop.pipeline(C_STORE)
    _demand(ab is not None and ab.stages == plan.stages, "the pipeline of k-tiles has other stages than the plan")
    if len(plan.roles) == 1:
        return
    assert ab is not None
    for each in filter(None, (ab, loop.pipeline(OF_FACTORS))):
        by_boxes = (x for x in plan.operands if x.g2s.fetch is Action.BULK_FETCH and plan.pipeline_of(x) is each)
        ctas, found = 1 if each.scope is Scope.CTA else multiply_for, each.payload_bytes
        copied = ctas * sum(x.tile[0] * x.tile[1] * x.dtype.bytes for x in by_boxes)
        _demand(found == copied, f"a stage of {each.name} waits for {found} bytes, and copies bring {copied}")
    released, fill = ab.empty.arrivals[0].ctas if ab.empty is not None else 0, sum(plan.mma.sharing) - 1
    _demand(released == fill, f"a stage is released {released} times, and {fill} CTAs or pairs multiply what is in it")
    scope = {multiply_for: Scope.PAIR, 1: Scope.CTA}.get(prod(plan.mma.cluster[:2]), Scope.CLUSTER)
    _demand(ab.scope is scope, f"stages are shared by a {ab.scope}, and multiplied for a {scope}")
    adds = any(each.within == AB for each in loop.pipelines)
    _demand(adds == (k > 1), "a cluster's slices of K and the pipeline that adds them are not both there")
    _demand((store is None) == (plan.epilogue.smem is None), "C's shared memory and its pipeline are not both there")
    if store is not None and plan.epilogue.smem is not None:
        groups = plan.loop.role(store.producers[0]).groups if store.scope is Scope.GROUP else 1
        buffers_bytes = store.payload_bytes * store.stages * groups
        _demand(buffers_bytes == plan.epilogue.smem.bytes, "C's shared memory is not that of its pipeline's buffers")


def _demand(holds: bool, what: str) -> None:
    if not holds:
        raise ProofError(f"{what}: this is a defect of cutegen, please report the spec")


def _covers_once(table: Coordinates, elems: int) -> bool:
    return table.size == elems and _covers(table, elems)


def _covers(table: Coordinates, elems: int) -> bool:
    """Return whether the table has each of the elements 0, 1 ... elems - 1, and nothing else."""
    return bool(table.min() >= 0) and _distinct(table) == elems == table.max() + 1


def _distinct(table: Coordinates) -> int:
    """Count the distinct non-negative numbers of a table by flags: `numpy.unique` would sort or hash all."""
    seen = np.zeros(int(table.max()) + 1, bool)
    seen[table] = True
    return int(np.count_nonzero(seen))


def _prove_copy(
    key: str,
    copy: TileCopy,
    smem: SmemTile,
    matrix: OperandPath | EpiloguePlan,
    tile: tuple[int, int],
    threads: int,
) -> None:
    """Prove that elements arrive where the layout has them, each once."""

    def by_vectors(copy: VectorCopy) -> None:
        _prove_vectors(key, copy, tile, matrix.major_mode, threads)
        _demand(copy.bits <= 8 * matrix.align_bytes, f"{key} copies more bytes than are aligned")
        _prove_together(key, copy, smem, tile)

    copy.by_kind(vectors=by_vectors, boxes=lambda copy: _prove_boxes(key, copy, smem, matrix, tile))


def _prove_boxes(
    key: str, copy: BulkTensorCopy, smem: SmemTile, matrix: OperandPath | EpiloguePlan, tile: tuple[int, int]
) -> None:
    """Prove that each element is where a tensor map writes it: by boxes, by rows, in swizzled 16-byte chunks.

    Bits 4 to 6 of a byte's address are XORed with its bits 7 to 9, as many as the swizzle has.
    """
    width, rows = copy.box[0], copy.box[1] * copy.shares
    share_bytes = copy.box[0] * copy.box[1] * matrix.dtype.bytes
    _demand(
        copy.shares == 1 or share_bytes % BULK_ALIGN_BYTES == 0, f"{key} begins at an address where no box may begin"
    )
    _demand(matrix.align_bytes % ROW_BYTES == 0, f"{key} needs addresses and strides that are multiples of 16 bytes")
    _demand((width * copy.boxes, rows) == (tile[matrix.major_mode], tile[1 - matrix.major_mode]), f"{key} leaves gaps")
    along, across = along_and_across(np.arange(tile[0] * tile[1]), tile, matrix.major_mode)
    address = ((along // width * rows + across) * width + along % width) * matrix.dtype.bytes
    address ^= (address >> 7 & (1 << copy.swizzle_bits) - 1) << 4
    placed = _one_stage(smem, tile) * matrix.dtype.bytes
    _demand(np.array_equal(address, placed), f"{key} does not write where the layout says")
    stages = offsets(inner_layout(smem.layout))[:: tile[0] * tile[1]] * matrix.dtype.bytes
    _demand(not (stages % copy.period_bytes).any(), f"{key} has a stage that does not begin at a period of the swizzle")


def _prove_vectors(key: str, copy: VectorCopy, tile: tuple[int, int], major_mode: int, threads: int) -> None:
    """Prove that each element is in one vector of one thread, and each vector is aligned along the contiguous mode."""
    table = vectors(copy.threads, copy.values, tile)
    length = table.shape[2]
    _demand(table.shape[1] == threads, f"{key} uses {table.shape[1]} of {threads} threads")
    _demand(copy.bits == length * copy.tiled_copy.bits, f"{key} moves {length} elements but claims {copy.bits} bits")
    _demand(_covers_once(table, tile[0] * tile[1]), f"{key} does not copy every element of the tile exactly once")
    along, across = along_and_across(table, tile, major_mode)
    straight = (across == across[..., :1]).all() and _runs(along)
    _demand(bool(straight), f"{key} has vectors that are not aligned along the contiguous mode")


def _runs(table: Coordinates) -> bool:
    """Return whether each vector [..., length] counts up by one from a multiple of its length."""
    length = table.shape[-1]
    return bool((table == table[..., :1] + np.arange(length)).all() and (table[..., 0] % length == 0).all())


def _prove_together(key: str, copy: VectorCopy, smem: SmemTile, tile: tuple[int, int]) -> None:
    """Prove that each vector is contiguous and aligned in shared memory too."""
    placed = _one_stage(smem, tile)[vectors(copy.threads, copy.values, tile)]
    _demand(_runs(placed), f"{key} has vectors that are not contiguous and aligned in shared memory")


def _one_stage(smem: SmemTile, tile: tuple[int, int]) -> Coordinates:
    return offsets(smem.layout)[: tile[0] * tile[1]]


def _prove_placed(key: str, smem: SmemTile, shape: tuple[int, ...], element_bytes: int) -> None:
    """Prove that every element of every stage has its own place within the reserved bytes."""
    inner, table = inner_layout(smem.layout), offsets(smem.layout)
    _demand(tuple(map(size, modes(inner))) == shape, f"{key} does not hold {shape} elements")
    last = int(table.max() + 1) * element_bytes
    _demand(table.min() >= 0 and last <= smem.bytes, f"{key} reaches past its {smem.bytes} bytes")
    _demand(_distinct(table) == table.size, f"{key} puts two elements at one offset")


def _prove_fragments(operand: OperandPath, mma: MmaPlan) -> None:
    """Prove that registers receive the elements that the MMA atom expects."""
    key = f"s2r.{operand.name}"
    operand.s2r.by_source(
        copied=lambda copy: _prove_copied(key, operand, copy, mma.tiled_mma),
        described=lambda described: _prove_described(key, operand, described, mma.atom),
        read=lambda _: _demand(False, f"{key} has no fragments that an MMA multiplies"),
        to_tmem=lambda _: _demand(False, f"{key} is copied to tensor memory, from which no MMA here multiplies"),
    )


def _prove_copied(key: str, operand: OperandPath, copy: FragmentCopy, tiled_mma: TiledMma) -> None:
    op = operand.operand
    wanted = over_tile(offsets_2d(tiled_mma.tv_layout(op)), tiled_mma.tile_of(op), operand.tile)
    _demand(_covers(wanted, operand.tile[0] * operand.tile[1]), f"{key} leaves out elements of the tile")
    copy.by_kind(
        ldmatrix=lambda copy: _prove_ldmatrix(key, operand, copy, tiled_mma, wanted),
        plain=lambda copy: _prove_plain(key, operand, copy, tiled_mma),
    )


def _prove_factors(operand: OperandPath, mma: MmaPlan, members: int) -> None:
    """Prove that each sum of a k-tile is scaled by the factor of its block, wherever among blocks the tile begins.

    Tiles begin at multiples of their extent, and a tile of factors at the block of its first row, or so many sooner
    that its box begins at a multiple of 16 bytes. Each of the `members` of pairs has one half of the rows of both, and
    blocks of its own.
    """
    key = f"s2r.{operand.name}"
    in_atoms = operand.s2r.to_tmem
    if in_atoms is not None:
        _prove_atoms(key, operand, in_atoms, mma, members)
        return
    read = operand.s2r.read
    of_sums, first = (None, None) if read is None else (read.of_sums, read.first)
    _demand(operand.s2r.in_registers, f"{key} is read by the MMA, not by the threads of the sums")
    if of_sums is None or first is None:
        return
    (rows, of_k), extent = operand.block, mma.cta_tile[ROWS.index(operand.operand)]
    promotion, accumulator = mma.accumulator.promotion, mma.accumulator
    of_block = promotion is not None and promotion.k == of_k and of_k % mma.cta_tile[2] == 0
    _demand(of_block, f"{key} scales sums of another K than that of a block")
    held = offsets_2d(accumulator.layout)  # [thread, sum]
    along = held % accumulator.tile[0] if operand.operand == "A" else held // accumulator.tile[0]
    numbers, firsts = offsets(of_sums), offsets(first)
    fits = numbers.size == held.shape[1] and numbers.max() < firsts.size and firsts.max() < held.shape[1]
    _demand(bool(fits), f"{key} has another number of sums than a thread")
    half, room = extent // members, operand.tile[0] // members
    for begin in range(0, rows, gcd(half, rows)):
        within = (begin + along % half) // rows
        sooner = operand.box_steps[0] - 1
        _demand(sooner + int(within.max()) < room, f"{key} reads a factor that is not in the tile")
        block = within + along // half * room
        scaled = np.array_equal(block, block[:, firsts[numbers]])
        _demand(scaled, f"{key} scales a sum by the factor of another block")


def _prove_atoms(key: str, operand: OperandPath, copy: CopiedToTmem, mma: MmaPlan, members: int) -> None:
    """Prove that each row of each k-block finds its word in tensor memory, by what the PTX ISA says of `tcgen05.cp`.

    A copy reads 32 rows of 16 bytes by its descriptor, and has a row at a lane and 4 columns. Row r of an atom is at
    lane r mod 32, column r / 32. A tile begins at a whole column of an atom. Each of the `members` of pairs fills atoms
    of its own, whose columns follow the other's. Each CTA that multiplies has the factors of its rows of A and of all
    columns of B, from its own shared memory.
    """
    extent, (blocks, words) = mma.cta_tile[ROWS.index(operand.operand)], operand.tile
    need, receive = mma.sharing_factors[ROWS.index(operand.operand)], operand.g2s.receivers
    _demand(receive == need, f"g2s.{operand.name} reaches {receive} of {need} CTAs that multiply by it")
    _demand(copy.instruction == copy_of(mma.atom.ctas), f"{key} does not copy in each of {mma.atom.ctas} CTAs")
    of_member = extent // members
    begins = range(0, operand.block[0], gcd(of_member, operand.block[0]))
    _demand(members == 1 or len(begins) == 1, f"{key} has atoms with columns of both members")
    _demand(all(begin % COLUMN_ROWS == 0 for begin in begins), f"{key} begins within a column of factors")
    needed = max(begin + extent for begin in begins)
    _demand(blocks * operand.block[0] >= needed, f"{key} has fewer rows of factors than a tile meets")
    along_k = words // ATOM_WORDS
    _demand(int(size(copy.atoms)) == along_k * blocks, f"{key} has another number of copies than atoms")
    stage = offsets_2d(operand.smem.layout_of_one_stage) * operand.dtype.bytes  # [block of rows, word]
    of_rows, starts = offsets(WORDS_OF_ROWS), offsets_2d(copy.atoms)  # starts: [atom along K, block of rows]
    row = np.arange(ATOM_ROWS)
    for atom, block in product(range(along_k), range(blocks)):
        read = copy.first.advanced(int(starts[atom, block])).addresses(COLUMN_ROWS, 1, 1)[:, :ROW_BYTES]
        found = read[row % COLUMN_ROWS, row // COLUMN_ROWS * operand.dtype.bytes]
        placed = stage[block, atom * ATOM_WORDS + of_rows]
        _demand(np.array_equal(found, placed), f"{key} copies other words than those of the rows")


def _prove_described(key: str, operand: OperandPath, described: ByDescriptor, atom: MmaAtom) -> None:
    """Prove that each instruction reads its block where the layout has it, with the PTX ISA's descriptor addresses.

    A block begins at the unswizzled place of its first element: an offset added to a descriptor's start address is
    swizzled with it.
    """
    rows, k = atom.rows(operand.operand), atom.shape_mnk[2]
    _demand(operand.tile[0] % rows == operand.tile[1] % k == 0, f"{key} leaves out elements of the tile")
    stage, element_bytes = operand.smem.layout_of_one_stage, operand.dtype.bytes
    plain, placed = (offsets_2d(layout) * element_bytes for layout in (inner_layout(stage), stage))  # [X, K]
    for x, column in product(range(0, operand.tile[0], rows), range(0, operand.tile[1], k)):
        units, rest = divmod(int(plain[x, column]), ROW_BYTES)
        _demand(rest == 0, f"{key} has a block that does not begin at a multiple of 16 bytes")
        read = described.first.advanced(units).addresses(rows, operand.major_mode, element_bytes)
        _demand(
            np.array_equal(read, placed[x : x + rows, column : column + k]),
            f"{key} does not read where the layout says",
        )


def _prove_plain(key: str, operand: OperandPath, copy: PlainLoads, tiled_mma: TiledMma) -> None:
    loads = fragment_loads(tiled_mma, operand.operand, operand.tile, copy.bits // operand.dtype.bits, copy.along_mode)
    runs = _runs(_one_stage(operand.smem, operand.tile)[loads])
    _demand(runs, f"{key} has loads that are not contiguous and aligned")


def _prove_ldmatrix(
    key: str, operand: OperandPath, copy: LdmatrixLoads, tiled_mma: TiledMma, wanted: Coordinates
) -> None:
    """Prove `ldmatrix` by simulation, as the PTX ISA defines it: every lane addresses a row of 16 bytes.

    From each matrix of 8 rows, thread t receives 4 bytes, the (t mod 4)-th of row t / 4: 16-bit elements 2 (t mod 4)
    and 2 (t mod 4) + 1. With .trans it receives the same of column t / 4; a column consists of 16-bit elements. From
    matrices of 16 rows, with 8-bit elements, it receives column t / 4, then column t / 4 + 8.
    """
    atom, values, bits = copy.atom, tiled_mma.values(operand.operand), operand.dtype.bits
    _demand(values * bits % (REGISTER_BITS * atom.registers) == 0, f"{key}: {values} values do not fill {atom.name}")
    _demand(
        bits == atom.element_bits or not atom.transpose, f"{key}: {atom.name} does not transpose {operand.dtype.name}"
    )
    stage, order = operand.smem.layout_of_one_stage, copy.order
    trace = ldmatrix_trace(tiled_mma, operand.operand, stage, atom, bits, order)
    _demand(trace.legal, f"{key}: {trace.illegal_rows()}")
    placed = _one_stage(operand.smem, operand.tile)
    memory = np.full(int(placed.max()) + 1, -1)
    memory[placed] = np.arange(placed.size)
    received = _execute_ldmatrix(memory, trace.source_offsets[:, :, : atom.rows, 0], bits, atom)
    _demand(np.array_equal(received, trace.destination_coords), f"{key} loads elements to the wrong registers")
    _demand(
        np.array_equal(_by_thread(received), _by_thread(wanted)),
        f"{key} does not load the elements that the MMA multiplies",
    )
    if copy.view is not None:
        fragment = fragment_table(tiled_mma, operand).coordinates
        by_thread = received.transpose(1, 0, 2).reshape(fragment.shape)
        _demand(
            np.array_equal(fragment[:, offsets(copy.view)], by_thread),
            f"{key} has a view of the fragment that numbers its registers wrongly",
        )


def _by_thread(table: Coordinates) -> Coordinates:
    """Return the elements of each thread, in order: int64[instruction, thread, value] as int64[thread, element]."""
    by_thread: Coordinates = np.sort(table.transpose(1, 0, 2).reshape(table.shape[1], -1), axis=1)
    return by_thread


def _execute_ldmatrix(memory: Coordinates, rows: Coordinates, bits: int, atom: LdmatrixAtom) -> Coordinates:
    """Return int64[instruction, thread, value] from row addresses int64[instruction, warp, row]."""
    instructions, warps, _ = rows.shape
    row_elems, register_elems = 8 * ROW_BYTES // bits, REGISTER_BITS // bits
    loaded = memory[rows[..., None] + np.arange(row_elems)]
    matrices = loaded.reshape(instructions, warps, atom.matrices, -1, row_elems)
    if atom.transpose:
        matrices = matrices.swapaxes(-1, -2)
    thread = np.arange(WARP)[:, None, None]
    row = thread // 4 + MATRIX_ROWS * np.arange(atom.registers // atom.matrices)[:, None]
    in_row = register_elems * (thread % 4) + np.arange(register_elems)
    registers: Coordinates = matrices[:, :, :, row, in_row]  # [instruction, warp, matrix, lane, register, value]
    return registers.transpose(0, 1, 3, 2, 4, 5).reshape(instructions, warps * WARP, -1)


def _prove_accumulator(mma: MmaPlan) -> None:
    """Prove that the accumulator holds every sum of the tile once; in registers, where the tiled MMA has it."""
    accumulator, tiled_mma = mma.accumulator, mma.tiled_mma
    tile = accumulator.tile
    held = offsets_2d(accumulator.layout)
    _demand(tile == mma.cta_tile[:2], "the accumulator is of another tile")
    _demand(_covers_once(held, tile[0] * tile[1]), "the accumulators do not hold every element of C exactly once")
    if accumulator.home is Home.REGISTERS:
        table = over_tile(offsets_2d(tiled_mma.tv_layout("C")), tiled_mma.tile_mnk[:2], tile)
        same = np.array_equal(np.sort(held, axis=1), _by_thread(table))
        _demand(same, "the accumulator's layout is not that of the tiled MMA")
        return
    assert accumulator.drain is not None, "sums in tensor memory are loaded from there"
    (rows, columns), ctas = tile, mma.atom.ctas
    places = offsets(places_of_sums(rows, columns, ctas))[held]
    _demand(np.array_equal(places, accumulator.places), "threads receive other sums than the accumulator's layout says")
    _demand(
        accumulator.buffers * accumulator.columns <= COLUMNS and accumulator.columns == columns_of_sums(*tile, ctas),
        "the buffers of sums overlap, or are larger than tensor memory",
    )


def _prove_epilogue(epilogue: EpiloguePlan, tile: tuple[int, int], threads: int, group_threads: int) -> None:
    if epilogue.smem is None or epilogue.store is None:
        neither = epilogue.smem is None and epilogue.store is None
        _demand(neither, "the epilogue has shared memory for C without stores from it, or stores without shared memory")
        return
    parts = epilogue.parts
    shape = tile if parts is None else (*parts.tile, parts.buffers * parts.warpgroups)
    stored = parts.tile if parts else tile
    _prove_placed("epilogue.smem", epilogue.smem, shape, epilogue.dtype.bytes)
    _prove_copy("epilogue", epilogue.store, epilogue.smem, epilogue, stored, threads)
    if epilogue.edge is not None:
        _prove_copy("epilogue.edge", epilogue.edge, epilogue.smem, epilogue, stored, group_threads)


def _prove_edge(plan: GemmPlan) -> None:
    """Prove that no box stores rows or columns of C that follow a group, and that its last ones are aligned."""
    groups, epilogue = plan.scheduler.groups, plan.epilogue
    shared = groups is not None and groups.of != "k"
    by_boxes = epilogue.store is not None and bool(epilogue.store.boxes_issued)
    _demand((epilogue.edge is not None) == (shared and by_boxes), "boxes would store what follows a group")
    if groups is not None and epilogue.edge is not None and groups.packs(("m", "n")) and groups.of == epilogue.major:
        _demand(epilogue.edge.bits == epilogue.dtype.bits, "a group's last vectors would not be aligned")
    _demand(plan.scheduler.vector == 1 or epilogue.edge is not None, "C would get what a tile has before its group")


def _prove_parts(parts: EpilogueParts, epilogue: EpiloguePlan, accumulator: Accumulator) -> None:
    """Prove that each part is written where its layout has it."""
    held = prove_sub_tiles(parts, accumulator, epilogue.fusion.pairs)
    if epilogue.fusion.quantization is not None:
        _prove_quantization(epilogue.fusion.quantization, parts, accumulator, held)
    if epilogue.smem is not None and parts.stmatrix is not None:
        _prove_stmatrix(parts.stmatrix, epilogue.smem, parts.tile, held)
    if epilogue.smem is not None and epilogue.by_chunks:
        _prove_chunks(epilogue.smem, parts.tile, held)


def _prove_quantization(
    quantization: Quantization, parts: EpilogueParts, accumulator: Accumulator, held: Coordinates
) -> None:
    """Prove that all values that share a factor are in the lanes, and the warps, that find their largest magnitude."""
    rows, columns = held % parts.tile[0], held // parts.tile[0]  # [thread, value]
    line, along = (columns, rows) if quantization.of_rows else (rows, columns)
    of_values, first = (offsets(layout) for layout in quantization.lines(parts.tile[1]))
    alike = len(of_values) == held.shape[1] and bool((line == line[:, first][:, of_values]).all())
    _demand(alike, "values of different lines have one factor")
    distances, lanes, warps = offsets(quantization.lanes), np.arange(WARP), len(held) // WARP
    together = lanes[(lanes & distances.max()) == 0][:, None] + distances + WARP * np.arange(warps)[:, None, None]
    of_lanes = line[together]  # [warp, first lane, lane, value]
    _demand(bool((of_lanes == of_lanes[:, :, :1]).all()), "lanes that share a factor have different lines")
    extent = parts.tile[0] // warps if quantization.of_rows else parts.tile[1]
    own = np.arange(extent) + (extent * np.arange(warps)[:, None, None] if quantization.of_rows else 0)
    met = (np.sort(along[together][..., of_values == x].reshape(*together.shape[:2], -1)) for x in range(len(first)))
    known = all(each.shape[-1] == extent and bool((each == own).all()) for each in met)
    whole = _has_whole_blocks(quantization, parts, accumulator) if quantization.of_rows else True
    _demand(known and whole, "a block of C has values that its factor does not know")
    block = (quantization.warps * extent, 1) if quantization.of_rows else (1, extent)
    _demand(quantization.block == block, "a block of C is not what its warps, or a part, have of a line")


def _has_whole_blocks(quantization: Quantization, parts: EpilogueParts, accumulator: Accumulator) -> bool:
    """Return whether each CTA that stores parts of a tile has all rows of its blocks."""
    rows = parts.of_tile * parts.tile[1] // accumulator.tile[1]  # of parts, in C's tile
    down = rows * parts.columns // parts.count  # warpgroups along M
    for share in np.split(np.arange(parts.count), parts.ctas):
        for column in range(parts.columns):
            mine = share[share % parts.columns == column] // parts.columns
            blocks = (mine[:, None] * down + np.arange(down)) * parts.tile[0] // quantization.block[0]
            if (np.unique(blocks, return_counts=True)[1] * parts.tile[0] != quantization.block[0]).any():
                return False
    return parts.sharers == 1


def prove_sub_tiles(parts: EpilogueParts, accumulator: Accumulator, pairs: Pairs | None = None) -> Coordinates:
    """Prove that a warpgroup's sums are its parts in order, in any home; return what its threads hold of one.

    A part is a block of C, of which each thread has as many values, and the same in every part: elements of the part,
    int64[thread, value]. With `pairs` of columns a row of blocks comes twice, for each member, and the tile has the
    columns of one in its first half; with pairs of rows its upper half are those of one. A thread has both sums of each
    pair, at the same place of two blocks.
    """
    (rows, columns), (tile_rows, tile_columns) = parts.tile, accumulator.tile
    (of_rows, of_columns) = {"m": (2, 1), "n": (1, 2)}[pairs.of] if pairs else (1, 1)
    rows_of_parts = parts.count // parts.columns
    down = tile_rows // (rows * of_rows * rows_of_parts)  # warpgroups along M
    blocks = of_rows * of_columns * parts.count
    by_thread = accumulator.table.reshape(parts.warpgroups, accumulator.group_threads, blocks, -1)
    warpgroup, block = np.arange(parts.warpgroups)[:, None], np.arange(blocks)
    row, half = np.divmod(block // parts.columns, of_columns)
    lower, row = np.divmod(row, rows_of_parts)
    first_row = (row * down + warpgroup % down) * rows + lower * (tile_rows // of_rows)
    first_column = (warpgroup // down * parts.columns + block % parts.columns) * columns
    first_column = first_column + half * (tile_columns // of_columns)
    begin = first_row + first_column * tile_rows  # [warpgroup, block]
    within = by_thread - begin[:, None, :, None]
    first: Coordinates = within[0, :, 0, :]
    held: Coordinates = first % tile_rows + first // tile_rows * rows
    same = bool((within == first[None, :, None, :]).all()) and bool((first % tile_rows < rows).all())
    _demand(same and _covers_once(held, rows * columns), "a part of C does not match the order of a thread's sums")
    return held


def _prove_stmatrix(atom: StmatrixAtom, smem: SmemTile, tile: tuple[int, int], held: Coordinates) -> None:
    """Prove `stmatrix` by simulation, as the PTX ISA defines it, on rows of C that are contiguous in shared memory.

    Thread t holds elements 2 (t mod 4) and the next of row t / 4 of each matrix. In memory a row of 8 elements is that
    row, or with .trans the column. `held` [thread, value] are elements of a part.
    """
    steps = held.shape[1] // (2 * atom.matrices)
    warps = held.reshape(-1, 8, 4, steps, atom.matrices, 2)  # [warp, row of a matrix, pair of it, step, matrix, value]
    matrices = warps.transpose(0, 3, 4, 1, 2, 5).reshape(-1, 8, 8)
    stored = matrices.swapaxes(-1, -2) if atom.transpose else matrices
    _demand(_covers_once(stored, tile[0] * tile[1]), "stmatrix does not store every element of a part exactly once")
    _demand(_runs(_one_stage(smem, tile)[stored]), "stmatrix stores rows that are not contiguous and aligned")


_OF_CHUNK = 8
"""8-bit elements of a thread in a chunk: two pairs of 16 bytes, in rows r and r + 8."""


def _prove_chunks(smem: SmemTile, tile: tuple[int, int], held: Coordinates) -> None:
    """Prove that a thread's address of each chunk leads to its eight elements there: `held` [thread, value] of a part.

    It is that of the thread's first element, except the bits in which the layout has the chunks.
    """
    plain = offsets(inner_layout(smem.layout))[held[0]] - offsets(inner_layout(smem.layout))[held[0, 0]]
    placed = _one_stage(smem, tile)[held]
    reached = (placed[:, :1] ^ plain[::_OF_CHUNK])[..., None] + plain[:_OF_CHUNK]
    known = np.array_equal(reached.reshape(placed.shape), placed)
    _demand(known, "a thread's address of a chunk of C leads to elements of others")


def _prove_fusion(plan: GemmPlan) -> None:
    """Prove that a call passes what the chain names, in the order of the kernel's parameters."""
    fusion, launch = plan.epilogue.fusion, plan.launch
    tensors = [(x.name, x.dtype, x.modes, x.major, x.align_bytes, x.block) for x in launch.beside_result]
    planned = [(x.name, x.dtype.name, x.modes, x.major, x.align_bytes, x.block) for x in fusion.beside_c]
    _demand(tensors == planned, "a launch would not pass the tensors that the epilogue uses")
    _demand(launch.scalars == fusion.scalars, "a launch would not pass the scalars that the epilogue uses")
    _demand(launch.epilogue == tuple(step.text for step in fusion.steps), "a launch states another epilogue")
    for x in fusion.beside_c:
        _demand(x.align_bytes % x.dtype.bytes == 0, f"{x.name} is not aligned to its elements")


def _prove_scheduler(plan: GemmPlan) -> None:
    """Prove on small launches that their CTAs compute every tile, of every slice of K, exactly once."""
    scheduler, mma = plan.scheduler, plan.mma
    _demand(_visits_once(scheduler.order), "the order of tiles leaves one out, or has one twice")
    m, n, k = (tile * ctas for tile, ctas in zip(mma.cta_tile, mma.cluster, strict=True))
    for blocks_m, blocks_n, multiprocessors in ((1, 1, 1), (3, 2, 4)):
        problem = ProblemShape(blocks_m * m, blocks_n * n, k)
        room = multiprocessors * prod(mma.cluster)
        x, y, z = grid = plan.launch.geometry(problem, multiprocessors=room).grid
        ctas = product(range(x), range(y), range(z))
        given = () if scheduler.groups is None else (problem.extents[scheduler.groups.of],)
        found = Counter(tile for cta in ctas for tile in scheduler.work(mma, cta, grid, problem, given))
        tiles = product(range(problem.m // plan.cta_tile[0]), range(problem.n // plan.cta_tile[1]))
        wanted = Counter(WorkTile(*tile, slice=index) for tile in tiles for index in range(scheduler.slices))
        _demand(found == wanted, "a launch would compute a tile twice, or not at all")


def _prove_groups(plan: GemmPlan) -> None:
    """Prove on small launches that their CTAs compute every tile of every group exactly once, for any ends or sizes."""
    scheduler, launch, mma = plan.scheduler, plan.launch, plan.mma
    _demand(launch.groups == scheduler.groups, "a launch would pass the ends of other groups")
    if scheduler.groups is None:
        return
    for operand in (plan.a, plan.b) if scheduler.source.searched else ():
        along = operand.major == scheduler.groups.of and scheduler.groups.packs(MODES[operand.name])
        aligned = plan.group_vector * operand.dtype.bytes % BOX_MULTIPLE_BYTES == 0
        _demand(not along or aligned, f"boxes of {operand.name} would begin between multiples of 16 bytes")
    m, n, k = (3 * tile * ctas + 1 for tile, ctas in zip(mma.cta_tile, mma.cluster, strict=True))
    room, (ctas_m, ctas_n, _) = {"m": m, "n": n, "k": k}[scheduler.groups.of], mma.cluster
    for given in ((room,), (0, room // 3, room // 3, room + 1, 1), (-1, 2**31 - 1, -(2**31)), (0, 0)):
        problem = ProblemShape(m, n, k, groups=len(given))
        grid = launch.geometry(problem, multiprocessors=4 * prod(mma.cluster)).grid
        ctas = product(range(grid[0]), range(grid[1]), range(1))
        found = Counter(tile for cta in ctas for tile in scheduler.work(mma, cta, grid, problem, given))
        parts = (scheduler.grid(mma, len(x.m), len(x.n)) for x in scheduler.products(problem, given))
        tiles = (
            WorkTile(*tile, product=group)
            for group, (tiles_m, tiles_n) in enumerate(parts)
            for tile in product(range(tiles_m * ctas_m), range(tiles_n * ctas_n))
        )
        _demand(found == Counter(tiles), "a launch would compute a tile of a group twice, or not at all")


@cache
def _visits_once(order: TileOrder) -> bool:
    """Return whether an order has every tile once, in grids narrower than a band, of whole bands, and of more."""
    for across, swept in product((1, order.group, 2 * order.group + 1), (1, 3)):
        grid = (swept, across) if order.along == "n" else (across, swept)
        tile_m, tile_n = order.tiles(grid)
        if not _covers_once(tile_m * grid[1] + tile_n, across * swept):
            return False
    return True


def _prove_split_k(plan: GemmPlan) -> None:
    """Prove that every sum of a slice has its own place in a large enough workspace, in whole vectors."""
    split, launch = plan.split_k, plan.launch
    slices = 1 if split is None else split.slices
    (m, n, k), (tile_m, tile_n, tile_k) = plan.mma.cluster, plan.cta_tile
    grid = launch.geometry(ProblemShape(m * tile_m, n * tile_n, tile_k)).grid
    _demand(grid == (m, n if split is None else slices, 1), "a launch would split K another way")
    mapped = {each.name for each in launch.maps} - {each.operand for each in plan.prefetched}
    mapped -= set(plan.epilogue.addressed)
    passed = tuple(x.name for x in launch.parameters if x.type == "ptr")
    _demand(passed == tuple(x for x in launch.pointers if x not in mapped), "a launch would pass other addresses")
    if split is None:
        _demand(launch.split is None, "a launch would provide an unused workspace")
        return
    if split.atomics:
        bare = plan.epilogue.smem is None and not plan.epilogue.fusion.steps and plan.epilogue.dtype is split.dtype
        _demand(bare and launch.adds_to_result, "split-K would add to a C that does not hold plain sums")
        return
    sums = plan.cta_tile[0] * plan.cta_tile[1]
    _demand(k == split.clustered and slices % k == 0, "split-K has slices that no cluster adds")
    threads = plan.mma.accumulator.threads
    shares, rest = divmod(sums, threads * SUM_VECTOR_ELEMS * k)
    vectors = shares * k
    vector, thread, index = np.arange(SUM_VECTOR_ELEMS), np.arange(threads), np.arange(vectors)
    places = SUM_VECTOR_ELEMS * (thread[:, None, None] + threads * index[:, None]) + vector
    _demand(rest == 0 and _covers_once(places, sums), "split-K leaves sums without a place where they are added")
    if k > 1:
        parts = plan.epilogue.parts
        even = parts is not None and parts.ctas == k and parts.count % k == 0
        _demand(even, "the CTAs of a cluster would not store the parts of C that they add")
    if not split.leaves_sums:
        _demand(launch.workspace(ProblemShape(*plan.cta_tile)) is None, "a launch would provide an unneeded workspace")
        return
    needed = launch.workspace(ProblemShape(m * tile_m, tile_n, tile_k))
    enough = needed is not None and needed.sums_bytes == m * split.partials * sums * split.dtype.bytes
    _demand(enough, "a launch would provide a workspace of another size")
    _demand(needed is not None and needed.counters == m * k, "a launch would not provide one counter per share")
    _demand(split.partials % split.in_flight == 0, "split-K loads slices that do not exist")
    if split.shared:
        _demand(
            _shared_out(plan.epilogue.parts, split.partials), "CTAs that add slices would skip parts, or add them twice"
        )


def _shared_out(parts: EpilogueParts | None, groups: int) -> bool:
    """Return whether every part has one CTA, however many of `groups` add, and a counter's bytes hold their number."""
    if parts is None or parts.sharers != groups or groups > MOST_COUNTED:
        return False
    warpgroups = range(parts.warpgroups)
    return all(
        sorted(
            (warpgroup, part)
            for number, warpgroup in product(range(adding), warpgroups)
            for part in range(parts.first(number, adding, warpgroup), parts.of_cta, adding)
        )
        == list(product(warpgroups, range(parts.of_cta)))
        for adding in range(1, groups + 1)
    )


def _prove_memory(plan: GemmPlan) -> None:
    """Prove that each region holds what lies there, is aligned, and lies apart from those in use at the same time."""
    regions = {region.name: region for region in plan.memory.regions}
    for name, (needed_bytes, aligned, phases) in _in_memory(plan).items():
        _demand(name in regions, f"{name} has no shared memory")
        region = regions[name]
        _demand(needed_bytes <= region.bytes, f"{region.bytes} bytes of shared memory of {name} are too few")
        _demand(
            region.offset_bytes % aligned == 0,
            f"the shared memory of {name} does not begin at a multiple of {aligned} bytes",
        )
        _demand(phases <= region.phases, f"the shared memory of {name} could be overwritten while it is in use")
    for one, other in combinations(plan.memory.regions, 2):
        apart = not (one.meets(other) and one.overlaps(other))
        _demand(apart, f"the shared memory of {one.name} overlaps that of {other.name}")
    slices = regions.get(SLICES)
    end_of_stages = max(region.end_bytes for region in plan.memory.of_owner(AB))
    held = slices is None or slices.end_bytes <= end_of_stages
    _demand(held, "the sums that a cluster adds do not fit in the stages")
    _demand(plan.smem_bytes <= plan.target.smem_per_cta_bytes, "the shared memory does not fit the target")
    _demand(plan.threads <= plan.target.threads_per_cta, f"{plan.threads} threads do not fit a CTA")
    launched = plan.launch.threads, plan.launch.dynamic_smem_bytes, plan.launch.cta_tile
    _demand(launched == (plan.threads, plan.smem_bytes, plan.cta_tile[:2]), "a launch would differ from the plan")


def _in_memory(plan: GemmPlan) -> dict[str, tuple[int, int, set[Phase]]]:
    """Return what needs shared memory: its bytes, its alignment, and when it must not be overwritten.

    Threads that only copy fill the stages while others store C.
    """
    c, store, split = plan.epilogue.smem, plan.epilogue.store, plan.split_k
    filled = {Phase.K_TILES, Phase.STORE} if len(plan.roles) > 1 else {Phase.K_TILES}
    found = {x.name: (x.smem.bytes, _alignment(x.g2s), filled) for x in plan.operands}
    if c is not None:
        found[RESULT] = (c.bytes, _alignment(store) if store else 1, {Phase.STORE})
    if split is not None and split.clustered > 1:
        found[SLICES] = (split.sums_bytes(plan.cta_tile), ROW_BYTES, {Phase.SLICES})
    if (quantization := plan.epilogue.fusion.quantization) is not None and quantization.of_rows:
        assert plan.epilogue.parts is not None
        rows_of_warp = plan.epilogue.parts.tile[0] * WARP // WARPGROUP
        rows, columns = plan.epilogue.fusion.tile_of_c(plan.cta_tile[:2])
        of_warps = plan.mma.threads // plan.mma.tiled_mma.threads * rows // rows_of_warp * columns
        found[LARGEST] = (of_warps * quantization.factors.dtype.bytes, BANK_BYTES, {Phase.STORE})
    if barriers := _barriers(plan):
        found[BARRIERS] = (barriers * MBARRIER_BYTES, MBARRIER_BYTES, set(Phase))
    return found


def _alignment(copy: TileCopy) -> int:
    """Return the alignment of a copied tile: rows of `ldmatrix`, or the period of a swizzle."""
    return copy.by_kind(vectors=lambda _: ROW_BYTES, boxes=lambda copy: copy.period_bytes)


def _barriers(plan: GemmPlan) -> int:
    """Return the number of barriers in dynamic memory: those of all pipelines, and one as the flag of adding CTAs.

    Without mbarriers there is no such flag: threads learn by a `barrier.red` that their CTA was the last.
    """
    barriers = mbarriers_bytes(plan.loop.pipelines) // MBARRIER_BYTES
    flagged = plan.split_k is not None and plan.split_k.leaves_sums
    return barriers + flagged if barriers else 0
