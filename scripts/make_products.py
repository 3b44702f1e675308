"""Write the measured tables and figures of products on docs/performance.md, docs/grouped.md and docs/block_scales.md.

`python scripts/make_products.py` does.

Each block between markers is written anew from docs/products.json.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[1]
DATA = ROOT / "docs" / "products.json"
END = "<!-- end -->"
TABLES: Mapping[str, tuple[str, ...]] = {
    "docs/grouped.md": ("grouped", "masked", "wgrad", "loop"),
    "docs/block_scales.md": ("scaled", "scaled_grouped", "large"),
    "docs/performance.md": ("summary",),
}
"""The tables of each page, and sentences with figures of single products."""
TITLES = {
    "grouped": "packed groups of rows, bf16",
    "masked": "padded groups, bf16: groups x mean rows x N x K",
    "wgrad": "gradients of weights, bf16",
    "scaled": "factors of 1 x 128 and 128 x 128: M x N x K",
    "scaled_grouped": "the same in packed groups: groups x mean rows x N x K",
}
TORCH = {
    "grouped": "grouped_mm",
    "masked": "bmm of all rows",
    "wgrad": "grouped_mm",
    "scaled": "scaled_mm",
}
"""What torch offers; nothing for groups with factors of blocks."""
SUMMARY = {
    "grouped": ("experts: packed groups, bf16", "grouped.md"),
    "masked": ("experts: padded groups, bf16", "grouped.md"),
    "wgrad": ("gradients of experts' weights, bf16", "grouped.md"),
    "scaled": ("e4m3 with factors of 1 x 128 and 128 x 128", "block_scales.md"),
}
TITLE_OF = {"torch": "torch", "quack": "QuACK", "deepgemm": "DeepGEMM"}

Row = Mapping[str, Any]


def begin(table: str) -> str:
    """Return the marker before a table."""
    return f"<!-- begin: scripts/make_products.py {table} -->"


def ratios(row: Row) -> dict[str, float]:
    """Return the time of each other contender over cutegen's, both in graphs of one run."""
    graph = row["graph_us"]
    return {each: graph[each] / graph["cutegen"] for each in TITLE_OF if each in graph}


def table(name: str, rows: Mapping[str, Row]) -> str:
    """Return one table in Markdown, with the geometric mean and the least of cutegen's speed over the best other's."""
    others = [each for each in TITLE_OF if _has(each, rows)]
    titles = [TITLES[name], "floor, us", "cutegen, us", "of the floor"]
    titles += [f"x {TITLE_OF[each]}{f', {TORCH[name]}' if each == 'torch' else ''}" for each in others]
    lines = [_line(titles), _line("---" for _ in titles)]
    for key, row in rows.items():
        ours = row["graph_us"]["cutegen"]
        cells = [key, _us(row["floor_us"]), _us(ours), f"{100 * row['floor_us'] / ours:.0f} %"]
        lines.append(_line([*cells, *(f"{ratios(row)[each]:.2f}" for each in others)]))
    if others:
        mean, least, _ = against_the_best(rows)
        lines += ["", f"Against the best other: {mean:.2f} on average (geometric mean), {least:.2f} at least."]
    return "\n".join(lines)


def against_the_best(rows: Mapping[str, Row]) -> tuple[float, float, float]:
    """Return the speed over the best other contender: geometric mean, least and largest."""
    best = [min(ratios(row).values()) for row in rows.values()]
    return math.exp(sum(map(math.log, best)) / len(best)), min(best), max(best)


def summary(products: Mapping[str, Mapping[str, Row]]) -> str:
    """Return one line for each product that another contender has."""
    lines = [_line(["product", "problems", "the best of", "speed over it"]), _line(["---"] * 4)]
    for name, (what, page) in SUMMARY.items():
        rows = products[name]
        mean, least, largest = against_the_best(rows)
        *names, last = (TITLE_OF[each] for each in TITLE_OF if _has(each, rows))
        others = f"{', '.join(names)} and {last}" if names else last
        lines.append(_line([f"[{what}]({page})", str(len(rows)), others, f"{mean:.2f} ({least:.2f} to {largest:.2f})"]))
    return "\n".join(lines)


def _us(time: float) -> str:
    return f"{time:,.0f}" if time >= 100 else f"{time:.1f}"


def _has(contender: str, rows: Mapping[str, Row]) -> bool:
    return all(contender in ratios(row) for row in rows.values())


def _line(cells: Iterator[str] | list[str]) -> str:
    return f"| {' | '.join(cells)} |"


def _loop(products: Mapping[str, Mapping[str, Row]]) -> str:
    """Return how much faster a loop of torch's products is where it is, with sizes that the host knows."""
    graphs = {key: row["graph_us"] for key, row in products["grouped"].items()}
    faster = {key: x["cutegen"] / x["loop"] for key, x in graphs.items() if x.get("loop", math.inf) < x["cutegen"]}
    said = ", ".join(f"{ratio:.2f} times for {key}" for key, ratio in sorted(faster.items(), key=lambda x: -x[1]))
    return (
        "Sizes are read on the device. A loop of torch's products, whose sizes the host knows, is faster where each\n"
        f"group fills large tiles: {said}."
    )


def _large(products: Mapping[str, Mapping[str, Row]]) -> str:
    """Return the rates of the largest product."""
    rows = {key: row["graph_us"] for key, row in products["scaled"].items()}
    operations = {key: 2 * math.prod(map(int, key.split("x"))) for key in rows}
    key = max(operations, key=operations.__getitem__)
    ours, torch = (round(operations[key] / rows[key][each] / 1e6, -1) for each in ("cutegen", "torch"))
    m, n, k = key.split("x")
    return f"The largest product, {m} x {n} x {k}, reaches {ours:,.0f} TFLOP/s, of the {torch:,.0f} of torch's."


OF_ALL = {"summary": summary, "loop": _loop, "large": _large}
"""What is written of all products, by the name of its marker."""


def written(page: str, data: Mapping[str, Any], names: tuple[str, ...]) -> str:
    """Return the text of a page with its tables and sentences written anew."""
    for name in names:
        before, marker, rest = page.partition(begin(name))
        assert marker, f"no marker of {name}"
        products = data["products"]
        text = OF_ALL[name](products) if name in OF_ALL else table(name, products[name])
        page = f"{before}{marker}\n\n{text}\n\n{END}{rest.partition(END)[2]}"
    return page


def main() -> None:
    """Write the pages."""
    data = json.loads(DATA.read_text())
    for page, names in TABLES.items():
        path = ROOT / page
        path.write_text(written(path.read_text(), data, names))


if __name__ == "__main__":
    main()
