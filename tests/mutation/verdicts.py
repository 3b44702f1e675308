"""What became of each mutant: kept in a file from run to run, and shown as a table and a list of survivors."""

from __future__ import annotations

import json
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from tests.mutation.mutants import Mutant

DEAD, SURVIVED, NOT_COVERED, STILLBORN, NOT_REACHED = "dead", "survived", "not covered", "stillborn", "not reached"
STATES = (DEAD, SURVIVED, NOT_COVERED, STILLBORN, NOT_REACHED)
JUDGED = (DEAD, SURVIVED, NOT_COVERED)
"""What counts in the share of the dead. A stillborn one cannot even be imported: no test was needed for it."""


@dataclass(frozen=True, slots=True)
class Verdict:
    """`by`: the test that failed, or what ended the process. `tests`: how many passed, of the `covering` ones.

    Of a survivor the names of those that it `passed`, and how many `rounds` it has behind it.
    """

    state: str
    by: str = ""
    tests: int = 0
    covering: int = 0
    seconds: float = 0.0
    rounds: int = 0
    passed: tuple[str, ...] = ()

    @property
    def has_more(self) -> bool:
        """True where there are tests that it did not meet."""
        return self.tests < self.covering

    def then(self, later: Verdict) -> Verdict:
        """Both rounds together."""
        passed = (*self.passed, *later.passed) if later.state == SURVIVED else ()
        return replace(later, tests=self.tests + later.tests, seconds=self.seconds + later.seconds, passed=passed)


class Verdicts:
    """The verdicts on a sample, by the mutants' names."""

    def __init__(self, mutants: Sequence[Mutant], path: Path | None) -> None:
        self._mutants, self._path = mutants, path
        kept = json.loads(path.read_text())["mutants"] if path is not None and path.exists() else []
        self._kept: dict[str, dict[str, Any]] = {entry["name"]: entry for entry in kept}
        """What stands in the file, of other samples too."""
        self._found = {name: Verdict(**entry["verdict"]) for name, entry in self._kept.items()}

    def __getitem__(self, mutant: Mutant) -> Verdict:
        return self._found.get(mutant.name, Verdict(NOT_REACHED))

    def __setitem__(self, mutant: Mutant, verdict: Verdict) -> None:
        self._found[mutant.name] = verdict

    def among(self, states: Iterable[str]) -> list[Mutant]:
        """The mutants of the sample with one of these verdicts."""
        wanted = set(states)
        return [mutant for mutant in self._mutants if self[mutant].state in wanted]

    def forget_survivors(self) -> None:
        """Let them be tried from the beginning."""
        for mutant in self.among((SURVIVED, NOT_COVERED)):
            self[mutant] = Verdict(NOT_REACHED)

    def save(self) -> None:
        """Write them to the file, if there is one."""
        if self._path is not None:
            for mutant in self._mutants:
                self._kept[mutant.name] = {**mutant.to_json(), "verdict": asdict(self[mutant])}
            self._path.parent.mkdir(parents=True, exist_ok=True)
            found = {"share_dead": self.share_dead, "mutants": [*self._kept.values()]}
            partial = self._path.with_suffix(".partial")
            partial.write_text(json.dumps(found, indent=1))
            partial.rename(self._path)

    @property
    def share_dead(self) -> float:
        """Dead of all that were judged; 0 where none was."""
        judged = len(self.among(JUDGED))
        return len(self.among([DEAD])) / judged if judged else 0.0

    def text(self, rounds: int = 0) -> str:
        """The table, the survivors by kind, and the share. `rounds`: how many a survivor is to have."""
        return "\n".join((*self._table(), "", *self._survivors(), *self._summary(rounds)))

    def _table(self) -> Iterator[str]:
        cells: dict[tuple[str, str], Counter[str]] = defaultdict(Counter)
        for mutant in self._mutants:
            for room in (mutant.room, "all"):
                for kind in (mutant.kind, "all"):
                    cells[room, kind][self[mutant].state] += 1
        yield f"{'room':<9}{'kind':<19}" + "".join(f"{state:>13}" for state in STATES) + f"{'dead':>8}"
        for (room, kind), counts in sorted(cells.items(), key=lambda item: [(word == "all", word) for word in item[0]]):
            judged = sum(counts[state] for state in JUDGED)
            share = f"{counts[DEAD] / judged:>8.0%}" if judged else ""
            yield f"{room:<9}{kind:<19}" + "".join(f"{counts[state] or '-':>13}" for state in STATES) + share

    def _survivors(self) -> Iterator[str]:
        alive = sorted(self.among((SURVIVED, NOT_COVERED)), key=lambda m: (m.kind, m.path, m.line))
        for kind in dict.fromkeys(mutant.kind for mutant in alive):
            yield f"Survivors: {kind}"
            for mutant in (one for one in alive if one.kind == kind):
                verdict = self[mutant]
                tried = f"{verdict.tests} of {verdict.covering} tests" if verdict.covering else "no test"
                yield f"  {mutant.name}  {mutant.change}  ({tried})"
            yield ""

    def _summary(self, rounds: int) -> Iterator[str]:
        judged = len(self.among(JUDGED))
        yield f"{len(self.among([DEAD]))} of {judged} dead, {self.share_dead:.1%}"
        unreached = len(self.among([NOT_REACHED]))
        early = sum(self[mutant].rounds < rounds and self[mutant].has_more for mutant in self.among([SURVIVED]))
        if unreached or early:
            yield f"{unreached} not reached in the time, {early} survivors have rounds to come"
            yield "The same command with the same --json goes on"
