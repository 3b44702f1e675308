"""PTX text -> `Module`.

Source: PTX ISA, "Syntax" and "Directives", `call`.
"""

import re
from collections.abc import Collection
from dataclasses import dataclass, field, replace

from cutegen.errors import PtxSyntaxError
from cutegen.ptx.text import syntax
from cutegen.ptx.text.cursor import Cursor, tokenize
from cutegen.ptx.text.declarations import RegisterScopes, read_formals, read_parameters, read_prototype, read_variable

_LINKAGE = (".visible", ".extern", ".weak", ".common")
_SPACES = (".global", ".const", ".shared", ".local")
_POSITIVE = (".reqntid", ".maxntid", ".minnctapersm", ".maxnreg", ".reqnctapercluster")
_DIRECTIVES = {**dict.fromkeys(_POSITIVE, 1), ".maxclusterrank": 0}
"""Directives with numbers, and the least number of each; 0 in `.maxclusterrank` is no limit."""
MAX_NESTING = 64


def parse_module(text: str) -> syntax.Module:
    """Reads a whole PTX text; an error in the body of an entry is kept in the entry.

    Raises:
        PtxSyntaxError: other text that cannot be parsed, with its line.
    """
    cursor = Cursor(text, tokenize(text))
    cursor.expect(".version")
    version = cursor.take()
    cursor.expect(".target")
    target = cursor.word("a target")
    while cursor.accept(","):
        cursor.word("a target option")
    variables: list[syntax.Variable] = []
    entries: list[syntax.Entry] = []
    functions: dict[str, syntax.Function] = {}
    while not cursor.at_end():
        _read_module_statement(cursor, variables, entries, functions)
    _refuse_duplicates(entries)
    return syntax.Module(
        version=version, target=target, variables=tuple(variables), entries=tuple(entries), functions=functions
    )


def _refuse_duplicates(entries: list[syntax.Entry]) -> None:
    seen: set[str] = set()
    for entry in entries:
        if entry.name in seen:
            raise PtxSyntaxError(f"entry {entry.name} is defined twice", line=entry.line)
        seen.add(entry.name)


def _read_module_statement(
    cursor: Cursor, variables: list[syntax.Variable], entries: list[syntax.Entry], functions: dict[str, syntax.Function]
) -> None:
    word = cursor.word("a directive")
    if word in _LINKAGE:
        return
    if word == ".address_size":
        if cursor.integer("the address size", limit=64) != 64:
            raise cursor.error("only 64-bit addresses are supported")
    elif word in _SPACES:
        variables.append(read_variable(cursor, word[1:]))
    elif word == ".entry":
        entries.append(_read_entry(cursor))
    elif word == ".func":
        _add_function(_read_function(cursor), functions)
    elif word == ".section":
        cursor.word("a section's name")
        cursor.skip_block()
    elif word == ".pragma":
        cursor.skip_statement()
    else:
        raise cursor.error(f"unknown directive {word}")


def _read_entry(cursor: Cursor) -> syntax.Entry:
    line = cursor.line
    name = cursor.word("the entry's name")
    parameters, directives = read_parameters(cursor), _read_directives(cursor)
    body = _read_body(cursor, RegisterScopes())
    return syntax.Entry(
        name=name,
        line=line,
        parameters=parameters,
        variables=body.variables,
        instructions=body.instructions,
        labels=body.labels,
        branch_targets=body.branch_targets,
        rows=body.rows,
        prototypes=body.prototypes,
        required_block=_dim3(directives.get(".reqntid")),
        required_cluster=_dim3(directives.get(".reqnctapercluster")),
        needs_cluster=".explicitcluster" in directives,
        max_cluster_size=next(iter(directives.get(".maxclusterrank", ())), None),
        max_block=_dim3(directives.get(".maxntid")),
        min_ctas=next(iter(directives.get(".minnctapersm", ())), 1),
        max_registers=next(iter(directives.get(".maxnreg", ())), None),
        error=body.error,
    )


def _read_function(cursor: Cursor) -> syntax.Function:
    """Reads a declaration or a definition: `.func (results) name (parameters) { ... }`."""
    line, returns = cursor.line, read_formals(cursor)
    name = cursor.word("the function's name")
    parameters = read_formals(cursor)
    _read_directives(cursor)
    function = syntax.Function(name=name, line=line, returns=returns, parameters=parameters)
    if cursor.accept(";"):
        return function
    body = _read_body(cursor, RegisterScopes())
    return replace(
        function,
        variables=body.variables,
        instructions=body.instructions,
        labels=body.labels,
        branch_targets=body.branch_targets,
        prototypes=body.prototypes,
        rows=body.rows,
        is_defined=True,
        error=body.error,
    )


def _add_function(function: syntax.Function, functions: dict[str, syntax.Function]) -> None:
    """Keep the definition of a function that is also declared."""
    known = functions.get(function.name)
    if known is not None and known.is_defined and function.is_defined:
        raise PtxSyntaxError(f"function {function.name} is defined twice", line=function.line)
    if known is None or not known.is_defined:
        functions[function.name] = function


def _read_directives(cursor: Cursor) -> dict[str, list[int]]:
    """The directives before a body, with their numbers."""
    found = dict[str, list[int]]()
    while cursor.peek().startswith("."):
        word = cursor.take()
        if word == ".pragma":
            cursor.skip_statement()
        elif word in _DIRECTIVES:
            least = _DIRECTIVES[word]
            found[word] = [cursor.integer(word, limit=1 << 20, least=least)]
            while cursor.accept(","):
                found[word].append(cursor.integer(word, limit=1 << 20, least=least))
        else:
            found[word] = []
    return found


@dataclass(frozen=True, slots=True, kw_only=True)
class _Body:
    """The text between the braces of an entry or a function."""

    variables: tuple[syntax.Variable, ...] = ()
    instructions: tuple[syntax.Instruction, ...] = ()
    labels: dict[str, int] = field(default_factory=dict)
    branch_targets: dict[str, tuple[str, ...]] = field(default_factory=dict)
    prototypes: dict[str, syntax.Prototype] = field(default_factory=dict)
    rows: dict[int, int] = field(default_factory=dict)
    error: PtxSyntaxError | None = None


def _read_body(cursor: Cursor, scopes: RegisterScopes) -> _Body:
    """Reads a body; an error in it is kept, so that others can be run."""
    start = cursor.index
    try:
        return _BodyReader(cursor, scopes).read()
    except PtxSyntaxError as error:
        cursor.back_to(start)
        try:
            cursor.skip_block()
        except PtxSyntaxError:  # nobody can tell where it ends, and the first error says why
            raise error from None
        return _Body(error=error)


class _BodyReader:
    """Reads one body; holds what has been read so far."""

    def __init__(self, cursor: Cursor, scopes: RegisterScopes) -> None:
        self._cursor, self._scopes = cursor, scopes
        self._variables: list[syntax.Variable] = []
        self._instructions: list[syntax.Instruction] = []
        self._used_bytes: int | None = None
        """Bytes that a pragma names for the next instruction."""
        self._paths: list[tuple[int, ...]] = []
        self._path: tuple[int, ...] = ()
        self._opened = 0
        self._labels: dict[tuple[tuple[int, ...], str], int] = {}
        self._tables: dict[tuple[tuple[int, ...], str], tuple[int, tuple[str, ...]]] = {}
        self._prototypes: dict[tuple[tuple[int, ...], str], syntax.Prototype] = {}
        self._nested: set[tuple[tuple[int, ...], str]] = set()
        """The variables of nested scopes, which may have one name in several of them."""

    def read(self) -> _Body:
        """The body, with unique names of its labels and variables."""
        cursor = self._cursor
        cursor.expect("{")
        while not (cursor.peek() == "}" and self._scopes.depth == 1):
            self._read_statement()
        self._end(cursor.line)
        cursor.expect("}")
        return _Body(
            variables=tuple(self._variables),
            instructions=tuple(self._resolve(i) for i in range(len(self._instructions))),
            labels={_label_key(path, label): index for (path, label), index in self._labels.items()},
            branch_targets={_label_key(*key): self._targets(key[0], *table) for key, table in self._tables.items()},
            prototypes={_label_key(*key): prototype for key, prototype in self._prototypes.items()},
            rows=self._scopes.rows,
        )

    def _end(self, line: int) -> None:
        """Append a `ret`: control may run off the end of a kernel."""
        self._instructions.append(syntax.Instruction(line=line, text="ret;", guard=None, parts=("ret",), operands=()))
        self._paths.append(())

    def _read_statement(self) -> None:
        cursor = self._cursor
        if cursor.accept("{"):
            self._open()
        elif cursor.accept("}"):
            self._scopes.close()
            self._path = self._path[:-1]
        elif cursor.kind() == "word" and cursor.peek(1) == ":":
            self._read_label()
        elif cursor.accept(".reg"):
            self._scopes.declare(cursor)
        elif cursor.peek() in (*_SPACES, ".param"):
            word = cursor.take()
            self._declare(read_variable(cursor, syntax.CALL_SPACE if word == ".param" else word[1:]))
        elif cursor.accept(".pragma"):
            self._used_bytes = self._read_pragma()
        elif cursor.peek().startswith("."):
            raise cursor.error(f"directive {cursor.peek()} is not supported in a body")
        elif not cursor.accept(";"):
            self._instructions.append(self._read_instruction())
            self._used_bytes = None
            self._paths.append(self._path)

    def _read_pragma(self) -> int | None:
        """The mask of bytes that the next load uses, if that is what the pragma says."""
        words = ""
        while (token := self._cursor.take()) != ";":
            words += token
        match = re.fullmatch(r'"used_bytes_mask\s+(0[xX][0-9a-fA-F]+|\d+)"', words)
        return None if match is None else int(match[1], 0)

    def _declare(self, variable: syntax.Variable) -> None:
        if self._path:
            self._nested.add((self._path, variable.name))
        self._variables.append(replace(variable, name=_label_key(self._path, variable.name)))

    def _open(self) -> None:
        if len(self._path) >= MAX_NESTING:
            raise self._cursor.error(f"more than {MAX_NESTING} nested scopes")
        self._scopes.open()
        self._opened += 1
        self._path = (*self._path, self._opened)

    def _read_label(self) -> None:
        cursor = self._cursor
        line, name = cursor.line, cursor.take()
        cursor.expect(":")
        key = self._path, name
        if key in self._labels or key in self._tables or key in self._prototypes:
            raise PtxSyntaxError(f"label {name} is defined twice", line=line)
        if cursor.accept(".callprototype"):
            self._prototypes[key] = read_prototype(cursor)
            return
        if cursor.peek() == ".calltargets":
            raise cursor.error("a list of .calltargets is not supported; write a .callprototype")
        if not cursor.accept(".branchtargets"):
            self._labels[key] = len(self._instructions)
            return
        targets = [cursor.word("a label")]
        while cursor.accept(","):
            targets.append(cursor.word("a label"))
        cursor.expect(";")
        self._tables[key] = line, tuple(targets)

    def _targets(self, path: tuple[int, ...], line: int, names: tuple[str, ...]) -> tuple[str, ...]:
        """The unique labels of a table in the scope `path`."""
        found = [_visible(self._labels, path, name) for name in names]
        if None in found:
            message = f"no label {names[found.index(None)]} is visible at this .branchtargets"
            raise PtxSyntaxError(message, line=line)
        return tuple(label for label in found if label is not None)

    def _resolve(self, index: int) -> syntax.Instruction:
        """The instruction with unique labels and variables: a name is visible in its scope and in nested scopes."""
        instruction = self._instructions[index]
        name = instruction.parts[0]
        if name in ("bra", "brx"):
            operands = tuple(self._resolve_label(op, index) for op in instruction.operands)
        elif self._nested or name == "call":
            operands = tuple(self._resolve_variable(op, self._paths[index]) for op in instruction.operands)
        else:
            return instruction
        return replace(instruction, operands=operands)

    def _resolve_label(self, operand: syntax.Operand, index: int) -> syntax.Operand:
        instruction = self._instructions[index]
        if not isinstance(operand, syntax.Symbol):
            return operand
        names: Collection[tuple[tuple[int, ...], str]] = self._labels if instruction.parts[0] == "bra" else self._tables
        found = _visible(names, self._paths[index], operand.name)
        if found is None:
            what = "label" if instruction.parts[0] == "bra" else ".branchtargets"
            raise instruction.error(f"no {what} {operand.name} is visible here")
        return syntax.Symbol(found)

    def _resolve_variable(self, operand: syntax.Operand, path: tuple[int, ...]) -> syntax.Operand:
        """The operand with the unique name of a variable or a prototype of a nested scope, if it is one."""
        if isinstance(operand, syntax.Symbol):
            known = _visible(self._nested, path, operand.name) or _visible(self._prototypes, path, operand.name)
            return operand if known is None else replace(operand, name=known)
        if isinstance(operand, syntax.Address) and isinstance(operand.base, syntax.Symbol):
            known = _visible(self._nested, path, operand.base.name)
            return operand if known is None else replace(operand, base=replace(operand.base, name=known))
        if isinstance(operand, syntax.Group | syntax.Vector):
            return replace(operand, items=tuple(self._resolve_variable(item, path) for item in operand.items))
        return operand

    def _read_instruction(self) -> syntax.Instruction:
        cursor = self._cursor
        start, line = cursor.index, cursor.line
        guard = self._read_guard()
        parts = tuple(cursor.word("an instruction").split("."))
        operands: list[syntax.Operand] = []
        while not cursor.accept(";"):
            if operands:
                cursor.expect(",")
            operands.append(self._read_operand())
        text = cursor.text_since(start)
        return syntax.Instruction(
            line=line, text=text, guard=guard, parts=parts, operands=tuple(operands), used_bytes=self._used_bytes
        )

    def _read_guard(self) -> syntax.Guard | None:
        cursor = self._cursor
        if not cursor.accept("@"):
            return None
        negated = cursor.accept("!")
        name = cursor.word("a predicate")
        register = self._scopes.find(name, cursor)
        if register is None or register.file_bits != 1:
            raise cursor.error(f"{name} is not a predicate register")
        return syntax.Guard(register, negated)

    def _read_operand(self) -> syntax.Operand:
        cursor = self._cursor
        if cursor.accept("["):
            return self._read_address()
        if cursor.accept("{"):
            return self._read_vector()
        if cursor.accept("("):
            return self._read_group()
        vector = self._scopes.find_vector(cursor.peek())
        if vector is not None:
            cursor.take()
            return syntax.Vector(vector)
        first = self._read_simple()
        if cursor.accept("|"):
            return syntax.Pair(first, self._read_simple())
        return first

    def _read_vector(self) -> syntax.Vector:
        items = [self._read_simple()]
        while self._cursor.accept(","):
            items.append(self._read_simple())
        self._cursor.expect("}")
        return syntax.Vector(tuple(items))

    def _read_group(self) -> syntax.Group:
        items: list[syntax.Operand] = []
        while not self._cursor.accept(")"):
            if items:
                self._cursor.expect(",")
            items.append(self._read_simple())
        return syntax.Group(tuple(items))

    def _read_simple(self) -> syntax.Operand:
        cursor = self._cursor
        if cursor.accept("!"):
            register = self._read_name()
            if not isinstance(register, syntax.Register):
                raise cursor.error("only a register can be negated")
            return syntax.Negated(register)
        if cursor.kind() == "number" or cursor.peek() in ("-", "+"):
            return cursor.literal()
        name = self._read_name()
        if isinstance(name, syntax.Symbol) and cursor.peek() in ("+", "-"):
            return replace(name, offset_bytes=self._read_offset())
        return name

    def _read_name(self) -> syntax.Register | syntax.Special | syntax.Symbol | syntax.Immediate | syntax.Sink:
        cursor = self._cursor
        name = cursor.word("an operand")
        if name == "_":
            return syntax.Sink()
        if name == "WARP_SZ":
            return syntax.Immediate(32)
        register = self._scopes.find(name, cursor)
        if register is not None:
            return register
        return syntax.Special(name) if name.startswith("%") else syntax.Symbol(name)

    def _read_address(self) -> syntax.Address:
        cursor = self._cursor
        base: syntax.Register | syntax.Symbol | syntax.Immediate
        if cursor.kind() == "number":
            base = cursor.literal()
        else:
            name = self._read_name()
            if not isinstance(name, syntax.Register | syntax.Symbol):
                raise cursor.error("expected a register, a variable or a number as the address")
            base = name
        offset = self._read_offset() if cursor.peek() in ("+", "-") else 0
        coordinates: tuple[syntax.Operand, ...] = ()
        if cursor.accept(","):
            cursor.expect("{")
            coordinates = self._read_vector().items
        cursor.expect("]")
        return syntax.Address(base, offset, coordinates)

    def _read_offset(self) -> int:
        self._cursor.accept("+")
        value = self._cursor.literal().value
        if not isinstance(value, int) or abs(value) >= 1 << 63:
            raise self._cursor.error(f"the address offset {value} is not a 64-bit integer")
        return value


def _dim3(values: list[int] | None) -> tuple[int, int, int] | None:
    """One to three numbers as three; None without the directive."""
    if values is None:
        return None
    x, y, z = [*values, 1, 1][:3]
    return x, y, z


def _visible(names: Collection[tuple[tuple[int, ...], str]], path: tuple[int, ...], name: str) -> str | None:
    """The unique name of what `name` means in the scope `path`: the innermost of `names`, or None."""
    for depth in range(len(path), -1, -1):
        if (path[:depth], name) in names:
            return _label_key(path[:depth], name)
    return None


def _label_key(path: tuple[int, ...], label: str) -> str:
    """A unique name for `label` in the scope `path`; labels of the kernel's own scope keep their names."""
    return "/".join([*(str(number) for number in path), label])
