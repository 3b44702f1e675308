"""Writes what was fitted to where plans and the page have it: rows, corrections, constants."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from tests.gpu.estimates import of_plans, row_of
from tests.gpu.families import FAMILIES
from tests.gpu.fit import load as tile_table
from tests.gpu.fit import regrets as tile_regrets
from tests.gpu.measured import Measured, Regret, geometric_mean, row_of_setting
from tests.gpu.settings import Setting

ROOT = Path(__file__).parents[2]
SEARCH, PAGE = ROOT / "cutegen" / "plan" / "search", ROOT / "docs" / "lab/tile_model.md"
MODULES = {"sm90": "warpgroup_rows.py", "sm80": "cp_async.py", "sm120": "bulk.py"}
WORTH = 0.0001
"""The log of the mean gain that a row must bring to be compared."""
HOPELESS = 0.7
"""The log of how far behind a kernel counts that was not measured on a problem."""
FELT = 0.005


def write(
    rows: Mapping[Setting, int],
    constants: Mapping[str, Mapping[str, Any]],
    k_tiles: Sequence[float],
    whole: Sequence[float],
    table: Sequence[Measured],
) -> None:
    """Rewrite rows and constants of the families' modules, and the tables of the page. Corrections come as logs."""
    kept = compared(rows, table)
    for family, values in constants.items():
        path = SEARCH / MODULES[family]
        text = _with_constants(path.read_text(), values)
        if family == "sm90":
            text = _with_rows(text, [(each, k_tiles[rows[each]], whole[rows[each]]) for each in kept])
        elif family == "sm80":
            text = _with_overall(text, {each.cta: whole[row] for each, row in rows.items() if each.family == family})
        path.write_text(text)
    PAGE.write_text(_with_tables(PAGE.read_text(), constants))


def write_refined(
    rows: Mapping[Setting, int],
    constants: Mapping[str, Mapping[str, Any]],
    k_tiles: Sequence[float],
    whole: Sequence[float],
) -> None:
    """Rewrite constants of `sm90` and the corrections of the rows that plans have; one without a sample stays."""
    path, corrections = SEARCH / MODULES["sm90"], []
    for setting in map(row_of_setting, of_plans()):
        index, row = rows.get(setting), row_of(setting)
        now = (math.log(row.correction), math.log(row.overall)) if index is None else (k_tiles[index], whole[index])
        corrections.append((setting, *now))
    path.write_text(_with_rows(_with_constants(path.read_text(), constants["sm90"]), corrections))
    PAGE.write_text(_with_tables(PAGE.read_text(), constants))


def write_regrets(found: Mapping[str, Sequence[Regret]]) -> None:
    """Rewrite the page's lines of what choices cost, those on the older tables too."""
    text = PAGE.read_text()
    for name, each in found.items():
        text = _with_regret(text, name, [one.factor for one in each])
    for name, family in FAMILIES.items():
        text = _with_regret(text, name, [one.factor for one in tile_regrets(tile_table(family), family)])
    PAGE.write_text(text)


def _with_regret(text: str, name: str, factors: Sequence[float]) -> str:
    said = (
        f"{len(factors)} problems: {geometric_mean(factors):.3f} times the best on average, {max(factors):.2f} at most"
    )
    return re.sub(rf"^{name}: \d+ problems: .* at most.*$", f"{name}: {said}", text, flags=re.M)


def compared(rows: Mapping[Setting, int], table: Sequence[Measured]) -> list[Setting]:
    """As few rows of warpgroups as bring the best of them near the best of all: one after the other, the best next."""
    ours = [each for each in rows if each.family == "sm90"]
    behind = np.full((len(table), len(ours)), HOPELESS)
    others = np.full(len(table), HOPELESS)
    number = {each: index for index, each in enumerate(ours)}
    for at, measured in enumerate(table):
        best = measured.us[measured.best][0]
        for setting, (us, _) in measured.us.items():
            found, row = min(HOPELESS, math.log(us / best)), row_of_setting(setting)
            if row in number:
                behind[at, number[row]] = min(found, behind[at, number[row]])
            elif setting.family != "sm90":
                others[at] = min(found, others[at])
    # What is fastest on a problem of the suite is compared in any case.
    kept = sorted({number[row_of_setting(each.best)] for each in table if each.kind == "suite"})
    for index in kept:
        others = np.minimum(others, behind[:, index])
    while True:
        means = np.minimum(others[:, None], behind).mean(axis=0)
        following = int(means.argmin())
        if others.mean() - means[following] < WORTH:
            return [ours[index] for index in kept]
        kept.append(following)
        others = np.minimum(others, behind[:, following])


def digits(value: float) -> str:
    """Three digits, as a float is written."""
    text = f"{float(f'{value:.3g}'):g}"
    return text if "." in text or "e" in text else f"{text}.0"


def _with_constants(text: str, values: Mapping[str, Any]) -> str:
    for name, value in values.items():
        text, count = re.subn(rf"^    {name}=[-\d.e+]+,$", f"    {name}={digits(float(value))},", text, flags=re.M)
        assert count == 1, name
    return text


def _with_rows(text: str, rows: Sequence[tuple[Setting, float, float]]) -> str:
    """Larger tiles first."""
    lines = []
    for setting, k_tile, whole in rows:
        row = row_of(setting)
        consumers = "PINGPONG" if row.consumers == "pingpong" else "COOPERATIVE"
        cluster = "ALONE" if row.cluster == (1, 1, 1) else str(row.cluster)
        corrections = f"{digits(math.exp(k_tile))}, {digits(math.exp(whole))}"
        arguments = f"{row.cta}, {row.warpgroups}, {consumers}, {cluster}, {row.swap}, {row.slices}, {corrections}"
        line = f"    KernelConfig({arguments}),\n"
        m, n, k = row.cta
        lines.append((-m * n, -m, k, consumers, row.swap, row.cluster, row.slices, line))
    body = "MEASURED = (\n" + "".join(line[-1] for line in sorted(lines)) + ")\n"
    return re.sub(r"^MEASURED = \(\n.*?\n\)\n", lambda _: body, text, count=1, flags=re.M | re.S)


def _with_overall(text: str, whole: Mapping[tuple[int, int, int], float]) -> str:
    """The correction of each tile that was measured."""

    def corrected(line: re.Match[str]) -> str:
        m, n, k = map(int, line[1].split(", "))
        found = whole.get((m, n, k), 0.0)
        overall = f", overall={digits(math.exp(found))}" if abs(found) >= FELT else ""
        return f"    Candidate(({line[1]}), ({line[2]}), {line[3]}{overall}),"

    pattern = r"^    Candidate\(\(([\d, ]+)\), \(([\d, ]+)\), (\d+)(?:, overall=[\d.]+)?\),"
    return re.sub(pattern, corrected, text, flags=re.M)


def _with_tables(text: str, constants: Mapping[str, Mapping[str, Any]]) -> str:
    """The values in the page's tables of constants: of `sm80` and `sm120` side by side, then of `sm90`."""
    for name in constants["sm80"]:
        values = " | ".join(f"{float(digits(float(constants[family][name]))):g}" for family in ("sm80", "sm120"))
        text = re.sub(rf"^(\| `{name}`, .*? \|) .*? \| .*? \|$", rf"\1 {values} |", text, count=1, flags=re.M)
    before, heading, after = text.partition("## Warpgroups")
    for name, value in constants["sm90"].items():
        after = re.sub(
            rf"^\| `{name}` \| [\d.e+-]+ \|",
            f"| `{name}` | {float(digits(float(value))):g} |",
            after,
            count=1,
            flags=re.M,
        )
    return before + heading + after
