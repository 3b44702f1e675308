"""Covering arrays: few rows of settings in which every allowed choice of values of any two (or more) settings occurs.

Greedy, after AETG (D. M. Cohen and others, "The AETG System", IEEE Transactions on Software Engineering 23, 1997): a
row begins with a combination that no row has, and each further setting gets the value that covers the most new ones.
"""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations, product
from typing import Any

Row = Mapping[str, Any]
Settings = Mapping[str, Sequence[Any]]
Combination = tuple[tuple[str, Any], ...]
"""Values of some settings, in the settings' order."""

CANDIDATES = 4
"""Rows that are tried for each that is taken."""


@dataclass(frozen=True, slots=True)
class Rule:
    """A condition on the settings `of`, whose values `holds` takes in this order; `why` says what it is for."""

    of: tuple[str, ...]
    holds: Callable[..., bool]
    why: str

    def broken_by(self, row: Row) -> bool:
        """Return whether a row that has all of its settings breaks it."""
        return all(name in row for name in self.of) and not self.holds(*(row[name] for name in self.of))


def is_allowed(row: Row, rules: Sequence[Rule]) -> bool:
    """Return whether no rule is broken; one whose settings the row has not all is not."""
    return not any(rule.broken_by(row) for rule in rules)


def connected(rules: Sequence[Rule]) -> list[set[str]]:
    """The settings in groups of those that rules speak of together, of each other or by way of others."""
    groups: list[set[str]] = []
    for rule in rules:
        met = [group for group in groups if group & set(rule.of)]
        groups = [group for group in groups if group not in met] + [set(rule.of).union(*met)]
    return groups


def covering_rows(settings: Settings, rules: Sequence[Rule], *, seed: int = 0, strength: int = 2) -> list[Row]:
    """Rows that have every combination of `strength` values which some allowed row has; the same for the same seed."""
    return _Array(settings, rules, random.Random(seed), strength).rows()


class _Array:
    def __init__(self, settings: Settings, rules: Sequence[Rule], rng: random.Random, strength: int) -> None:
        self._settings, self._rules, self._rng, self._strength = settings, rules, rng, strength
        self._groups = connected(rules)
        self._rank = {name: rank for rank, name in enumerate(settings)}
        self._rules_of = {name: [rule for rule in rules if name in rule.of] for name in settings}
        self._left: dict[Combination, None] = {
            combination: None
            for names in combinations(settings, strength)
            for values in product(*(settings[name] for name in names))
            if is_allowed(dict(combination := tuple(zip(names, values, strict=True))), rules)
        }

    def rows(self) -> list[Row]:
        rows: list[Row] = []
        while self._left:
            begin = next(iter(self._left))
            first = self._completed(dict(begin))
            if first is None:  # several rules together refuse it
                del self._left[begin]
                continue
            others = [self._completed(dict(begin)) for _ in range(CANDIDATES - 1)]
            best = max(filter(None, (first, *others)), key=lambda row: sum(one in self._left for one in self._of(row)))
            for one in self._of(best):
                self._left.pop(one, None)
            rows.append({name: best[name] for name in self._settings})
        return rows

    def _of(self, row: Row) -> Iterator[Combination]:
        return combinations([(name, row[name]) for name in self._settings], self._strength)

    def _completed(self, row: dict[str, Any]) -> dict[str, Any] | None:
        """The row with all settings, or None where rules leave no value for one.

        Groups of settings that rules connect come one after the other, the row's first: what cannot be is soon found.
        """
        rest = [name for name in self._settings if name not in row]
        self._rng.shuffle(rest)
        mine = {number for number, group in enumerate(self._groups) if group & row.keys()}

        def rank(name: str) -> tuple[bool, int]:
            number = next((number for number, group in enumerate(self._groups) if name in group), len(self._groups))
            return number not in mine, number

        return self._fill(row, sorted(rest, key=rank))

    def _fill(self, row: dict[str, Any], rest: list[str]) -> dict[str, Any] | None:
        if not rest:
            return row
        name, *others = rest
        values = list(self._settings[name])
        self._rng.shuffle(values)
        for value in sorted(values, key=lambda value: -self._gain(row, name, value)):
            filled = {**row, name: value}
            if is_allowed(filled, self._rules_of[name]) and (found := self._fill(filled, others)) is not None:
                return found
        return None

    def _gain(self, row: Row, name: str, value: Any) -> int:
        """The new combinations that the value makes with what the row has."""
        return sum(
            tuple(sorted((*others, (name, value)), key=lambda one: self._rank[one[0]])) in self._left
            for others in combinations(row.items(), self._strength - 1)
        )


def row_at(settings: Settings, index: int) -> Row:
    """The row of the whole product that has this number, allowed or not."""
    row = {}
    for name, values in settings.items():
        index, digit = divmod(index, len(values))
        row[name] = values[digit]
    return row


def sliced(settings: Settings, rules: Sequence[Rule], part: int, parts: int) -> Iterator[Row]:
    """The allowed rows of the `part`-th (from 1) of `parts` equal parts of the product, spread over all of it."""
    count = math.prod(map(len, settings.values()))
    step = next(step for step in range(int(count * 0.618), 2 * count) if math.gcd(step, count) == 1)
    for number in range(part - 1, count, parts):
        row = row_at(settings, number * step % count)
        if is_allowed(row, rules):
            yield row
