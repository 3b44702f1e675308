"""Foreign kernels: their arguments as words or in a file, and the errors that several execution orders find."""

from __future__ import annotations

import math
import re
import tomllib
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import reduce
from pathlib import Path
from typing import Any

import numpy as np
from numpy.lib.format import MAGIC_PREFIX
from numpy.typing import NDArray

from cutegen.errors import PtxSyntaxError, RequestError
from cutegen.ptx import Program, TensorMap
from cutegen.ptx.checking import Finding, Shape, check_entry, explored_policies
from cutegen.ptx.machine.policy import Policy
from cutegen.run.call.bits import bf16_bits, bf16_values
from cutegen.support.words import naturals

DTYPES = {
    "f16": np.float16, "f32": np.float32, "f64": np.float64,
    "i8": np.int8, "i16": np.int16, "i32": np.int32, "i64": np.int64,
    "u8": np.uint8, "u16": np.uint16, "u32": np.uint32, "u64": np.uint64,
    "bf16": np.uint16,
}  # fmt: skip
FILLS = ("random", "zeros", "ones", "arange")
GRAMMAR = (
    "TYPE:NUMBER such as i32:5, TYPE[COUNT]:FILL such as f16[1024]:random, or a .npy file; "
    f"TYPE is one of {' '.join(DTYPES)}, FILL one of {' '.join(FILLS)}"
)
MAX_ELEMENTS = 1 << 28


@dataclass(frozen=True, slots=True, kw_only=True)
class Expected:
    """Expected value of an argument after the launch: an array, or others or their product, within a tolerance."""

    values: NDArray[Any] | None
    product: tuple[tuple[int, bool], ...]
    """Arguments to multiply, and whether they are transposed; empty if there are values."""
    rtol: float
    atol: float


@dataclass(frozen=True, slots=True, kw_only=True)
class ForeignLaunch:
    """One launch of an entry; `make` returns fresh arguments, the same ones for the same generator.

    `each` is the option or table that defines one of them. `bf16` are the arguments whose uint16 holds bits of bf16.
    """

    entry: str | None
    shape: Shape
    make: tuple[Callable[[np.random.Generator], Any], ...]
    expected: Mapping[int, Expected]
    each: str = "--arg"
    bf16: frozenset[int] = frozenset()


@dataclass(frozen=True, slots=True, kw_only=True)
class WrongResult:
    """An argument with a wrong value."""

    argument: int
    policy: str
    message: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ForeignCheck:
    """Results of the orders."""

    entry: str
    policies: tuple[str, ...]
    findings: tuple[Finding, ...]
    wrong: tuple[WrongResult, ...]

    def is_clean(self, *, strict: bool) -> bool:
        """Return whether nothing is wrong; with `strict` also whether nothing relies on a convention."""
        return not self.wrong and not any(strict or not finding.is_convention for finding in self.findings)


def check_foreign(program: Program, launch: ForeignLaunch, *, policies: int, seed: int, max_steps: int) -> ForeignCheck:
    """Launch in `policies` orders, on the same arguments each time.

    Raises:
        RequestError: no such entry, arguments that do not match its parameters, or an expected value of another shape.
        LaunchError: the launch does not fit the entry.
        PtxSyntaxError: an unknown instruction.
    """
    entry = only_entry(program, launch.entry)
    check_count(program, entry, len(launch.make), launch.each)
    wrong: list[WrongResult] = []

    def arguments() -> list[Any]:
        generator = np.random.default_rng(seed)
        return [make(generator) for make in launch.make]

    def finished(policy: Policy, values: Sequence[Any]) -> None:
        for index, expected in launch.expected.items():
            if all(result.argument != index for result in wrong):
                wrong.extend(_compare(launch, index, values, arguments(), expected, str(policy)))

    orders = explored_policies(policies, seed)
    found = check_entry(program, entry, launch.shape, arguments, orders, finished=finished, max_steps=max_steps)
    return ForeignCheck(entry=entry, policies=tuple(map(str, orders)), findings=found, wrong=tuple(wrong))


def _compare(
    launch: ForeignLaunch, index: int, values: Sequence[Any], given: Sequence[Any], expected: Expected, policy: str
) -> list[WrongResult]:
    """Compare in float64, large integers exactly; a product is computed from the arguments before the launch."""

    def of(argument: int, everyone: Sequence[Any]) -> NDArray[Any]:
        array = _storage(everyone[argument])
        return bf16_values(array) if argument in launch.bf16 else array

    found = of(index, values)
    if expected.values is None:
        factors = [(of(i, given), is_turned) for i, is_turned in expected.product]
        turned = [a.T if is_turned else a for a, is_turned in factors]
        try:
            wanted = turned[0] if len(turned) == 1 else reduce(np.matmul, [a.astype(np.float64) for a in turned])
        except ValueError as error:
            shapes = " and ".join(str(a.shape) for a in turned)
            raise RequestError(f"argument {index}: expected: shapes {shapes} cannot be multiplied") from error
    else:
        is_bits = index in launch.bf16 and expected.values.dtype == np.uint16
        wanted = bf16_values(expected.values) if is_bits else expected.values
    if wanted.shape != found.shape:
        raise RequestError(f"argument {index}: expected has shape {wanted.shape}; the argument has {found.shape}")
    bad = _differing(found, wanted, expected.rtol, expected.atol)
    if not bad.any():
        return []
    place = tuple(int(i) for i in np.argwhere(bad)[0])
    message = f"{int(bad.sum()):,} of {bad.size:,} elements differ, first at {list(place)}: "
    one, other = found[place].item(), wanted[place].item()
    digits = "" if f"{one:g}" == f"{other:g}" else "g"
    message += f"found {one:{digits}}, expected {other:{digits}}"
    return [WrongResult(argument=index, policy=policy, message=message)]


def _differing(found: NDArray[Any], wanted: NDArray[Any], rtol: float, atol: float) -> NDArray[np.bool_]:
    """Return which elements are not within the tolerance."""
    values, target = found.astype(np.float64), wanted.astype(np.float64)
    bad: NDArray[np.bool_] = ~np.isclose(values, target, rtol=rtol, atol=atol, equal_nan=True)
    if found.dtype.kind in "iu" and wanted.dtype.kind in "iu":
        # float64 rounds integers from 2^53 on, and would take neighbors for the same number.
        for place in map(tuple, np.argwhere(~bad & (np.abs(values) >= 2**53))):
            one, other = int(found[place]), int(wanted[place])
            bad[place] = abs(one - other) > atol + rtol * abs(other)
    return bad


def _storage(value: Any) -> NDArray[Any]:
    return value.array if isinstance(value, TensorMap) else np.asarray(value)


def parse_argument(text: str, generator: np.random.Generator) -> Any:
    """Parse one `--arg`: a number, or an array. Raises RequestError that shows the grammar.

    >>> parse_argument("f32[3]:arange", np.random.default_rng(0))
    array([0., 1., 2.], dtype=float32)
    """
    if text.endswith(".npy"):
        return _load(Path(text))
    if array := re.fullmatch(r"(\w+)\[(\d{1,12})\]:(\w+)", text):
        name, count, fill = array[1], int(array[2]), array[3]
        if count > MAX_ELEMENTS:
            raise RequestError(f"--arg: found {count:,} elements in {text!r}; expected at most {MAX_ELEMENTS:,}")
        if name in DTYPES and fill in FILLS:
            return _filled(name, count, fill, generator)
    elif (number := re.fullmatch(r"(\w+):(\S+)", text)) and number[1] in DTYPES:
        return _number(number[1], number[2])
    raise RequestError(f"--arg: found {text!r}; expected {GRAMMAR}")


def _number(name: str, text: str, where: str = "--arg") -> Any:
    try:
        if name == "bf16" or np.issubdtype(DTYPES[name], np.floating):
            return float(text)
        return np.dtype(DTYPES[name]).type(int(text, 0))
    except (ValueError, OverflowError) as error:
        raise RequestError(f"{where}: found {name}:{text!r}; expected a number of type {name}") from error


def _filled(name: str, count: int, fill: str, generator: np.random.Generator) -> NDArray[Any]:
    """Return an array of `count` elements; bf16 as its bits. Random floats are normal, random integers 0 to 99."""
    is_float = name == "bf16" or np.issubdtype(DTYPES[name], np.floating)
    values: NDArray[Any]
    match fill:
        case "zeros":
            values = np.zeros(count)
        case "ones":
            values = np.ones(count)
        case "arange":
            values = np.arange(count)
        case _:
            values = generator.standard_normal(count) if is_float else generator.integers(0, 100, count)
    return bf16_bits(values) if name == "bf16" else values.astype(DTYPES[name])


def _load(path: Path, where: str = "--arg") -> NDArray[Any]:
    try:
        with path.open("rb") as file:
            if file.read(len(MAGIC_PREFIX)) != MAGIC_PREFIX:
                raise ValueError("it is not a .npy file")  # NumPy would say that it is pickled
        found = np.load(path, allow_pickle=False)
        return found.astype(found.dtype.newbyteorder("="), copy=False)  # type: ignore[no-any-return]
    except (OSError, ValueError) as error:
        raise RequestError(f"{where}: {path} cannot be read as a NumPy array: {error}") from error


def parse_extents(option: str, text: str) -> tuple[int, ...]:
    extents = naturals(text) or ()
    if 1 <= len(extents) <= 3 and all(extents):
        return extents
    raise RequestError(f"{option}: found {text!r}; expected one to three positive integers X[,Y,Z]")


def only_entry(program: Program, name: str | None) -> str:
    """Return the named entry; if there is only one, it need not be named."""
    names = tuple(program.entries)
    if name is None and len(names) == 1:
        return names[0]
    if name is None or name not in names:
        found = "nothing" if name is None else repr(name)
        raise RequestError(
            f"--entry: found {found}; expected one of {', '.join(names) or 'none, the file has no entry'}"
        )
    return name


def check_count(program: Program, entry: str, found: int, each: str = "--arg") -> None:
    """Raise RequestError unless there is one argument per parameter of the entry; `each` writes one."""
    parameters = program.entries[entry].parameters
    if found == len(parameters):
        return
    names = ", ".join(parameter.name for parameter in parameters)
    expected = f"{len(parameters)}, one per parameter in order: {names}" if names else "none: it has no parameter"
    raise RequestError(f"{each}: found {found} for {entry}; expected {expected}")


@contextmanager
def of_file(path: Path) -> Iterator[None]:
    """Add the file to PTX syntax errors, which only know the line."""
    try:
        yield
    except PtxSyntaxError as error:
        raise RequestError(f"{path}: {error}") from error


def read_ptx(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "it is not text"
        expected = "a PTX file, as from `cutegen emit SPEC --what ptx` or nvcc"
        raise RequestError(f"{path}: cannot be read: {reason}; expected {expected}") from error


def words_launch(
    *, entry: str | None, grid: str, block: str, smem_bytes: int, words: Sequence[str], cluster: str | None = None
) -> ForeignLaunch:
    """Return the launch that the options define."""
    shape = Shape(
        grid=parse_extents("--grid", grid),
        block=parse_extents("--block", block),
        dynamic_smem_bytes=smem_bytes,
        cluster=None if cluster is None else parse_extents("--cluster", cluster),
    )
    makers = tuple(_word_maker(word) for word in words)
    return ForeignLaunch(entry=entry, shape=shape, make=makers, expected={})


def _word_maker(word: str) -> Callable[[np.random.Generator], Any]:
    return lambda generator: parse_argument(word, generator)


def file_launch(path: Path) -> ForeignLaunch:
    """Return the launch that a TOML file defines. Raises RequestError with the key."""
    try:
        table = tomllib.loads(path.read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError, tomllib.TOMLDecodeError, RecursionError) as error:
        raise RequestError(f"--launch: {path} cannot be read: {error}") from error
    _refuse_others(table, {"entry", "grid", "block", "cluster", "smem_bytes", "argument"}, str(path))
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
    shape = Shape(
        grid=_sizes(table, "grid", 1, path),
        block=_sizes(table, "block", 32, path),
        dynamic_smem_bytes=smem,
        cluster=_sizes(table, "cluster", 1, path) if "cluster" in table else None,
    )
    bf16 = frozenset(index for index, row in enumerate(rows) if row.is_bf16)
    each = f"[[argument]] of {path}"
    return ForeignLaunch(entry=entry, shape=shape, make=make, expected=expected, each=each, bf16=bf16)


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
            number = _number(str(self._one_of("type", DTYPES)), str(self.keys["number"]), f"{self.where}: number")
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
            loaded = _load(self.folder / str(self.keys["file"]), f"{self.where}: file")
            return lambda generator: loaded.copy()
        name, fill = self._one_of("array", DTYPES), self._one_of("fill", FILLS)
        shape = self.keys.get("shape")
        if not isinstance(shape, list) or not all(type(size) is int and size > 0 for size in shape):
            raise RequestError(f"{self.where}: shape: found {shape!r}; expected a list of positive integers")
        count = int(np.prod(shape, dtype=object))
        if count > MAX_ELEMENTS:
            raise RequestError(f"{self.where}: shape: found {count:,} elements; expected at most {MAX_ELEMENTS:,}")
        return lambda generator: _filled(name, count, fill, generator).reshape(shape)

    def _one_of(self, key: str, known: Any) -> str:
        value = self.keys.get(key)
        if not isinstance(value, str) or value not in known:
            raise RequestError(f"{self.where}: {key}: found {value!r}; expected one of {', '.join(known)}")
        return value

    def _tensor_map(self) -> tuple[tuple[int, ...], int]:
        table = self.keys["tensor_map"]
        box, swizzle = (table.get("box"), table.get("swizzle_bytes", 0)) if isinstance(table, dict) else (None, 0)
        if not isinstance(box, list) or not all(type(size) is int for size in (*box, swizzle)):
            raise RequestError(f"{self.where}: tensor_map: expected {{ box = [columns, rows], swizzle_bytes = 128 }}")
        _refuse_others(table, {"box", "swizzle_bytes"}, f"{self.where}: tensor_map")
        return tuple(box), swizzle

    @property
    def is_array(self) -> bool:
        """Return whether the argument is an array, not a number or a structure."""
        return not self.keys.keys() & _NUMBER_KEYS

    @property
    def is_bf16(self) -> bool:
        """Return whether the argument is an array of bf16, which NumPy lacks."""
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
            values = _load(self.folder / text, f"{self.where}: expected")
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


def _tensor_map(array: NDArray[Any], sizes: tuple[tuple[int, ...], int]) -> TensorMap:
    """Return the tensor map of a row-major array: its last mode is the innermost."""
    box, swizzle_bytes = sizes
    strides = tuple(reversed(array.strides[:-1]))
    return TensorMap(
        array=array, extents=array.shape[::-1], strides_bytes=strides, box=box, swizzle_bytes=swizzle_bytes
    )
