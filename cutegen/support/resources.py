"""Finds the files that ship with cutegen: the kernel templates and the layout specs."""

from pathlib import Path

from cutegen.errors import OutsideError

_PACKAGE = Path(__file__).parents[1]


def templates_dir() -> Path:
    """Return the folder of kernel templates."""
    return _shipped("templates")


def layouts_dir() -> Path:
    """Return the folder of shipped layout specs."""
    return _shipped("layouts")


def _shipped(folder: str) -> Path:
    """Find `folder`: package data in a wheel; in an editable install, a folder next to the package.

    Raises OutsideError if it is in neither place.
    """
    candidates = (_PACKAGE / "_data" / folder, _PACKAGE.parent / folder)
    for candidate in candidates:
        if candidate.is_dir():
            return candidate
    places = " or ".join(str(candidate) for candidate in candidates)
    raise OutsideError(f"cutegen's own folder {folder}/ is missing: looked for {places}; reinstall cutegen")
