"""What a command leaves behind, and the types of this folder's fixtures."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class Outcome:
    """Exit code, stdout and stderr of one command."""

    code: int
    out: str
    err: str

    @property
    def json(self) -> Any:
        """stdout, which must be JSON and nothing else."""
        return json.loads(self.out)

    @property
    def error(self) -> str:
        """The one line on stderr, without its prefix."""
        assert self.err.count("\n") == 1, self.err
        assert self.err.startswith("cutegen: error: "), self.err
        return self.err.removeprefix("cutegen: error: ").rstrip("\n")


Cli = Callable[..., Outcome]
Golden = Callable[[str, str], None]
