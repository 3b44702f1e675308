"""Which lines of the package run meanwhile, by `sys.settrace`; a function is left alone once all its lines are seen."""

from __future__ import annotations

import sys
import threading
from collections import defaultdict
from types import CodeType, FrameType
from typing import Any

from tests.mutation.source import ROOT

PACKAGE = f"{ROOT}/cutegen/"


class LineTracer:
    """Remembers lines between `start` and `stop`."""

    def __init__(self) -> None:
        self._unseen: dict[int, set[int]] = {}
        self._codes: dict[int, CodeType] = {}  # which keeps their ids from being given away

    def start(self) -> None:
        """Forget, and begin."""
        self._unseen.clear()
        self._codes.clear()
        threading.settrace(self._enter)
        sys.settrace(self._enter)

    def stop(self) -> dict[str, int]:
        """The files that were run, each with its lines as the bits of a number."""
        sys.settrace(None)
        threading.settrace(None)
        found: dict[str, int] = defaultdict(int)
        for key, code in self._codes.items():
            if code.co_filename.startswith(PACKAGE):
                path = code.co_filename.removeprefix(f"{ROOT}/")
                found[path] |= sum(1 << line for line in _lines(code) - self._unseen[key])
        return dict(found)

    def _enter(self, frame: FrameType, event: str, argument: Any) -> Any:
        code = frame.f_code
        unseen = self._unseen.get(id(code))
        if unseen is None:
            ours = code.co_filename.startswith(PACKAGE)
            unseen = self._unseen[id(code)] = _lines(code) - {code.co_firstlineno} if ours else set()
            self._codes[id(code)] = code
        return self._line if unseen else None

    def _line(self, frame: FrameType, event: str, argument: Any) -> Any:
        if event == "line":
            self._unseen[id(frame.f_code)].discard(frame.f_lineno)
        return self._line


def _lines(code: CodeType) -> set[int]:
    return {line for _, _, line in code.co_lines() if line}
