"""Foreign kernels: their arguments as words, their launches, and the errors that several execution orders find."""

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial, reduce
from pathlib import Path
from typing import Any

import numpy as np
from numpy.lib.format import MAGIC_PREFIX
from numpy.typing import NDArray

from cutegen.errors import PtxSyntaxError, RequestError
from cutegen.ptx import LaunchReport, Program, TensorMap, TensorMaps
from cutegen.ptx.checking import Finding, check_entry, explored_policies
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
    grid: tuple[int, ...]
    block: tuple[int, ...]
    cluster: tuple[int, ...] | None
    smem_bytes: int
    make: tuple[Callable[[np.random.Generator], Any], ...]
    expected: Mapping[int, Expected]
    each: str = "--arg"
    bf16: frozenset[int] = frozenset()
    programmatic: bool | tuple[int, ...] = False
    """True if the grid before may still use the arguments' memory, or the arguments whose memory it may use."""

    def entry_of(self, program: Program) -> str:
        """Return the entry. Raises RequestError if there is none, or if it does not take as many arguments."""
        entry = only_entry(program, self.entry)
        parameters = program.entries[entry].parameters
        if len(self.make) != len(parameters):
            names = ", ".join(parameter.name for parameter in parameters)
            expected = (
                f"{len(parameters)}, one per parameter in order: {names}; for a spec's kernel, `cutegen run SPEC "
                f"--device cpu` makes them"
                if names
                else "none: it has no parameter"
            )
            raise RequestError(f"{self.each}: found {len(self.make)} for {entry}; expected {expected}")
        return entry

    def run(self, program: Program, arguments: Sequence[Any], **options: Any) -> LaunchReport:
        """Execute the launch on `arguments`; `options` are those of `Program.launch`. Raises PtxFault, LaunchError."""
        return program.launch(
            self.entry_of(program),
            grid=self.grid,
            block=self.block,
            cluster=self.cluster,
            args=arguments,
            dynamic_smem_bytes=self.smem_bytes,
            programmatic=self.programmatic,
            **options,
        )


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
    printed: str = ""
    """Text that the kernel printed in the first order."""

    def is_clean(self, *, strict: bool) -> bool:
        """Return whether nothing is wrong; with `strict` also whether nothing relies on a convention."""
        return not self.wrong and not any(strict or not finding.is_convention for finding in self.findings)


def check_foreign(
    program: Program,
    launch: ForeignLaunch,
    *,
    policies: int,
    seed: int,
    max_steps: int,
    progress: Callable[[int, int], None] = lambda done, total: None,
) -> ForeignCheck:
    """Launch in `policies` orders, on the same arguments each time; `progress` is called with CTAs done, and of all.

    Raises:
        RequestError: no such entry, arguments that do not match its parameters, or an expected value of another shape.
        LaunchError: the launch does not fit the entry.
        PtxSyntaxError: an unknown instruction.
    """
    entry = launch.entry_of(program)
    wrong: list[WrongResult] = []

    def arguments() -> list[Any]:
        generator = np.random.default_rng(seed)
        return [make(generator) for make in launch.make]

    def finished(policy: Policy, values: Sequence[Any]) -> None:
        for index, expected in launch.expected.items():
            if all(result.argument != index for result in wrong):
                wrong.extend(_compare(launch, index, values, arguments(), expected, str(policy)))

    orders = explored_policies(policies, seed)
    texts: list[str] = []
    found = check_entry(
        partial(launch.run, program),
        arguments,
        orders,
        finished=finished,
        max_steps=max_steps,
        printed=texts.append,
        progress=progress,
    )
    return ForeignCheck(
        entry=entry,
        policies=tuple(map(str, orders)),
        findings=found,
        wrong=tuple(wrong),
        printed="".join(texts),
    )


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
    if isinstance(value, TensorMaps):
        value = value.maps[0]
    return value.array if isinstance(value, TensorMap) else np.asarray(value)


def parse_argument(text: str, generator: np.random.Generator) -> Any:
    """Parse one `--arg`: a number, or an array. Raises RequestError that shows the grammar.

    >>> parse_argument("f32[3]:arange", np.random.default_rng(0))
    array([0., 1., 2.], dtype=float32)
    """
    if text.endswith(".npy"):
        return load_array(Path(text))
    if array := re.fullmatch(r"(\w+)\[(\d{1,12})\]:(\w+)", text):
        name, count, fill = array[1], int(array[2]), array[3]
        if count > MAX_ELEMENTS:
            raise RequestError(f"--arg: found {count:,} elements in {text!r}; expected at most {MAX_ELEMENTS:,}")
        if name in DTYPES and fill in FILLS:
            return filled(name, count, fill, generator)
    elif (number := re.fullmatch(r"(\w+):(\S+)", text)) and number[1] in DTYPES:
        return number_of(number[1], number[2])
    raise RequestError(f"--arg: found {text!r}; expected {GRAMMAR}")


def number_of(name: str, text: str, where: str = "--arg") -> Any:
    """Parse a number of the type `name`. Raises RequestError that begins with `where`."""
    try:
        if name == "bf16" or np.issubdtype(DTYPES[name], np.floating):
            return float(text)
        return np.dtype(DTYPES[name]).type(int(text, 0))
    except (ValueError, OverflowError) as error:
        raise RequestError(f"{where}: found {name}:{text!r}; expected a number of type {name}") from error


def filled(name: str, count: int, fill: str, generator: np.random.Generator) -> NDArray[Any]:
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


def load_array(path: Path, where: str = "--arg") -> NDArray[Any]:
    """Read a .npy file. Raises RequestError that begins with `where`."""
    try:
        with path.open("rb") as file:
            if file.read(len(MAGIC_PREFIX)) != MAGIC_PREFIX:
                raise ValueError("it is not a .npy file")  # NumPy would say that it is pickled
        found = np.load(path, allow_pickle=False)
        return found.astype(found.dtype.newbyteorder("="), copy=False)  # type: ignore[no-any-return]
    except (OSError, ValueError) as error:
        raise RequestError(f"{where}: {path} cannot be read as a NumPy array: {error}") from error


def _extents(option: str, text: str) -> tuple[int, ...]:
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
    *,
    entry: str | None,
    grid: str,
    block: str,
    cluster: str | None,
    smem_bytes: int,
    words: Sequence[str],
) -> ForeignLaunch:
    """Return the launch that the options define."""
    return ForeignLaunch(
        entry=entry,
        grid=_extents("--grid", grid),
        block=_extents("--block", block),
        cluster=None if cluster is None else _extents("--cluster", cluster),
        smem_bytes=smem_bytes,
        make=tuple(partial(parse_argument, word) for word in words),
        expected={},
    )
