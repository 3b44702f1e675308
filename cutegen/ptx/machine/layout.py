"""Addresses of an entry's variables: shared, local, parameter, constant and module memory.

Source: PTX ISA, "State Spaces". Static shared variables come first, `extern` (dynamic) shared memory after them.
"""

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TypeAlias

import numpy as np
import numpy.typing as npt

from cutegen.errors import PtxSyntaxError
from cutegen.ptx.machine.calls import FUNCTION_STRIDE, FUNCTION_WINDOW
from cutegen.ptx.machine.memory import ALLOCATION_STRIDE, Buffer, Bytes
from cutegen.ptx.machine.shared import SHARED_BASE, Extent
from cutegen.ptx.text.link import FRAME_SPACES
from cutegen.ptx.text.syntax import Entry, Module, Variable
from cutegen.ptx.watch.global_shadow import GlobalShadow

Octets: TypeAlias = npt.NDArray[np.uint8]
MAX_STATIC_BYTES = 48 << 10
MAX_LOCAL_BYTES = 1 << 16
MODULE_BASE = ALLOCATION_STRIDE * 512


@dataclass(frozen=True, slots=True, kw_only=True)
class MemoryLayout:
    """Addresses of an entry's symbols in their own state spaces."""

    addresses: dict[str, int]
    spaces: dict[str, str]
    static_shared_bytes: int
    dynamic_shared_offset: int
    local_bytes: int
    variables: tuple[tuple[Variable, int], ...]
    functions: dict[str, int]
    """Addresses of the functions that the module defines."""
    shared_ends: tuple[int, ...]
    """Ends of static shared variables, at which something else begins, in bytes of shared memory."""
    shared: Mapping[str, Extent]
    """The variables in shared memory, by name."""

    def buffers(self, watch: Callable[[int], GlobalShadow], *, is_shared_before: bool) -> list[Buffer]:
        """Fresh buffers of the module's global and constant variables; uninitialized bytes are zero.

        `watch` makes the shadow of that many bytes. `is_shared_before`: the grid before may use those in global memory.
        """
        made = [self._buffer(variable, address, watch) for variable, address in self.variables]
        return [replace(each, is_shared_before=is_shared_before and each.writeable) for each in made]

    def _buffer(self, variable: Variable, address: int, watch: Callable[[int], GlobalShadow]) -> Buffer:
        data = np.zeros(variable.size_bytes or 0, np.uint8)
        data[: len(variable.initial)] = np.frombuffer(variable.initial, np.uint8)
        for reference in variable.references:
            known = self.addresses[reference.symbol.name] + reference.symbol.offset_bytes
            data[reference.place : reference.place + 8] = np.frombuffer(known.to_bytes(8, "little"), np.uint8)
        return _buffer(variable, address, data, watch)


def _buffer(variable: Variable, address: int, data: Octets, watch: Callable[[int], GlobalShadow]) -> Buffer:
    is_global = variable.space == "global"
    shadow = watch(len(data)) if is_global else None
    if shadow is not None:
        shadow.is_writeable = True
    return Buffer(name=variable.name, start=address, writeable=is_global, bytes=Bytes(data), shadow=shadow)


def _align(offset: int, align: int) -> int:
    return -(-offset // align) * align


def lay_out(module: Module, entry: Entry) -> MemoryLayout:
    """Assigns an address to every variable that `entry` can refer to.

    Raises:
        PtxSyntaxError: two variables of one name, or more memory than a kernel may have.
    """
    variables = (*module.variables, *entry.variables)
    names = [v.name for v in variables] + [p.name for p in entry.parameters]
    for name in names:
        if names.count(name) > 1:
            raise PtxSyntaxError(f"{name} is declared twice", line=entry.line)
    addresses = {p.name: p.offset_bytes for p in entry.parameters}
    functions = {
        function.name: FUNCTION_WINDOW + number * FUNCTION_STRIDE
        for number, function in enumerate(module.functions.values())
        if function.is_defined
    }
    spaces = dict.fromkeys(addresses, "param") | {v.name: v.space for v in variables}
    spaces |= dict.fromkeys(functions, "function")
    static, dynamic = _place_shared(variables, addresses)
    local = _place(variables, FRAME_SPACES, 0, addresses)
    placed = []
    for number, variable in enumerate(v for v in variables if v.space in ("global", "const")):
        addresses[variable.name] = MODULE_BASE + number * ALLOCATION_STRIDE
        placed.append((variable, addresses[variable.name]))
    addresses |= functions
    _check_references(placed, spaces, entry)
    if static > MAX_STATIC_BYTES:
        found = f"{static} bytes of static shared memory; at most {MAX_STATIC_BYTES} are allowed"
        raise PtxSyntaxError(f"{found}, more only as dynamic (.extern) memory", line=entry.line)
    if local > MAX_LOCAL_BYTES:
        raise PtxSyntaxError(f"{local} bytes of local memory; at most {MAX_LOCAL_BYTES} are allowed", line=entry.line)
    return MemoryLayout(
        addresses=addresses,
        spaces=spaces,
        static_shared_bytes=static,
        dynamic_shared_offset=dynamic,
        local_bytes=local,
        variables=tuple(placed),
        functions=functions,
        shared_ends=_shared_ends(variables, addresses),
        shared={
            v.name: Extent(name=v.name, start=addresses[v.name] - SHARED_BASE, size_bytes=v.size_bytes)
            for v in variables
            if v.space == "shared"
        },
    )


def _check_references(placed: Sequence[tuple[Variable, int]], spaces: Mapping[str, str], entry: Entry) -> None:
    for variable, _ in placed:
        for reference in variable.references:
            name = reference.symbol.name
            if spaces.get(name) not in ("global", "const", "function"):
                message = f"{variable.name} is initialized with the address of {name}"
                message += "; expected a variable in global or constant memory, or a function that this file defines"
                raise PtxSyntaxError(message, line=entry.line)


def _shared_ends(variables: tuple[Variable, ...], addresses: dict[str, int]) -> tuple[int, ...]:
    shared = [(addresses[v.name] - SHARED_BASE, v.size_bytes or 0) for v in variables if v.space == "shared"]
    return tuple(sorted({place for start, size in shared for place in (start, start + size)} - {0}))


def _place(variables: tuple[Variable, ...], spaces: Collection[str], start: int, addresses: dict[str, int]) -> int:
    offset = start
    for variable in variables:
        if variable.space in spaces and variable.size_bytes is not None:
            addresses[variable.name] = _align(offset, variable.align_bytes)
            offset = addresses[variable.name] + variable.size_bytes
    return offset


def _place_shared(variables: tuple[Variable, ...], addresses: dict[str, int]) -> tuple[int, int]:
    """(bytes of static shared memory, offset of dynamic shared memory)."""
    end = _place(variables, ("shared",), SHARED_BASE, addresses)
    open_arrays = [v for v in variables if v.space == "shared" and v.size_bytes is None]
    dynamic = _align(end, max((v.align_bytes for v in open_arrays), default=16))
    for variable in open_arrays:
        addresses[variable.name] = dynamic
    return end - SHARED_BASE, dynamic - SHARED_BASE
