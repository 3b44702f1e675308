"""Finds the files that ship with cutegen: the kernel templates and the layout specs."""

from __future__ import annotations

from pathlib import Path

from cutegen.errors import OutsideError

_PACKAGE = Path(__file__).parents[1]


def templates_dir() -> Path:
    """The folder of kernel templates."""
    return _shipped("templates")


def layouts_dir() -> Path:
    """The folder of shipped layout specs."""
    return _shipped("layouts")


def _shipped(folder: str) -> Path:
    """A wheel carries `folder` as package data; in an editable install it stands beside the package.

    Raises OutsideError when it is in neither place.
    """
    candidates = (_PACKAGE / "_data" / folder, _PACKAGE.parent / folder)
    for candidate in candidates:
        if candidate.is_dir():
            return candidate
    places = " or ".join(str(candidate) for candidate in candidates)
    raise OutsideError(f"cutegen's own folder {folder}/ is missing: looked for {places}; install cutegen again")
