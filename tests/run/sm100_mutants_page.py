"""Writes what became of mutants of family sm100's kernels into docs/testing.md, from verdicts or from what is recorded.

    python -m tests.run.sm100_mutants --sample 100 --json verdicts.json
    python -m tests.run.sm100_mutants_page verdicts.json

The counts and the survivors go to docs/sm100_mutants.json, from which the section between the markers is written.
There a kernel that the verdicts lack keeps what it has.
"""

from __future__ import annotations

import json
import sys
from collections import Counter
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from cutegen.support.words import plural
from tests.run.sm100_mutants import LAUNCHES, SURVIVED, WORDS, Verdict, load

DOCS = Path(__file__).parents[2] / "docs"
PAGE, RECORD = DOCS / "testing.md", DOCS / "sm100_mutants.json"
BEGIN, END = "<!-- begin: tests/run/sm100_mutants_page.py -->", "<!-- end -->"


def record_of(verdicts: Sequence[Verdict], date: str) -> dict[str, Any]:
    """What is kept of each kernel: when its mutants were tried, what showed them, and the survivors with reasons."""
    record = {}
    for kernel in dict.fromkeys(each.kernel for each in verdicts):
        own = [each for each in verdicts if each.kernel == kernel]
        survivors = [{"mutant": str(each.mutant)[:200], "why": each.message} for each in own if each.word == SURVIVED]
        record[kernel] = {"date": date, "words": dict(Counter(each.word for each in own)), "survivors": survivors}
    return record


def section(record: Mapping[str, Any]) -> str:
    """The table and the reasons, as Markdown."""
    total = sum(sum(kept["words"].values()) for kept in record.values())
    why = Counter(each["why"] for kept in record.values() for each in kept["survivors"])
    rows = (
        f"| `{name}` | {kept['date']} | {sum(kept['words'].values())} | "
        + " | ".join(str(kept["words"].get(word, 0)) for word in WORDS)
        + " |"
        for name, kept in record.items()
    )
    return "\n".join((
        f"Of {plural(total, 'mutant')}:",
        "",
        "| kernel | tried on | mutants | " + " | ".join(WORDS) + " |",
        "|---" * (len(WORDS) + 3) + "|",
        *rows,
        "",
        f"Each of the {sum(why.values())} survivors was read ([sm100_mutants.json](sm100_mutants.json) lists them):",
        "",
        *(f"- {number}: {reason}" for reason, number in why.most_common()),
    ))  # fmt: skip


def written(page: str, record: Mapping[str, Any]) -> str:
    """The page with the section anew."""
    before, rest = page.split(BEGIN)
    after = rest.split(END, 1)[1]
    return f"{before}{BEGIN}\n\n{section(record)}\n\n{END}{after}"


def main() -> int:
    """1 if a survivor has no reason: it must be read first."""
    if len(sys.argv) > 1:
        verdicts = load(Path(sys.argv[1]))
        if unread := [str(each) for each in verdicts if each.word == SURVIVED and not each.message]:
            print("no reason is known for:", *unread, sep="\n")
            return 1
        record = json.loads(RECORD.read_text()) | record_of(verdicts, f"{datetime.now(UTC):%Y-%m-%d}")
        ordered = {name: record[name] for name in LAUNCHES if name in record}
        RECORD.write_text(json.dumps(ordered, indent=1) + "\n")
    PAGE.write_text(written(PAGE.read_text(), json.loads(RECORD.read_text())))
    return 0


if __name__ == "__main__":
    sys.exit(main())
