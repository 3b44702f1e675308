"""The control-flow graph of an entry: basic blocks, reconvergence points, the registers that instructions use.

Lanes that a branch separates reconverge at the branch's immediate post-dominator, the first block that all their paths
to the exit share.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import TypeAlias

from cutegen.ptx.text.syntax import Address, Entry, Group, Instruction, Negated, Operand, Pair, Register, Symbol, Vector

RegisterKey = tuple[int, int]
Written: TypeAlias = Sequence[frozenset[RegisterKey]]
"""The registers that each instruction of an entry writes."""


class Ends(Enum):
    """The way in which an instruction ends its basic block, if it does."""

    NOTHING = "the block goes on"
    BRANCH = "control goes to labels"
    EXIT = "the lanes exit"
    RETURN = "the lanes exit, or return from a function"
    CALL = "control goes to a function, and comes back"
    BARRIER = "the warp may have to wait"
    WAIT = "the warp may have to wait, and then executes the instruction again: it has a block of its own"


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
    roots: tuple[int, ...]
    """The first blocks of the entry and of its functions."""


def build_flow(entry: Entry, ends: Sequence[Ends]) -> FlowGraph:
    """Splits `entry` into blocks and finds where their lanes reconverge; `ends` has one item per instruction.

    Raises:
        PtxSyntaxError: a branch to something that is not a label.
    """
    count = len(entry.instructions)
    after = {i + 1 for i, way in enumerate(ends) if way is not Ends.NOTHING}
    waits = {i for i, way in enumerate(ends) if way is Ends.WAIT}
    bounds = {index for linked in entry.functions for index in (linked.first, linked.last - 1)}
    ordered = sorted(({0, *entry.labels.values()} | after | waits | bounds) - {count})
    block_at = {first: number for number, first in enumerate(ordered)}
    blocks = tuple(
        BlockRange(first, last, _successors(entry, block_at, last, ends[last - 1]))
        for first, last in zip(ordered, [*ordered[1:], count], strict=True)
    )
    meets = list(_post_dominators(blocks))
    for linked in entry.functions:  # lanes that part in a function meet at its end at the latest
        for number in range(block_at[linked.first], block_at[linked.last - 1]):
            if meets[number] is None:
                meets[number] = block_at[linked.last - 1]
    roots = (0, *(block_at[linked.first] for linked in entry.functions))
    return FlowGraph(blocks, block_at, tuple(meets), roots)


def function_end(entry: Entry, index: int) -> int | None:
    """The last instruction of the function that has instruction `index`: its returns go there. None in the entry."""
    return next((linked.last - 1 for linked in entry.functions if linked.first <= index < linked.last), None)


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


def _successors(entry: Entry, block_at: dict[int, int], last: int, ends: Ends) -> tuple[int | None, ...]:
    instruction = entry.instructions[last - 1]
    following = block_at.get(last)
    if ends is Ends.BRANCH:
        taken = tuple(block_at[entry.labels[label]] for label in branch_targets(entry, instruction))
        return (*taken, following) if instruction.guard else taken
    end = function_end(entry, last - 1) if ends is Ends.RETURN else None
    if end is not None and end != last - 1:
        return (block_at[end], following) if instruction.guard else (block_at[end],)
    if ends in (Ends.EXIT, Ends.RETURN):
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
    elif isinstance(operand, Vector | Group):
        for item in operand.items:
            yield from _registers(item)
    elif isinstance(operand, Pair):
        yield from _registers(operand.first)
        yield from _registers(operand.second)


def registers_of(instruction: Instruction) -> Iterator[Register]:
    """The registers in an instruction's operands."""
    return registers_of_operands(instruction.operands)


def registers_of_operands(operands: Sequence[Operand]) -> Iterator[Register]:
    """The registers in some operands."""
    for operand in operands:
        yield from _registers(operand)


def keys_of(operands: tuple[Operand, ...]) -> frozenset[RegisterKey]:
    return frozenset((r.file_bits, r.row) for operand in operands for r in _registers(operand))


def written_registers(instruction: Instruction, *, sources_only: bool) -> frozenset[RegisterKey]:
    """The registers that an instruction writes: those of its first operand, unless it has `sources_only`."""
    if sources_only or not instruction.operands or isinstance(instruction.operands[0], Address):
        return frozenset()
    return keys_of(instruction.operands[:1])


def read_registers(instruction: Instruction, written: frozenset[RegisterKey]) -> frozenset[RegisterKey]:
    """The registers that an instruction reads, its guard included."""
    keys = keys_of(instruction.operands[1:] if written else instruction.operands)
    guard = instruction.guard
    return keys | {(1, guard.register.row)} if guard else keys
