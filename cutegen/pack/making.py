"""Writes built kernels into a pack or into folders."""

from __future__ import annotations

import re
from collections.abc import Iterable
from pathlib import Path

from cutegen.build.pack_file import ToPack, write_pack
from cutegen.build.pack_index import PackIndex
from cutegen.errors import OutsideError, RequestError
from cutegen.pack.building import Outcome
from cutegen.pack.kernel_list import RequestedKernel


def make_pack(path: Path, outcomes: Iterable[Outcome]) -> PackIndex:
    """Write the built kernels to a pack. Raises RequestError if there is none, OutsideError."""
    kernels = [
        ToPack(
            name=each.wanted.name,
            problem=each.wanted.problem,
            target=each.wanted.target,
            ops=each.wanted.spec.epilogue.ops or (),
            expression=each.wanted.spec.epilogue.expression,
            artifact=each.artifact,
        )
        for each in outcomes
        if each.artifact is not None
    ]
    if not kernels:
        raise RequestError(f"{path}: found no kernel to pack; expected one or more")
    return write_pack(path, kernels)


def folder_name(wanted: RequestedKernel) -> str:
    """Return the folder name of a kernel: `sm80_hgemm_tn-sm_80-64x8192x8192`; with a batch `...-4x64x64x64`."""
    name = re.sub(r"[^\w.-]", "_", wanted.name, flags=re.ASCII).lstrip(".") or "kernel"
    problem = () if wanted.problem is None else (str(wanted.problem).replace(" ", ""),)
    return "-".join((name, wanted.target, *problem))


def check_folders(folder: Path, wanted: Iterable[RequestedKernel]) -> None:
    """Raise RequestError for two kernels that would be written to the same folder in `folder`."""
    seen: set[str] = set()
    for name in map(folder_name, wanted):
        if name in seen:
            raise RequestError(
                f"{folder}: found two kernels whose folder is {name}; expected one; rename one spec's file, or give it "
                "another name in a list"
            )
        seen.add(name)


def copy_artifacts(folder: Path, outcomes: Iterable[Outcome]) -> dict[RequestedKernel, Path]:
    """Write each artifact to its own folder in `folder`, replacing existing ones; return the folders.

    `Kernel.open` opens them. Raises RequestError for duplicate names, before any is written, OutsideError if they
    cannot be written.
    """
    outcomes = [each for each in outcomes if each.artifact is not None]
    check_folders(folder, [each.wanted for each in outcomes])
    written: dict[RequestedKernel, Path] = {}
    for each in outcomes:
        assert each.artifact is not None
        target = folder / folder_name(each.wanted)
        try:
            each.artifact.content.sealed().write_folder(target)
        except OSError as error:
            raise OutsideError(f"{target} cannot be written: {error.strerror or error}") from error
        written[each.wanted] = target
    return written
