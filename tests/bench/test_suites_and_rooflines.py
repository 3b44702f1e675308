"""Suites of problems, and rooflines whose points lie where numbers worked out by hand put them."""

from __future__ import annotations

import xml.etree.ElementTree as ElementTree

import pytest

from cutegen.bench.roofline_svg import BOTTOM, HEIGHT, LEFT, RIGHT, TOP, WIDTH, Point, Roof, roofline_svg
from cutegen.bench.suites import SUITES
from cutegen.contract.problem import ProblemShape


def test_a_problem_counts_its_operations_and_bytes() -> None:
    extents = ProblemShape(8192, 4096, 14336)
    assert extents.flops == 2 * 8192 * 4096 * 14336 == 962_072_674_304
    assert extents.compulsory_bytes(2, 2, 2) == 2 * (8192 * 14336 + 4096 * 14336 + 8192 * 4096) == 419_430_400
    assert str(extents) == "8192x4096x14336"


def test_suites_hold_what_their_names_say() -> None:
    assert set(SUITES) == {"square", "llm", "skinny", "seed"}
    for name, problems in SUITES.items():
        assert len(set(problems)) == len(problems), name
        assert all(x.m % 8 == x.n % 8 == x.k % 8 == 0 for x in problems), name
    assert all(x.m == x.n == x.k for x in SUITES["square"])
    assert all(min(x.m, x.n) <= 256 for x in SUITES["skinny"])
    assert ProblemShape(4096, 4096, 4096) in SUITES["seed"]
    assert ProblemShape(512, 8192, 8192) in SUITES["seed"]


def test_the_roofline_is_well_formed_and_points_lie_where_they_should() -> None:
    """X from 10 to 1000 operations a byte, y from 1 to 1000 TFLOP/s: (100, 100) lies at a half and at two thirds."""
    points = [Point("a & b", "<1>", 100, 100), Point("a & b", "3", 10, 1), Point("c", "2", 1000, 1)]
    text = roofline_svg("f16 < bf16", [Roof("mma.sync", 600)], 4e12, points)
    root = ElementTree.fromstring(text)
    circles = [x for x in root.iter("{http://www.w3.org/2000/svg}circle") if len(x)]
    assert [x[0].text for x in circles] == ["a & b, <1>: 100.0 TFLOP/s", "a & b, 3: 1.0 TFLOP/s", "c, 2: 1.0 TFLOP/s"]
    assert float(circles[0].attrib["cx"]) == pytest.approx(LEFT + (WIDTH - LEFT - RIGHT) / 2, abs=0.1)
    assert float(circles[0].attrib["cy"]) == pytest.approx(TOP + (HEIGHT - TOP - BOTTOM) / 3, abs=0.1)
    assert float(circles[2].attrib["cx"]) == pytest.approx(WIDTH - RIGHT, abs=0.1)
    assert float(circles[2].attrib["cy"]) == pytest.approx(HEIGHT - BOTTOM, abs=0.1)
    said = [x.text for x in root.iter("{http://www.w3.org/2000/svg}text")]
    assert {"f16 < bf16", "mma.sync, 600", "reading, 4.00 TB/s", "a & b", "c"} <= set(said)


def test_nothing_of_a_roofline_leaves_the_picture() -> None:
    text = roofline_svg("t", [Roof("a", 640), Roof("b", 20)], 4.3e12, [Point("x", "y", 15.9, 9.5)])
    for line in ElementTree.fromstring(text).iter("{http://www.w3.org/2000/svg}line"):
        assert all(LEFT - 0.1 <= float(line.attrib[x]) <= WIDTH - RIGHT + 0.1 for x in ("x1", "x2"))
        assert all(TOP - 0.1 <= float(line.attrib[y]) <= HEIGHT - BOTTOM + 0.1 for y in ("y1", "y2"))
