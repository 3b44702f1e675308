"""Which tests pass in a trial without a mistake, and how long they take there; kept in a file from call to call."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from pathlib import Path


class Rehearsals:
    """Of each test that was rehearsed its seconds, or None where it failed: it then says nothing about a mutant."""

    def __init__(self, path: Path | None = None, digests: Mapping[str, str] | None = None) -> None:
        self._path, self._digests = path, digests or {}
        kept = json.loads(path.read_text()) if path is not None and path.exists() else {}
        self._found: dict[str, float | None] = {
            test: seconds for test, (digest, seconds) in kept.items() if digest == self._digest(test)
        }

    def _digest(self, test: str) -> str:
        """Of all that the test depends on."""
        return self._digests.get("", "") + self._digests.get(test.partition("::")[0], "")

    def __contains__(self, test: str) -> bool:
        return test in self._found

    def note(self, tests: Iterable[str], passed: Mapping[str, float]) -> None:
        """Write down what became of the tests."""
        self._found |= {test: passed.get(test) for test in tests}
        if self._path is not None:
            partial = self._path.with_suffix(".partial")
            partial.write_text(json.dumps({test: (self._digest(test), s) for test, s in self._found.items()}))
            partial.rename(self._path)

    def failed(self, test: str) -> bool:
        """Return whether the test fails without a mistake."""
        return self._found.get(test, 0.0) is None

    @property
    def seconds(self) -> dict[str, float]:
        """Of the tests that pass."""
        return {test: seconds for test, seconds in self._found.items() if seconds is not None}
