"""The control-flow graph of an entry: basic blocks, reconvergence points, definite assignment.

Lanes that a branch separates reconverge at the branch's immediate post-dominator, the first block that all their paths
to the exit share. A register is definitely assigned at a use if every path from the entry to it writes the register.
Only the other registers are watched while the kernel runs.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from cutegen.ptx.text.syntax import Address, Entry, Instruction, Negated, Operand, Pair, Register, Symbol, Vector

_ENDS = ("bra", "brx", "ret", "exit")
_FIRST_OPERAND_IS_READ = frozenset(
    {"st", "red", "bar", "barrier", "cp", "brx", "stmatrix"} | {"prefetch", "prefetchu", "applypriority", "nanosleep"}
)
RegisterKey = tuple[int, int]


def is_barrier(instruction: Instruction) -> bool:
    """True for the barriers of a CTA (`bar.warp.sync` is a barrier of a warp)."""
    return instruction.parts[0] in ("bar", "barrier") and not {"warp", "cluster"} & set(instruction.parts)


_WAITS = (("mbarrier", "try_wait"), ("mbarrier", "test_wait"), ("wgmma", "wait_group"))


def is_wait(instruction: Instruction) -> bool:
    """True for a wait that needs its own block, because it may be executed again until it completes."""
    is_cluster_wait = instruction.parts[:3] == ("barrier", "cluster", "wait")
    return instruction.parts[:2] in _WAITS or is_cluster_wait or instruction.parts[0] == "setmaxnreg"


def ends_block(instruction: Instruction) -> bool:
    """True if control may go elsewhere, or the warp may have to wait."""
    return instruction.parts[0] in _ENDS or is_barrier(instruction) or is_wait(instruction)


@dataclass(frozen=True, slots=True)
class BlockRange:
    """Instructions `first` to `last` (exclusive), and the blocks that may follow; `None` is the exit."""

    first: int
    last: int
    successors: tuple[int | None, ...]


@dataclass(frozen=True, slots=True)
class FlowGraph:
    """Blocks in text order; `block_at` maps the index of a block's first instruction to its number."""

    blocks: tuple[BlockRange, ...]
    block_at: dict[int, int]
    meets: tuple[int | None, ...]


def build_flow(entry: Entry) -> FlowGraph:
    """Splits `entry` into blocks and finds where their lanes reconverge.

    Raises:
        PtxSyntaxError: a branch to something that is not a label.
    """
    count = len(entry.instructions)
    ends = {i + 1 for i, instruction in enumerate(entry.instructions) if ends_block(instruction)}
    waits = {i for i, instruction in enumerate(entry.instructions) if is_wait(instruction)}
    ordered = sorted(({0, *entry.labels.values()} | ends | waits) - {count})
    block_at = {first: number for number, first in enumerate(ordered)}
    blocks = tuple(
        BlockRange(first, last, _successors(entry, block_at, last))
        for first, last in zip(ordered, [*ordered[1:], count], strict=True)
    )
    return FlowGraph(blocks, block_at, _post_dominators(blocks))


def branch_targets(entry: Entry, instruction: Instruction) -> tuple[str, ...]:
    """The labels that a branch may go to."""
    operand = instruction.operands[-1] if instruction.operands else None
    if not isinstance(operand, Symbol):
        raise instruction.error("expected a label")
    if instruction.parts[0] == "bra":
        names: tuple[str, ...] = (operand.name,)
    else:
        names = entry.branch_targets.get(operand.name, ())
    missing = [name for name in names if name not in entry.labels]
    if missing or not names:
        raise instruction.error(f"no label {missing[0] if missing else operand.name} in this entry")
    return names


def _successors(entry: Entry, block_at: dict[int, int], last: int) -> tuple[int | None, ...]:
    instruction = entry.instructions[last - 1]
    following = block_at.get(last)
    name = instruction.parts[0]
    if name in ("bra", "brx"):
        taken = tuple(block_at[entry.labels[label]] for label in branch_targets(entry, instruction))
        return (*taken, following) if instruction.guard else taken
    if name in ("ret", "exit"):
        return (None, following) if instruction.guard else (None,)
    return (following,)


def _post_dominators(blocks: tuple[BlockRange, ...]) -> tuple[int | None, ...]:
    """The immediate post-dominator of each block (Cooper, Harvey and Kennedy, "A Simple, Fast Dominance Algorithm")."""
    exit_node = len(blocks)
    predecessors: list[list[int]] = [[] for _ in range(exit_node + 1)]
    for number, block in enumerate(blocks):
        for successor in block.successors:
            predecessors[exit_node if successor is None else successor].append(number)
    order = _postorder(exit_node, predecessors)
    rank = {node: position for position, node in enumerate(order)}
    parent: dict[int, int] = {exit_node: exit_node}
    changed = True
    while changed:
        changed = False
        for node in reversed(order[:-1]):
            known = [s for s in _nodes(blocks[node].successors, exit_node) if s in parent]
            new = known[0]
            for other in known[1:]:
                new = _common(new, other, parent, rank)
            changed |= parent.get(node) != new
            parent[node] = new
    return tuple(None if parent.get(n, exit_node) == exit_node else parent[n] for n in range(exit_node))


def _nodes(successors: tuple[int | None, ...], exit_node: int) -> Iterator[int]:
    return (exit_node if successor is None else successor for successor in successors)


def _common(a: int, b: int, parent: dict[int, int], rank: dict[int, int]) -> int:
    while a != b:
        if rank[a] < rank[b]:
            a = parent[a]
        else:
            b = parent[b]
    return a


def _postorder(root: int, edges: list[list[int]]) -> list[int]:
    """Nodes reachable from `root`, each after all of its successors; without recursion, for long kernels."""
    order: list[int] = []
    seen, stack = {root}, [(root, iter(edges[root]))]
    while stack:
        node, remaining = stack[-1]
        following = next((n for n in remaining if n not in seen), None)
        if following is None:
            order.append(node)
            stack.pop()
        else:
            seen.add(following)
            stack.append((following, iter(edges[following])))
    return order


def _registers(operand: Operand) -> Iterator[Register]:
    if isinstance(operand, Register):
        yield operand
    elif isinstance(operand, Negated):
        yield operand.register
    elif isinstance(operand, Address):
        for item in (operand.base, *operand.coordinates):
            yield from _registers(item)
    elif isinstance(operand, Vector):
        for item in operand.items:
            yield from _registers(item)
    elif isinstance(operand, Pair):
        yield from _registers(operand.first)
        yield from _registers(operand.second)


def registers_of(instruction: Instruction) -> Iterator[Register]:
    """The registers in an instruction's operands."""
    for operand in instruction.operands:
        yield from _registers(operand)


def _keys(operands: tuple[Operand, ...]) -> frozenset[RegisterKey]:
    return frozenset((r.file_bits, r.row) for operand in operands for r in _registers(operand))


def written_registers(instruction: Instruction) -> frozenset[RegisterKey]:
    """The registers that an instruction writes."""
    has_destination = instruction.parts[0] not in _FIRST_OPERAND_IS_READ or "red" in instruction.parts[1:3]
    if not has_destination or not instruction.operands or isinstance(instruction.operands[0], Address):
        return frozenset()
    return _keys(instruction.operands[:1])


def read_registers(instruction: Instruction) -> frozenset[RegisterKey]:
    """The registers that an instruction reads, its guard included."""
    has_destination = bool(written_registers(instruction))
    keys = _keys(instruction.operands[1:] if has_destination else instruction.operands)
    guard = instruction.guard
    return keys | {(1, guard.register.row)} if guard else keys


@dataclass(frozen=True, slots=True)
class _Uses:
    """Uses of registers in a block: reads without an earlier write in the block, by instruction, and its writes."""

    exposed: dict[int, frozenset[RegisterKey]]
    assigned: frozenset[RegisterKey]


def _uses(entry: Entry, block: BlockRange) -> _Uses:
    exposed, assigned = dict[int, frozenset[RegisterKey]](), set[RegisterKey]()
    for index in range(block.first, block.last):
        instruction = entry.instructions[index]
        missing = read_registers(instruction) - assigned
        if missing:
            exposed[index] = missing
        if instruction.guard is None:
            assigned |= written_registers(instruction)
    return _Uses(exposed, frozenset(assigned))


def unsure_reads(entry: Entry, graph: FlowGraph) -> dict[int, frozenset[RegisterKey]]:
    """Return, for each instruction, the registers that it reads and that some path to it has not written.

    LLVM expresses an undefined value as a register that no instruction writes. Instructions that only move its bytes
    may read it, because the bytes are often never used: what they move stays poison.
    """
    uses = [_uses(entry, block) for block in graph.blocks]
    exposed = {key for use in uses for keys in use.exposed.values() for key in keys}
    undefined = exposed - frozenset[RegisterKey]().union(*(written_registers(i) for i in entry.instructions))
    bits = {key: 1 << place for place, key in enumerate(exposed)}
    at_start = _assigned_at_start(graph, [_bits_of(use.assigned, bits) for use in uses])
    unsure: dict[int, frozenset[RegisterKey]] = {}
    for number, assigned in at_start.items():
        for index, keys in uses[number].exposed.items():
            missing = frozenset(key for key in keys if not assigned & bits[key])
            if _only_moves_bytes(entry.instructions[index]):
                missing -= undefined
            if missing:
                unsure[index] = missing
    return unsure


def _bits_of(keys: frozenset[RegisterKey], bits: dict[RegisterKey, int]) -> int:
    """The subset of `keys` that have a bit; most registers are read only after their own block has written them."""
    return sum(bits[key] for key in keys if key in bits)


def _assigned_at_start(graph: FlowGraph, assigned: list[int]) -> dict[int, int]:
    """Return the registers that every path to each reachable block has written, as bits."""
    at_start, pending = {0: 0}, [0]
    while pending:
        number = pending.pop()
        after = at_start[number] | assigned[number]
        for successor in graph.blocks[number].successors:
            if successor is None:
                continue
            before = at_start.get(successor)
            both = after if before is None else before & after
            if both != before:
                at_start[successor] = both
                pending.append(successor)
    return at_start


def _only_moves_bytes(instruction: Instruction) -> bool:
    """`prmt`, and a `mov` that packs a vector into one register."""
    opcode = instruction.parts[0]
    return opcode == "prmt" or (opcode == "mov" and any(isinstance(x, Vector) for x in instruction.operands[1:]))
