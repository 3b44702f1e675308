"""Launches of foreign kernels in a TOML file: shape, arguments, and the results to expect."""

import math
import re
import tomllib
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from cutegen.errors import RequestError
from cutegen.ptx import TensorMap, TensorMaps
from cutegen.run.foreign import DTYPES, FILLS, MAX_ELEMENTS, Expected, ForeignLaunch, filled, load_array, number_of


def file_launch(path: Path) -> ForeignLaunch:
    """Return the launch that a TOML file defines. Raises RequestError with the key."""
    try:
        table = tomllib.loads(path.read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError, tomllib.TOMLDecodeError, RecursionError) as error:
        raise RequestError(f"--launch: {path} cannot be read: {error}") from error
    _refuse_others(table, {"entry", "grid", "block", "cluster", "smem_bytes", "programmatic", "argument"}, str(path))
    arguments = table.get("argument", [])
    if not isinstance(arguments, list) or not all(isinstance(row, dict) for row in arguments):
        raise RequestError(f"{path}: argument: expected [[argument]] tables, one per parameter in order")
    rows = [_Row(row, f"{path}: argument {index}", path.parent) for index, row in enumerate(arguments)]
    make = tuple(row.maker() for row in rows)
    arrays = frozenset(index for index, row in enumerate(rows) if row.is_array)
    expected = {index: row.expected(arrays) for index, row in enumerate(rows) if "expected" in row.keys}
    entry, smem = table.get("entry"), table.get("smem_bytes", 0)
    if not (entry is None or isinstance(entry, str)) or type(smem) is not int or smem < 0:
        raise RequestError(f"{path}: expected entry as text and smem_bytes as a number of bytes")
    return ForeignLaunch(
        entry=entry,
        grid=_sizes(table, "grid", 1, path),
        block=_sizes(table, "block", 32, path),
        cluster=_sizes(table, "cluster", 1, path) if "cluster" in table else None,
        smem_bytes=smem,
        make=make,
        expected=expected,
        each=f"[[argument]] of {path}",
        bf16=frozenset(index for index, row in enumerate(rows) if row.is_bf16),
        programmatic=_programmatic(table.get("programmatic", False), arrays, path),
    )


def _programmatic(given: Any, arrays: Collection[int], path: Path) -> bool | tuple[int, ...]:
    """Return whether the grid before may still run, or the arguments whose memory it uses."""
    if isinstance(given, bool):
        return given
    if not isinstance(given, list) or not all(type(index) is int and index in arrays for index in given):
        known = ", ".join(map(str, sorted(arrays)))
        raise RequestError(f"{path}: programmatic: found {given!r}; expected true, false, or a list of arrays, {known}")
    return tuple(given)


def _refuse_others(table: Mapping[str, Any], known: set[str], where: str) -> None:
    others = sorted(set(table) - known)
    if others:
        raise RequestError(f"{where}: found {others[0]}; expected one of {', '.join(sorted(known))}")


def _sizes(table: Mapping[str, Any], key: str, default: int, path: Path) -> tuple[int, ...]:
    given = table.get(key, default)
    sizes = given if isinstance(given, list) else [given]
    if not 1 <= len(sizes) <= 3 or not all(type(size) is int and size > 0 for size in sizes):
        raise RequestError(f"{path}: {key}: found {given!r}; expected one to three positive integers")
    return tuple(sizes)


_PRODUCT = re.compile(r"(\d{1,9})(\.T)?(?: @ (\d{1,9})(\.T)?)?", re.ASCII)


@dataclass(frozen=True, slots=True)
class _Row:
    """Parse one [[argument]] of a launch file."""

    keys: Mapping[str, Any]
    where: str
    folder: Path

    def maker(self) -> Callable[[np.random.Generator], Any]:
        """Return the function that makes the argument."""
        _refuse_others(self.keys, {*_NUMBER_KEYS, *_ARRAY_KEYS, *_EXPECTED_KEYS}, self.where)
        self._refuse_contradictions()
        if "bytes" in self.keys:
            return self._structure()
        if "number" in self.keys:
            number = number_of(str(self._one_of("type", DTYPES)), str(self.keys["number"]), f"{self.where}: number")
            return lambda generator: number
        make = self._array()
        if "tensor_map" not in self.keys:
            return make
        sizes = self._tensor_map()
        return lambda generator: _tensor_map(make(generator), sizes)

    def _refuse_contradictions(self) -> None:
        """Raise RequestError for a key that the others would leave without effect."""
        kind = next((key for key in _KINDS if key in self.keys), "array")
        if unused := sorted(self.keys.keys() & (_NUMBER_KEYS | _ARRAY_KEYS) - _KINDS[kind]):
            raise RequestError(f"{self.where}: {unused[0]}: found together with {kind}; leave one of them out")
        if "expected" not in self.keys and (unused := sorted(self.keys.keys() & _EXPECTED_KEYS)):
            raise RequestError(f"{self.where}: {unused[0]}: found without expected; leave it out")

    def _structure(self) -> Callable[[np.random.Generator], bytes]:
        text = self.keys["bytes"]
        try:
            data = bytes.fromhex(text)
        except (TypeError, ValueError):
            raise RequestError(
                f"{self.where}: bytes: found {text!r}; expected hexadecimal digits, two per byte"
            ) from None
        return lambda generator: data

    def _array(self) -> Callable[[np.random.Generator], NDArray[Any]]:
        if "file" in self.keys:
            loaded = load_array(self.folder / str(self.keys["file"]), f"{self.where}: file")
            return lambda generator: loaded.copy()
        name, fill = self._one_of("array", DTYPES), self._one_of("fill", FILLS)
        shape = self.keys.get("shape")
        if not isinstance(shape, list) or not all(type(size) is int and size > 0 for size in shape):
            raise RequestError(f"{self.where}: shape: found {shape!r}; expected a list of positive integers")
        count = int(np.prod(shape, dtype=object))
        if count > MAX_ELEMENTS:
            raise RequestError(f"{self.where}: shape: found {count:,} elements; expected at most {MAX_ELEMENTS:,}")
        return lambda generator: filled(name, count, fill, generator).reshape(shape)

    def _one_of(self, key: str, known: Any) -> str:
        value = self.keys.get(key)
        if not isinstance(value, str) or value not in known:
            raise RequestError(f"{self.where}: {key}: found {value!r}; expected one of {', '.join(known)}")
        return value

    def _tensor_map(self) -> Mapping[str, Any]:
        """Return the arguments of `TensorMap` that the table gives."""
        table = self.keys["tensor_map"]
        box = table.get("box") if isinstance(table, dict) else None
        if not isinstance(box, list) or not all(type(each) is int for each in (*box, *_numbers_of(table))):
            raise RequestError(f"{self.where}: tensor_map: expected {{ box = [columns, rows], swizzle_bytes = 128 }}")
        _refuse_others(table, {"box", *_MAP_SWITCHES, *_MAP_NUMBERS}, f"{self.where}: tensor_map")
        for key in _MAP_SWITCHES:
            if not isinstance(table.get(key, False), bool):
                raise RequestError(f"{self.where}: tensor_map: {key}: found {table[key]!r}; expected true or false")
        return {**table, "box": tuple(box)}

    @property
    def is_array(self) -> bool:
        """True if the argument is an array, not a number or a structure."""
        return not self.keys.keys() & _NUMBER_KEYS

    @property
    def is_bf16(self) -> bool:
        """True if the argument is an array of bf16, which NumPy lacks."""
        return self.is_array and "file" not in self.keys and self.keys["array"] == "bf16"

    def expected(self, arrays: Collection[int]) -> Expected:
        """Return the expected final value of the argument; `arrays` are the arguments that a product may name."""
        if not self.is_array:
            raise RequestError(f"{self.where}: expected: found a number or a structure; expected an array to compare")
        text = self.keys["expected"]
        rtol, atol = (self.keys.get(key, default) for key, default in (("rtol", 1e-3), ("atol", 1e-3)))
        if not isinstance(text, str) or not all(type(x) in (int, float) and 0 <= x < math.inf for x in (rtol, atol)):
            raise RequestError(
                f"{self.where}: expected: a .npy file, or arguments as in '0 @ 1.T'; rtol, atol numbers of at least 0"
            )
        product = _PRODUCT.fullmatch(text)
        if product is None:
            values = load_array(self.folder / text, f"{self.where}: expected")
            if values.dtype.kind not in "biuf":
                raise RequestError(f"{self.where}: expected: found elements of {values.dtype}; expected numbers")
            return Expected(values=values, product=(), rtol=rtol, atol=atol)
        terms = [(int(product[i]), product[i + 1] is not None) for i in (1, 3) if product[i] is not None]
        if others := [index for index, _ in terms if index not in arrays]:
            known = ", ".join(map(str, sorted(arrays)))
            raise RequestError(
                f"{self.where}: expected: found argument {others[0]}; expected one of the arrays, {known}"
            )
        return Expected(values=None, product=tuple(terms), rtol=rtol, atol=atol)


_NUMBER_KEYS = {"number", "type", "bytes"}
_ARRAY_KEYS = {"array", "shape", "fill", "file", "tensor_map"}
_EXPECTED_KEYS = {"expected", "rtol", "atol"}
_KINDS = {"bytes": {"bytes"}, "number": {"number", "type"}, "file": {"file", "tensor_map"}}
_KINDS["array"] = _ARRAY_KEYS - {"file"}
"""Keys that define an argument, by the one that selects its kind; the first that is present counts."""


_MAP_NUMBERS = ("swizzle_bytes", "swizzle_atom_bytes", "element_bits")
_MAP_SWITCHES = ("is_padded", "in_memory")
"""The keys of a tensor map that are single numbers, and those that are true or false."""


def _numbers_of(table: Mapping[str, Any]) -> list[Any]:
    return [table[key] for key in _MAP_NUMBERS if key in table]


def _tensor_map(array: NDArray[Any], given: Mapping[str, Any]) -> TensorMap | TensorMaps:
    """Return the tensor map of a row-major array, or a pointer to it: the array's last mode is the innermost."""
    fields = {key: value for key, value in given.items() if key != "in_memory"}
    bits = given.get("element_bits", 8)
    *outer, inner = array.shape
    elems = inner * 8 // bits if 0 < bits < 8 else inner
    strides = tuple(reversed(array.strides[:-1]))
    made = TensorMap(
        array=array,
        extents=(elems, *outer[::-1]),
        strides_bytes=strides,
        **fields,
    )
    return TensorMaps((made,)) if given.get("in_memory") else made
