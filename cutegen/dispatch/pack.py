"""Kernels compiled ahead of time: an open pack returns kernels to call.

Opening a pack and calling its kernels needs neither the compiler nor the planner, only `cutegen.run`. `cutegen.matmul`
consults an open pack before the performance model.
"""

import threading
from collections.abc import Iterable
from functools import partial
from pathlib import Path
from types import TracebackType
from typing import Self

from cutegen.build.pack_file import Identity, PackEntry, PackFile, read_pack
from cutegen.contract.launch import (
    FACTORS,
    GEMM,
    OPERANDS,
    PROBE,
    RESULT,
    RESULT_FACTORS,
    SCALES,
    SOURCE,
    TensorContract,
)
from cutegen.contract.problem import PAIR, ProblemLike, ProblemShape, bucket
from cutegen.dispatch.families import is_of
from cutegen.dispatch.provider import PACK, Answer
from cutegen.dispatch.providers import providers
from cutegen.dispatch.quantized import FACTORS_OF_RESULT
from cutegen.dispatch.request import Matrix, Request
from cutegen.errors import RequestError
from cutegen.hardware import TARGETS, Target, resolve_target, runs_on
from cutegen.hardware.factor_atoms import BLOCK_VALUES, PER_WORD
from cutegen.hardware.targeting import present_target
from cutegen.run.kernel import Kernel
from cutegen.run.probe import Probe
from cutegen.support.words import nearest

_MATRICES = (*OPERANDS, RESULT, *FACTORS, "residual", "aux")


class Pack:
    """The kernels of one file, every byte of which was verified. They are loaded at the first call.

    It is a provider of kernels for `cutegen.matmul` until it is closed; its kernels stay usable after that.
    """

    def __init__(self, file: PackFile) -> None:
        self._file = file
        self._lock = threading.Lock()
        self._kernels: dict[Identity, Kernel | Probe] = {}

    @property
    def path(self) -> Path:
        """The path of the file, as given."""
        return self._file.path

    @property
    def entries(self) -> tuple[PackEntry, ...]:
        """The contents in the order of packing: names, problems, targets, launch contracts."""
        return self._file.entries

    def names(self) -> tuple[str, ...]:
        """Return the names of the specs without duplicates, in the order of packing."""
        return tuple(dict.fromkeys(entry.name for entry in self.entries))

    def kernel(
        self, name: str | None = None, *, problem: ProblemLike | None = None, target: str | None = None
    ) -> Kernel | Probe:
        """Return the kernel of the spec called `name`, which may be omitted if there is only one.

        It is the one packed for `problem`, else the one packed without a problem. `target` is as in `compile`; by
        default the present GPU's or one whose kernels run on it, and without a GPU the first.

        Raises RequestError if there is none, ArtifactError if the kernel contradicts the pack's index.
        """
        return self.open(self.entry(name, problem=problem, target=target))

    def entry(
        self, name: str | None = None, *, problem: ProblemLike | None = None, target: str | None = None
    ) -> PackEntry:
        """Return the entry that `kernel` opens. Raises RequestError."""
        of_name = [entry for entry in self.entries if entry.name == self._named(name)]
        of_target = self._of_target(of_name, target)
        shape = ProblemShape.of(problem)
        for wanted in dict.fromkeys((shape, None)):
            if found := [entry for entry in of_target if entry.problem == wanted]:
                return found[0]
        if shape is None and len({entry.problem for entry in of_target}) == 1:
            return of_target[0]
        raise self._without(of_target[0], shape, of_target)

    def open(self, entry: PackEntry) -> Kernel | Probe:
        """Return the kernel of an entry, the same one each time. Raises ArtifactError."""
        with self._lock:
            if (kernel := self._kernels.get(entry.identity)) is None:
                kind = Probe if entry.kind == PROBE else Kernel
                kernel = self._kernels[entry.identity] = kind(self._file.artifact(entry))
            return kernel

    @property
    def name(self) -> str:
        """The provider's name, for messages."""
        return f"the pack {self.path}"

    def answer(self, request: Request) -> Answer:
        """Return the kernel for a call of `matmul`: that of the same problem bucket, else one packed without a problem.

        Off a GPU, where PTX is executed, kernels of every target qualify.
        """
        able = [entry for entry in self.entries if _serves(entry, request)]
        if request.family is not None:
            able = [entry for entry in able if is_of(self._file.artifact(entry), request.family)]
        targets = dict.fromkeys(entry.target for entry in able)
        target = _suited(TARGETS[request.target], targets, exactly=False) if request.target in TARGETS else None
        if target is None and request.device is None:
            target = next(iter(targets), None)
        of_target = sorted((entry for entry in able if entry.target == target), key=_least_aligned, reverse=True)
        for wanted in (request.problem, None):
            for entry in of_target:
                if _bucket_of(entry, request) == wanted:
                    made_for = f"made for {entry.problem}" if entry.problem else "made for every problem"
                    return Answer(f"{entry.name}, {made_for}", partial(self._gemm, entry), ready=True)
        return Answer(f"none of its {len(self.entries)} kernels does this on {request.target} for {request.problem}")

    def close(self) -> None:
        """Serve no more calls of `matmul`."""
        providers.withdraw(self)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()

    def _gemm(self, entry: PackEntry) -> Kernel:
        kernel = self.open(entry)
        assert isinstance(kernel, Kernel)  # only GEMMs serve calls
        return kernel

    def __repr__(self) -> str:
        return f"Pack({str(self.path)!r}, {len(self.entries)} kernels)"

    def _named(self, name: str | None) -> str:
        names = self.names()
        if name is None and len(names) == 1:
            return names[0]
        if name in names:
            return name
        close = nearest(name or "", names)
        way_out = f"did you mean {close}?" if close else "add it with `cutegen pack`"
        raise RequestError(f"{self.path}: found no kernel called {name}; it has {', '.join(names)}; {way_out}")

    def _of_target(self, entries: list[PackEntry], asked: str | None) -> list[PackEntry]:
        """Return those of one target, in order."""
        wanted = resolve_target(asked) if asked is not None else present_target()
        targets = dict.fromkeys(entry.target for entry in entries)
        chosen = next(iter(targets)) if wanted is None else _suited(wanted, targets, exactly=asked is not None)
        if chosen is None:
            assert wanted is not None
            there = ", ".join(targets)
            raise RequestError(
                f"{self.path}: found no kernel of {entries[0].name} for {wanted.name}; it has {there}; "
                f"pack it with --arch {wanted.name}"
            )
        return [entry for entry in entries if entry.target == chosen]

    def _without(self, like: PackEntry, shape: ProblemShape | None, entries: Iterable[PackEntry]) -> RequestError:
        there = ", ".join(str(entry.problem) for entry in entries)
        asked = "any problem" if shape is None else str(shape)
        return RequestError(
            f"{self.path}: found no kernel of {like.name} on {like.target} for {asked}; it has {there}; name one of "
            "them, or pack one without --problem, which serves all"
        )


def load_pack(path: Path | str) -> Pack:
    """Open and verify the pack at `path`, and let `cutegen.matmul` use it until it is closed.

    Of several open packs, the last is consulted first. Raises ArtifactError if the file is damaged or not a pack.
    """
    pack = Pack(read_pack(path))
    providers.register(PACK, pack)
    return pack


def _suited(wanted: Target, targets: Iterable[str], *, exactly: bool) -> str | None:
    """Return `wanted` if `targets` has it, or unless `exactly` the latest target whose kernels run on its GPUs."""
    there = tuple(targets)
    if wanted.name in there:
        return wanted.name
    if exactly:
        return None
    able = [name for name in there if name in TARGETS and runs_on(TARGETS[name].gpu_arch, wanted.compute_capability)]
    return max(able, key=lambda name: TARGETS[name].compute_capability, default=None)


def _serves(entry: PackEntry, request: Request) -> bool:
    """Return whether a kernel computes the request on operands with this layout."""
    if entry.kind != GEMM or (entry.ops, entry.expression) != (request.ops, request.expression):
        return False
    launch = entry.launch
    if request.batch_invariant and launch.split is not None:
        return False
    if (launch.groups, launch.pairs, launch.quantized) != (request.groups, request.pairs, request.quantized):
        return False
    tensors = launch.tensors  # as the kernel reads them: a call of `matmul` makes no lasting copy of B
    asked = {name for name in _MATRICES if getattr(request, name) is not None}
    return asked <= {tensor.name for tensor in tensors} and all(_fits(tensor, request) for tensor in tensors)


def _fits(tensor: TensorContract, request: Request) -> bool:
    """Return whether a call's tensor has the layout of the kernel's. The input C has that of C."""
    if tensor.name == RESULT_FACTORS:
        matrix: Matrix | None = FACTORS_OF_RESULT
    elif tensor.name in (*_MATRICES, SOURCE):
        matrix = getattr(request, RESULT if tensor.name == SOURCE else tensor.name)
    else:
        return tensor.dtype == (request.scale if tensor.name in SCALES else request.bias)
    if matrix is None or matrix.align_bytes % tensor.align_bytes:
        return False
    major = "n" if tensor.major == PAIR else tensor.major  # a call's result has columns, whatever makes one
    dtype, block = tensor.dtype, tensor.block
    if tensor.block_elems > 1:  # words of atoms: a call has factors
        dtype = dtype.removesuffix(f"x{PER_WORD}")
        block = 1, BLOCK_VALUES[dtype]
    return (dtype, major, block) == (matrix.dtype, matrix.major, matrix.block)


def _bucket_of(entry: PackEntry, request: Request) -> ProblemShape | None:
    """Return the bucket of a kernel's problem, computed like that of a request."""
    if entry.problem is None:
        return None
    return bucket(entry.problem, batch_invariant=request.batch_invariant, groups=request.groups)


def _least_aligned(entry: PackEntry) -> int:
    """Return the least alignment of a kernel's matrices, but for the factors that it writes, one at a time."""
    matrices = (each for each in entry.launch.tensors if len(each.modes) > 1 and each.name != RESULT_FACTORS)
    return min(each.align_bytes for each in matrices)
