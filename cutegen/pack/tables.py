"""Tables of build outcomes for many kernels, and of a pack's contents: for people and for programs."""

from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from cutegen.build.artifact import CUBIN, PTX
from cutegen.build.pack_file import PackEntry, PackFile, PackIndex
from cutegen.build.tables import remarks
from cutegen.contract.problem import ProblemShape
from cutegen.pack.building import Outcome
from cutegen.pack.kernel_list import RequestedKernel
from cutegen.support.words import aligned, plural

EVERY = "every"
"""Problem of a kernel that was packed without one."""


def outcome_table(outcomes: Sequence[Outcome]) -> dict[str, Any]:
    """Return the built kernels, and the others with the reason, for programs."""
    built = [(each.wanted, each.artifact) for each in outcomes if each.artifact is not None]
    return {
        "kernels": [
            {
                "name": wanted.name,
                "target": wanted.target,
                "problem": _problem(wanted.problem),
                "key": artifact.key,
                "path": str(artifact.path) if artifact.lasts else None,
                "hit": artifact.hit,
                "registers": artifact.manifest.registers,
                "spills": artifact.manifest.spill_bytes,
                "remarks": remarks(artifact),
                "warnings": list(artifact.manifest.warnings),
            }
            for wanted, artifact in built
        ],
        "failures": [
            {
                "name": each.wanted.name,
                "target": each.wanted.target,
                "problem": _problem(each.wanted.problem),
                "why": each.failure.why,
            }
            for each in outcomes
            if each.failure is not None
        ],
    }


def outcome_lines(outcomes: Sequence[Outcome], paths: Mapping[RequestedKernel, Path] | None = None) -> list[str]:
    """Show the same for people, one line per kernel; `paths` are the written files of the built kernels."""
    rows = []
    for each in outcomes:
        wanted, artifact = each.wanted, each.artifact
        if artifact is None:
            how, registers, path = "failed", "", ""
        else:
            how, registers = "hit" if artifact.hit else "compiled", f"{artifact.manifest.registers:,}"
            path = artifact.key[:16] if paths is None else str(paths[wanted])
        rows.append((wanted.name, wanted.target, _shown(wanted.problem), how, registers, path))
    where = "key" if paths is None else "folder"
    counts = Counter(row[3] for row in rows)
    said = ", ".join(f"{counts[how]:,} {how}" for how in ("compiled", "hit", "failed") if counts[how])
    header = ("name", "target", "problem", "how", "registers", where)
    told = dict.fromkeys(text for each in outcomes if each.artifact is not None for text in remarks(each.artifact))
    return [f"{plural(len(rows), 'kernel')}: {said}", *aligned(rows, header=header, right={4}), *told]


def pack_table(path: Path, index: PackIndex, size_bytes: int) -> dict[str, Any]:
    """Return the contents of a pack, for programs."""
    return {
        "path": str(path),
        "bytes": size_bytes,
        "cutegen": index.cutegen,
        "entries": [_entry_row(entry) for entry in index.entries],
    }


def pack_lines(file: PackFile, size_bytes: int) -> list[str]:
    """Show the same for people."""
    rows = [
        (
            entry.name,
            entry.target,
            _shown(entry.problem),
            entry.kind,
            f"{entry.files[CUBIN].size_bytes:,}",
            f"{entry.files[PTX].size_bytes:,}",
            entry.key[:16],
        )
        for entry in file.entries
    ]
    header = ("name", "target", "problem", "kind", "cubin bytes", "PTX bytes", "key")
    return [packed_line(file.path, file.index, size_bytes), *aligned(rows, header=header, right={4, 5})]


def packed_line(path: Path, index: PackIndex, size_bytes: int) -> str:
    """Describe a pack in one line."""
    kernels = plural(len(index.entries), "kernel")
    return f"{path}: {kernels} in {size_bytes:,} bytes, packed by cutegen {index.cutegen}; every digest matches"


def _entry_row(entry: PackEntry) -> dict[str, Any]:
    return {
        "name": entry.name,
        "target": entry.target,
        "problem": _problem(entry.problem),
        "gpu_arch": entry.gpu_arch,
        "kind": entry.kind,
        "key": entry.key,
        "cubin_bytes": entry.files[CUBIN].size_bytes,
        "ptx_bytes": entry.files[PTX].size_bytes,
    }


def _problem(problem: ProblemShape | None) -> dict[str, int] | None:
    return None if problem is None else problem.table()


def _shown(problem: ProblemShape | None) -> str:
    return EVERY if problem is None else str(problem)
