"""Kernels that were compiled ahead of time: a pack is opened, and answers with kernels that can be called.

Opening one and calling its kernels needs neither the compiler nor the planner: what `cutegen.run` needs is enough.
"""

from __future__ import annotations

import threading
from collections.abc import Iterable
from pathlib import Path

from cutegen.build.pack_file import PackFile, read_pack
from cutegen.build.pack_index import PackEntry
from cutegen.contract.launch import PROBE
from cutegen.contract.problem import ProblemLike, ProblemShape
from cutegen.errors import RequestError
from cutegen.hardware import TARGETS, Target, resolve_target
from cutegen.hardware.targeting import present_target
from cutegen.run.gpu.launch import runs_on
from cutegen.run.kernel import Kernel
from cutegen.run.probe import Probe
from cutegen.support.literals import nearest


class Pack:
    """The kernels of one file, every byte of which was verified. They are loaded when they are first called."""

    def __init__(self, file: PackFile) -> None:
        self._file = file
        self._lock = threading.Lock()
        self._kernels: dict[tuple[str, str, ProblemShape | None], Kernel | Probe] = {}

    @property
    def path(self) -> Path:
        """The file, as it was named."""
        return self._file.path

    @property
    def entries(self) -> tuple[PackEntry, ...]:
        """What is in it, in the order in which it was packed: names, problems, targets, launch contracts."""
        return self._file.entries

    def names(self) -> tuple[str, ...]:
        """The names of the specs, each once, in the order in which they were packed."""
        return tuple(dict.fromkeys(entry.name for entry in self.entries))

    def kernel(
        self, name: str | None = None, *, problem: ProblemLike | None = None, target: str | None = None
    ) -> Kernel | Probe:
        """The kernel of the spec called `name`, which may be left out where there is but one.

        The one that was packed for the `problem` is taken, else the one that was packed without any. `target` is as in
        `compile`; without it the present GPU's, or one whose kernels run on it, and without a GPU the first.

        Raises RequestError when there is none such, ArtifactError when the kernel contradicts what the pack says of it.
        """
        return self.open(self.entry(name, problem=problem, target=target))

    def entry(
        self, name: str | None = None, *, problem: ProblemLike | None = None, target: str | None = None
    ) -> PackEntry:
        """What `kernel` opens. Raises RequestError."""
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
        """The kernel of an entry, the same one each time. Raises ArtifactError."""
        with self._lock:
            if (kernel := self._kernels.get(entry.identity)) is None:
                kind = Probe if entry.kind == PROBE else Kernel
                kernel = self._kernels[entry.identity] = kind(self._file.artifact(entry))
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
        """Those of one target, in their order."""
        wanted = resolve_target(asked) if asked is not None else present_target()
        chosen = entries[0].target if wanted is None else _suited(wanted, entries, exactly=asked is not None)
        if chosen is None:
            assert wanted is not None
            there = ", ".join(dict.fromkeys(entry.target for entry in entries))
            raise RequestError(
                f"{self.path}: found nothing of {entries[0].name} for {wanted.name}; it has {there}; "
                f"pack it with --arch {wanted.name}"
            )
        return [entry for entry in entries if entry.target == chosen]

    def _without(self, like: PackEntry, shape: ProblemShape | None, entries: Iterable[PackEntry]) -> RequestError:
        there = ", ".join(str(entry.problem) for entry in entries)
        asked = "any problem" if shape is None else str(shape)
        return RequestError(
            f"{self.path}: found nothing of {like.name} on {like.target} for {asked}; it has {there}; name one of "
            "them, or pack one without --problem, which answers all"
        )


def load_pack(path: Path | str) -> Pack:
    """Open the pack at `path`, all of which is verified first. Raises ArtifactError for a damaged or a foreign one."""
    return Pack(read_pack(path))


def _suited(wanted: Target, entries: list[PackEntry], *, exactly: bool) -> str | None:
    """The target among those of `entries` that is `wanted`, or unless `exactly` one that runs on its GPUs."""
    targets = dict.fromkeys(entry.target for entry in entries)
    if wanted.name in targets:
        return wanted.name
    if exactly:
        return None
    able = [name for name in targets if name in TARGETS and runs_on(TARGETS[name].gpu_arch, wanted.compute_capability)]
    return max(able, key=lambda name: TARGETS[name].compute_capability, default=None)
