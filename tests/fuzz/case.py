"""What a kind of hostile testing consists of: cases made from a seed, and what became of each."""

from __future__ import annotations

import importlib
import random
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Protocol

ACCEPTED, REFUSED, FOUND = "accepted", "refused", "found"
MIB = 1 << 20


@dataclass(frozen=True, slots=True)
class Case:
    """One input. `text` is all of it: the same text, read again, is the same case."""

    seed: int
    text: str


@dataclass(frozen=True, slots=True)
class Outcome:
    """What became of a case: it was accepted, or refused with words, or the law of its kind was broken."""

    word: str
    detail: str = ""


class Module(Protocol):
    """What the module of a kind defines."""

    def case(self, seed: int) -> Case:
        """The case of a seed, the same each time."""

    def check(self, case: Case) -> Outcome:
        """Try it. An exception that comes out is a finding as well."""


@dataclass(frozen=True, slots=True)
class Kind:
    """A row of `KINDS`: how many cases a full run tries, and what one may take.

    `cpu_limit_s` and `memory_limit_bytes` are the law for one case; memory is what a case adds to its process.
    """

    name: str
    count: int
    suffix: str
    cpu_limit_s: float
    memory_limit_bytes: int = 500 * MIB

    @property
    def module(self) -> Module:
        """Imported where a case is tried, and not by who only counts them."""
        return importlib.import_module(f"tests.fuzz.{self.name}")  # type: ignore[return-value]


KINDS: Mapping[str, Kind] = {
    kind.name: kind
    for kind in (
        Kind("specs", 10_000, "toml", cpu_limit_s=2),
        Kind("ptx_texts", 5_000, "ptx", cpu_limit_s=2),
        Kind("operands", 200, "json", cpu_limit_s=5),
        Kind("caches", 300, "json", cpu_limit_s=5),
        Kind("packs", 2_000, "json", cpu_limit_s=2),
        Kind("kills", 100, "json", cpu_limit_s=5),
        Kind("built", 500, "toml", cpu_limit_s=20, memory_limit_bytes=1024 * MIB),
        Kind("products", 300, "toml", cpu_limit_s=150, memory_limit_bytes=1024 * MIB),
        Kind("tensor_memory", 300, "toml", cpu_limit_s=120, memory_limit_bytes=2048 * MIB),
        Kind("scaled", 300, "toml", cpu_limit_s=150, memory_limit_bytes=1024 * MIB),
    )
}


def random_of(kind: str, seed: int) -> random.Random:
    """The random numbers of a case."""
    return random.Random(f"{kind} {seed}")
