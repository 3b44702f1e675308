"""Links an entry with the functions that it calls: one body, whose instructions, registers and names are unique.

Source: PTX ISA, `call`, `.func`, `.callprototype`. The instructions of each function follow those of the entry. Its
registers are rows of their own; its variables lie in a frame in local memory, at addresses that a call computes.
"""

from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass, replace

from cutegen.ptx.text import syntax

FRAME_SPACES = ("local", syntax.CALL_SPACE)
"""The state spaces of variables that each call has anew."""


@dataclass(frozen=True, slots=True)
class Call:
    """The operands of a `call`: results, what is called, arguments, and the prototype of an indirect call."""

    returns: tuple[syntax.Operand, ...]
    target: syntax.Symbol | syntax.Register
    arguments: tuple[syntax.Operand, ...]
    prototype: str | None


def call_of(instruction: syntax.Instruction) -> Call:
    """Read the operands of a `call`.

    Raises:
        PtxSyntaxError: others than `{(results),} target{, (arguments)}{, prototype}`.
    """
    operands = list(instruction.operands)
    returns = _items(operands) if len(operands) > 1 else ()
    target = operands.pop(0) if operands else None
    arguments = _items(operands)
    table = operands.pop(0) if operands else None
    if (
        not isinstance(target, syntax.Symbol | syntax.Register)
        or not isinstance(table, syntax.Symbol | None)
        or operands
    ):
        raise instruction.error("expected call {(results),} function{, (arguments)}{, prototype}")
    if isinstance(target, syntax.Register) and (table is None or target.file_bits != 64):
        raise instruction.error("an indirect call takes a 64-bit register and a .callprototype")
    return Call(returns, target, arguments, None if table is None else table.name)


def _items(operands: list[syntax.Operand]) -> tuple[syntax.Operand, ...]:
    """Take a leading group off."""
    if operands and isinstance(operands[0], syntax.Group):
        group = operands.pop(0)
        assert isinstance(group, syntax.Group)
        return group.items
    return ()


def link(module: syntax.Module, entry: syntax.Entry) -> syntax.Entry:
    """The entry with the functions that it may call; itself if it calls none that the module defines.

    Raises:
        PtxSyntaxError: a function that cannot be read, or a call with other operands.
    """
    calls = _call_graph(module, entry)
    if not calls:
        return entry
    instructions, variables = list(entry.instructions), list(entry.variables)
    labels, tables, prototypes = dict(entry.labels), dict(entry.branch_targets), dict(entry.prototypes)
    rows, linked = dict(entry.rows), list[syntax.Linked]()
    for name in calls:
        function = module.functions[name]
        if function.error is not None:
            raise function.error
        unique = _Unique(function, rows)
        first = len(instructions)
        instructions += map(unique.instruction, function.instructions)
        labels |= {unique.name(label): first + index for label, index in function.labels.items()}
        tables |= {unique.name(key): tuple(map(unique.name, at)) for key, at in function.branch_targets.items()}
        prototypes |= {unique.name(key): prototype for key, prototype in function.prototypes.items()}
        frame = tuple(map(unique.variable, unique.frame))
        variables += [unique.variable(each) for each in function.variables if each.space not in FRAME_SPACES]
        start = dict(rows)
        for bits, count in function.rows.items():
            rows[bits] += count
        base, rows[64] = rows[64], rows[64] + 1 + len(frame)
        linked.append(
            syntax.Linked(
                function=function,
                first=first,
                last=len(instructions),
                rows={bits: (start[bits], rows[bits]) for bits in rows},
                base=base,
                frame=frame,
                addresses=tuple(range(base + 1, rows[64])),
                calls=frozenset(calls[name]),
                is_recursive=name in _reachable(calls, calls[name]),
            )
        )
    return replace(
        entry,
        variables=tuple(variables),
        instructions=tuple(instructions),
        labels=labels,
        branch_targets=tables,
        prototypes=prototypes,
        rows=rows,
        functions=tuple(linked),
    )


def _call_graph(module: syntax.Module, entry: syntax.Entry) -> dict[str, set[str]]:
    """The defined functions that `entry` may call, each with those that it calls itself."""
    defined = {name: function for name, function in module.functions.items() if function.is_defined}
    in_tables = {ref.symbol.name for variable in module.variables for ref in variable.references} & defined.keys()
    graph, pending, taken = dict[str, set[str]](), list[str](), set(in_tables)
    indirect = set[str]()

    def visit(name: str, instructions: tuple[syntax.Instruction, ...]) -> set[str]:
        direct = set[str]()
        for instruction in instructions:
            if instruction.parts[0] != "call":
                taken.update(symbol.name for symbol in _symbols(instruction) if symbol.name in defined)
                continue
            target = call_of(instruction).target
            if isinstance(target, syntax.Register):
                indirect.add(name)
            elif target.name in defined:
                direct.add(target.name)
        return direct

    pending += sorted(visit("", entry.instructions))
    while pending or (indirect and taken - graph.keys()):
        name = pending.pop(0) if pending else min(taken - graph.keys())
        if name not in graph:
            graph[name] = set()
            graph[name] = visit(name, defined[name].instructions)
            pending += sorted(graph[name])
    for name in indirect & graph.keys():
        graph[name] |= taken
    return graph


def _reachable(graph: Mapping[str, Collection[str]], start: Collection[str]) -> set[str]:
    found, pending = set[str](), list(start)
    while pending:
        name = pending.pop()
        if name not in found:
            found.add(name)
            pending += graph[name]
    return found


def _symbols(instruction: syntax.Instruction) -> Iterator[syntax.Symbol]:
    for operand in instruction.operands:
        items = operand.items if isinstance(operand, syntax.Vector | syntax.Group) else (operand,)
        yield from (item for item in items if isinstance(item, syntax.Symbol))


class _Unique:
    """Gives the registers and names of a function that no other function of an entry has; `rows` are taken."""

    def __init__(self, function: syntax.Function, rows: Mapping[int, int]) -> None:
        self._prefix, self._rows = function.name, dict(rows)
        own = [each for each in function.variables if each.space in FRAME_SPACES]
        self.frame = (*function.parameters, *function.returns, *own)
        self._names = {each.name for each in (*function.parameters, *function.returns, *function.variables)}
        self._names |= function.prototypes.keys()

    def name(self, name: str) -> str:
        """The unique name of a label, a table, a variable or a prototype of the function."""
        return f"{self._prefix}/{name}"

    def variable(self, variable: syntax.Variable) -> syntax.Variable:
        """The variable by its unique name."""
        return replace(variable, name=self.name(variable.name))

    def instruction(self, instruction: syntax.Instruction) -> syntax.Instruction:
        """The instruction with unique registers and names."""
        rename = self._label if instruction.parts[0] in ("bra", "brx") else self._symbol
        guard = instruction.guard
        if guard is not None:
            guard = syntax.Guard(self._register(guard.register), guard.negated)
        return replace(
            instruction, guard=guard, operands=tuple(self._operand(op, rename) for op in instruction.operands)
        )

    def _label(self, symbol: syntax.Symbol) -> syntax.Symbol:
        return replace(symbol, name=self.name(symbol.name))

    def _symbol(self, symbol: syntax.Symbol) -> syntax.Symbol:
        return replace(symbol, name=self.name(symbol.name)) if symbol.name in self._names else symbol

    def _register(self, register: syntax.Register) -> syntax.Register:
        return replace(register, row=register.row + self._rows[register.file_bits])

    def _operand(self, operand: syntax.Operand, rename: Callable[[syntax.Symbol], syntax.Symbol]) -> syntax.Operand:
        match operand:
            case syntax.Register():
                return self._register(operand)
            case syntax.Symbol():
                return rename(operand)
            case syntax.Negated():
                return syntax.Negated(self._register(operand.register))
            case syntax.Pair():
                return syntax.Pair(self._operand(operand.first, rename), self._operand(operand.second, rename))
            case syntax.Vector() | syntax.Group():
                return replace(operand, items=tuple(self._operand(item, rename) for item in operand.items))
            case syntax.Address():
                base = self._operand(operand.base, rename)
                assert isinstance(base, syntax.Register | syntax.Symbol) or base is operand.base
                coordinates = tuple(self._operand(item, rename) for item in operand.coordinates)
                return replace(operand, base=base, coordinates=coordinates)
            case _:
                return operand
