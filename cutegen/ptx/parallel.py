"""Distributes the CTAs of a launch over processes.

Each worker parses the text itself and maps the arrays from temporary files, so the kernel's writes end up in the
caller's arrays. CTAs must not depend on each other: an entry with atomics on global memory is refused.
"""

import multiprocessing
import os
import shutil
import signal
import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, fields
from functools import lru_cache, partial
from multiprocessing import resource_tracker
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import numpy.typing as npt

from cutegen.ptx.machine.arguments import Argument, extent, root_of
from cutegen.ptx.machine.cta import Rules
from cutegen.ptx.machine.executable import Executable
from cutegen.ptx.machine.grid import Shape
from cutegen.ptx.machine.launch import Outcome, run_ctas
from cutegen.ptx.machine.tensor_map import TensorMap, TensorMaps
from cutegen.ptx.prepare import prepare
from cutegen.ptx.text.parser import parse_module

_MOST_CLUSTERS = 1024


@dataclass(frozen=True, slots=True)
class _SharedArray:
    """An array argument as it is sent: the file of its allocation, and the array's position in it."""

    file: Path
    offset: int
    shape: tuple[int, ...]
    strides: tuple[int, ...]
    dtype: str
    writeable: bool


@dataclass(frozen=True, slots=True)
class _SharedTensor:
    """A tensor map as it is sent: its array, and what makes the map of an array."""

    array: Any
    make: Callable[..., TensorMap]


@dataclass(frozen=True, slots=True)
class _SharedMaps:
    """Tensor maps in global memory as they are sent."""

    maps: tuple[_SharedTensor, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class _Task:
    """Message to a worker. It fits into a pipe, so no sender waits for a worker that is ended early."""

    text: Path
    entry: str
    shape: Shape
    arguments: tuple[Any, ...]
    rules: Rules
    clusters: tuple[int, ...]


def run_in_processes(
    text: str,
    entry: str,
    shape: Shape,
    arguments: Sequence[Argument],
    rules: Rules,
    clusters: Sequence[int],
    jobs: int,
    done: Callable[[int], None],
) -> list[Outcome]:
    """Runs `clusters` of the grid in `jobs` processes; calls `done(n)` when n more are finished.

    Raises:
        ExecutionFault: the first violation that a worker raises.
    """
    chunk = max(1, min(-(-len(clusters) // (4 * jobs)), _MOST_CLUSTERS))
    chunks = [tuple(clusters[i : i + chunk]) for i in range(0, len(clusters), chunk)]
    with ExitStack() as stack:
        directory = Path(stack.enter_context(TemporaryDirectory(prefix="cutegen-ptx-")))
        files = _Files(directory)
        shared = tuple(files.share(argument) for argument in arguments)
        (directory / "text").write_text(text)
        pool = ProcessPoolExecutor(jobs, multiprocessing.get_context("spawn"), _end_with_parent, (directory,))
        stack.push(partial(_leave, pool))
        futures = {}
        with _deaf_children():
            for part in chunks:
                task = _Task(
                    text=directory / "text", entry=entry, shape=shape, arguments=shared, rules=rules, clusters=part
                )
                futures[pool.submit(_work, task)] = len(part)
        outcomes = []
        for future in as_completed(futures):
            outcomes.append(future.result())
            done(futures[future])
        files.copy_back()
    return outcomes


def _leave(pool: ProcessPoolExecutor, failed: type[BaseException] | None, *_: object) -> None:
    """Ends the workers; after a fault or Ctrl-C at once, because their results are not needed."""
    if failed is not None:
        # `terminate_workers` does this from Python 3.14 on; earlier versions have no public name for the processes.
        for worker in tuple((pool._processes or {}).values()):
            worker.terminate()
    pool.shutdown(cancel_futures=True)


@contextmanager
def _deaf_children() -> Iterator[None]:
    """Shields processes that start meanwhile from Ctrl-C, which a terminal sends to all; their parent ends them.

    A blocked signal stays blocked in a child; it is delivered here after the children have started.
    """
    resource_tracker.ensure_running()  # otherwise it would unblock the signal when the first child starts
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


class _Files:
    """The files of a launch: one for each allocation that its arguments refer to."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._maps: dict[int, tuple[Path, npt.NDArray[np.uint8]]] = {}
        self._written: list[tuple[npt.NDArray[Any], int]] = []

    def share(self, argument: Any) -> Any:
        """The argument with its arrays replaced by descriptions that a worker opens."""
        if isinstance(argument, tuple):
            return tuple(self.share(item) for item in argument)
        if isinstance(argument, TensorMap):
            sizes = {each.name: getattr(argument, each.name) for each in fields(argument) if each.name != "array"}
            return _SharedTensor(self.share(argument.array), partial(TensorMap, **sizes))
        if isinstance(argument, TensorMaps):
            return _SharedMaps(tuple(self.share(each) for each in argument.maps))
        if not isinstance(argument, np.ndarray) or argument.ndim == 0 or argument.size == 0:
            return argument
        start, _ = extent(root_of(argument))
        if start not in self._maps:
            self._maps[start] = self._create(root_of(argument))
        offset = int(argument.__array_interface__["data"][0]) - start
        writeable = bool(argument.flags.writeable)
        if writeable:
            self._written.append((argument, start))
        path = self._maps[start][0]
        return _SharedArray(path, offset, argument.shape, argument.strides, argument.dtype.str, writeable)

    def _create(self, root: npt.NDArray[Any]) -> tuple[Path, npt.NDArray[np.uint8]]:
        """A file as long as the memory of `root`, with holes between its elements."""
        path = self._directory / f"array{len(self._maps)}"
        start, size = extent(root)
        mapped = np.memmap(path, np.uint8, "w+", shape=(size,))
        _within(mapped, start, root)[...] = root
        return path, mapped

    def copy_back(self) -> None:
        """Copies the kernel's writes into the caller's arrays; bytes between their elements are left alone."""
        for array, root_start in self._written:
            array[...] = _within(self._maps[root_start][1], root_start, array)


def _within(mapped: npt.NDArray[np.uint8], start: int, array: npt.NDArray[Any]) -> npt.NDArray[Any]:
    """The elements of `array` in a copy of the memory that starts at address `start`."""
    offset = int(array.__array_interface__["data"][0]) - start
    return np.ndarray(array.shape, array.dtype, mapped, offset, array.strides)


def _end_with_parent(directory: Path) -> None:
    """End this worker when its parent process is gone, even if the parent was killed and could not end its workers.

    A killed parent cannot remove the `directory` of the launch's files either.
    """
    parent = multiprocessing.parent_process()
    assert parent is not None

    def watch() -> None:
        parent.join()
        shutil.rmtree(directory, ignore_errors=True)
        os._exit(1)

    threading.Thread(target=watch, daemon=True).start()


def _work(task: _Task) -> Outcome:
    """Runs in a worker process."""
    executable = _prepared(task.text, task.entry)
    opened: dict[Path, npt.NDArray[np.uint8]] = {}
    arguments = [_open(argument, opened) for argument in task.arguments]
    return run_ctas(executable, task.shape, arguments, task.rules, task.clusters, lambda: None, runs_apart=True)


@lru_cache(maxsize=1)
def _prepared(text: Path, entry: str) -> Executable:
    module = parse_module(text.read_text())
    return prepare(module, next(found for found in module.entries if found.name == entry))


def _open(argument: Any, opened: dict[Path, npt.NDArray[np.uint8]]) -> Any:
    if isinstance(argument, tuple):
        return tuple(_open(item, opened) for item in argument)
    if isinstance(argument, _SharedTensor):
        return argument.make(array=_open(argument.array, opened))
    if isinstance(argument, _SharedMaps):
        return TensorMaps(tuple(_open(each, opened) for each in argument.maps))
    if not isinstance(argument, _SharedArray):
        return argument
    if argument.file not in opened:
        opened[argument.file] = np.memmap(argument.file, np.uint8, "r+")
    block = opened[argument.file]
    array: npt.NDArray[Any] = np.ndarray(
        argument.shape, np.dtype(argument.dtype), block, argument.offset, argument.strides
    )
    array.flags.writeable = argument.writeable
    return array
