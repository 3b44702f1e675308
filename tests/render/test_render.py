"""Rendered files: the shipped ones word for word, and any other formatted, complete and importable."""

from __future__ import annotations

import ast
import contextlib
import re
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import combinations as combinations_of
from itertools import product
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import jinja2
import numpy as np
import pytest

from cutegen.errors import SpecError
from cutegen.plan import plan
from cutegen.render import kernel, render
from cutegen.render.environment import POINT, environment, rendered
from cutegen.render.python_text import LINE_WIDTH, comment, constant, docstring
from cutegen.spec import (
    GEMM,
    PROBE,
    Epilogue,
    G2s,
    G2sCopy,
    GemmSpec,
    Mma,
    Raster,
    S2r,
    S2rCopy,
    Schedule,
    Smem,
    SmemLayout,
    Tile,
    load_spec,
    shipped_specs,
)
from cutegen.support.resources import templates_dir
from tests.plan.specs import gemm
from tests.run import dtype_cases, simt_cases, split_k
from tests.run import test_block_scales as block_scales
from tests.run import test_grouped_kernels as grouped_kernels
from tests.run import test_grouped_tcgen05 as grouped_tcgen05
from tests.run import test_grouped_wgmma as grouped_wgmma
from tests.run import test_pairs as pairs
from tests.run import test_quantized as quantized
from tests.run import test_sm100_columns_in_pairs as sm100_pairs
from tests.run import test_sm100_quantized as sm100_quantized
from tests.run import test_sm100_scaled_groups as sm100_scaled_groups
from tests.run import wgmma as warpgroups
from tests.run.epilogues import CASES
from tests.run.test_wgmma_pairs import ROWS
from tests.run.wgmma_settings import spec_of
from tests.seeding import new_generator

GOLDEN = Path(__file__).parent / "golden"
HOSTILE_NAMES = [
    "class",
    "None",
    "gemm",
    "cute",
    "main",
    "a",
    "9 lives",
    'quo"te',
    "three \"\"\" quotes '''",
    "back\\slash\\",
    "line\nbreak",
    "../../etc/passwd",
    "{{ 7 * 7 }}{% endif %}",
    "наименование",
    "\udcff",
    "x" * 300,
    "",
]
LONG_ATOM = f"((8{',1' * 35}),32):((32{',0' * 35}),1)"  # its shape alone is longer than a line


def every_pair(*factors: Sequence[Any]) -> Iterator[tuple[Any, ...]]:
    """Rows of the product in which any two values of two factors meet: templates have no branch on more than two."""
    rows = [tuple(enumerate(row)) for row in product(*(range(len(factor)) for factor in factors))]
    left = {pair for row in rows for pair in combinations_of(row, 2)}
    while left:
        best = max(rows, key=lambda row: len(left.intersection(combinations_of(row, 2))))
        left -= set(combinations_of(best, 2))
        yield tuple(factors[at][value] for at, value in best)


def described(text: str) -> str:
    """What a spec may be described as: a line of text."""
    return "" if text == "\udcff" else text[:200].replace("\n", " ")


def combinations() -> list[GemmSpec]:
    """Every branch of the template, and text that might break out of it."""
    tile = Tile(cta=(64, 64, 32), stages=2)
    branches = [
        gemm(majors, dtype, accumulator, tile=tile, epilogue=Epilogue(smem), schedule=Schedule(raster))
        for majors, (dtype, accumulator), smem, raster in every_pair(
            ["kkn", "mnm"],
            [("f16", "f16"), ("bf16", "f32")],
            [None, False, SmemLayout(pad=0)],
            [Raster("n", 1, False), Raster("m", 4, True), Raster("n", 8, True)],
        )
    ]
    copies = [
        gemm(tile=tile, smem=Smem(a=a, b=b), s2r=S2r(b=load), mma=mma)
        for a, b, load, mma in every_pair(
            [None, SmemLayout(pad=2), SmemLayout(layout=LONG_ATOM)],
            [None, SmemLayout(pad=8)],
            [None, S2rCopy("universal")],
            [Mma(), Mma(atom="SM80_16x8x8_F32F16F16F32_TN")],
        )
    ]
    plain = [
        gemm(tile=replace(tile, stages=stages), g2s=G2s(a=a, b=b), epilogue=Epilogue(smem))
        for stages, a, b, smem in every_pair(
            [1, 3], [None, G2sCopy("universal", 16)], [None, G2sCopy("universal", 128)], [None, False]
        )
    ]
    kept = gemm("knm", tile=tile)
    kept = replace(kept, problem=replace(kept.problem, b=replace(kept.problem.b, transposed="once")))
    of_bytes = [
        replace(gemm(majors, "s8", tile=Tile(cta=(64, 64, 64), stages=2), s2r=S2r(b=load)), family=family, kind=kind)
        for majors, load, (family, kind) in every_pair(
            ["knn", "mnm"],
            [S2rCopy("SM100_U8x16_LDSM_T"), S2rCopy("SM100_U8x8_LDSM_T")],
            [("sm80", GEMM), ("sm80", PROBE), ("sm120", GEMM)],
        )
    ]
    of_bytes.append(gemm("kkn", "u8", b_dtype="s8", c_dtype="u8", epilogue=Epilogue(ops=("alpha", "residual"))))
    by_warpgroups = [
        warpgroups.spec("sm90", majors, dtype, *ops, cta=(128, 128, 64), smem=smem, **schedule)
        for majors, dtype, smem, ops, schedule in every_pair(
            ["kkn", "mnm"],
            ["f16", "bf16"],
            [None, False],
            [(), ("alpha", "beta", "relu")],
            [{}, {"split_k": 3}, {"cluster": (2, 1)}, {"cluster": (1, 2), "consumers": "pingpong"}],
        )
    ]
    texts = [replace(gemm(), name=text, description=described(text)) for text in HOSTILE_NAMES]
    return [
        *branches,
        *copies,
        *plain,
        kept,
        *of_bytes,
        *by_warpgroups,
        *texts,
        *CASES.values(),
        *map(load_spec, shipped_specs()),
    ]


@pytest.fixture(scope="module")
def texts() -> list[str]:
    return [render(plan(spec, spec.needs)).text for spec in combinations()]


@pytest.mark.parametrize("name", shipped_specs())
def test_shipped_specs_word_for_word(name: str, request: pytest.FixtureRequest) -> None:
    spec = load_spec(name)
    text = render(plan(spec, spec.needs)).text
    path = GOLDEN / f"{name}.py.txt"
    if request.config.getoption("--update-golden"):
        path.parent.mkdir(exist_ok=True)
        path.write_text(text)
    assert path.exists(), (
        f"{path} is missing; look at the output of `cutegen emit {name}` and run pytest --update-golden"
    )
    assert text == path.read_text()


def test_every_pair_of_values_meets() -> None:
    factors = ["ab", "cde", "fg", "hij"]
    rows = list(every_pair(*factors))
    met = {pair for row in rows for pair in combinations_of(row, 2)}
    assert met == {(x, y) for one, other in combinations_of(factors, 2) for x in one for y in other}
    assert len(rows) <= 12 < len(list(product(*factors)))


def test_any_spec_gives_a_formatted_file(texts: list[str], tmp_path: Path) -> None:
    """Ruff's rules hold that are named here; a layout may make a line long (E501)."""
    for number, text in enumerate(texts):
        (tmp_path / f"kernel_{number}.py").write_text(text)
    ruff = [sys.executable, "-m", "ruff"]
    formatted = subprocess.run(
        [*ruff, "format", "--check", "--line-length", str(LINE_WIDTH), "--isolated", tmp_path],
        capture_output=True,
        text=True,
        check=False,
    )
    assert formatted.returncode == 0, formatted.stdout + formatted.stderr
    linted = subprocess.run(
        [*ruff, "check", "--select", "E,F,W,B,SIM", "--ignore", "E501", "--isolated", tmp_path],
        capture_output=True,
        text=True,
        check=False,
    )
    assert linted.returncode == 0, linted.stdout + linted.stderr


def test_any_spec_gives_a_file_that_compiles_without_a_warning(texts: list[str]) -> None:
    for text in texts:
        compile(text, "kernel.py", "exec")  # an invalid escape would be a warning, and warnings are errors here


def test_the_shipped_kernels_have_no_long_line() -> None:
    for spec in map(load_spec, shipped_specs()):
        lines = render(plan(spec, spec.needs)).text.splitlines()
        assert [line for line in lines if len(line) > LINE_WIDTH] == []


@pytest.mark.parametrize("name", HOSTILE_NAMES)
def test_an_entry_is_an_identifier_whatever_the_spec_is_called(name: str) -> None:
    source = render(plan(replace(gemm(), name=name), "sm_80"))
    assert source.entry.isidentifier()
    assert source.entry.isascii()
    assert len(source.entry) < 80
    assert f'KERNEL_NAME = "{source.entry.removesuffix("_0")}"' in source.text


def test_nothing_of_a_description_is_run() -> None:
    described = replace(gemm(), description='""" + str(print()) + """ {{ plan.threads }}')
    module = ast.parse(render(plan(described, "sm_80")).text)
    first = module.body[0]
    assert isinstance(first, ast.Expr)
    assert isinstance(first.value, ast.Constant)
    assert "{{ plan.threads }}" in first.value.value


def test_every_constant_has_its_decision() -> None:
    found = plan(load_spec("sm80_hgemm_tn"), "sm_80")
    text = render(found).text
    for decision in found.decisions:
        assert f"\n# {decision.key}: {decision.chosen}" in text


@pytest.mark.parametrize("ops", [("relu",), ("bias_n", "gelu_erf"), ("scale_m", "scale_n", "silu")])
@pytest.mark.parametrize("of", ["m", "k"])
def test_a_long_comment_of_a_deep_loop_stays_a_comment(of: str, ops: tuple[str, ...]) -> None:
    spec = grouped_kernels.Setting(of, ops=ops).spec()
    ast.parse(render(plan(spec, "sm_80")).text)


def test_the_kernel_depends_on_nothing_of_cutegen() -> None:
    module = ast.parse(render(plan(gemm(), "sm_80")).text)
    imported = {
        name.split(".")[0]
        for node in ast.walk(module)
        for name in (
            [alias.name for alias in node.names]
            if isinstance(node, ast.Import)
            else [node.module or ""]
            if isinstance(node, ast.ImportFrom)
            else []
        )
    }
    assert imported <= {"cuda", "cutlass", "torch"}


def test_a_hole_without_a_value_is_an_error() -> None:
    with pytest.raises(jinja2.UndefinedError):
        environment().from_string("{{ nobody }}").render()


@pytest.mark.parametrize("path", sorted(templates_dir().rglob("*.j2")), ids=lambda path: path.name)
def test_templates_only_write(path: Path) -> None:
    """No branch, no arithmetic, no assignment, no macro, no call but of a point."""
    tree = environment().parse(path.read_text())
    for kind in (jinja2.nodes.If, jinja2.nodes.CondExpr, jinja2.nodes.Assign, jinja2.nodes.Macro, jinja2.nodes.BinExpr):
        assert list(tree.find_all(kind)) == [], kind
    for call in tree.find_all(jinja2.nodes.Call):
        assert isinstance(call.node, jinja2.nodes.Name), call
        assert call.node.name == "at", call


def points_and_blocks() -> tuple[set[str], dict[str, set[str]]]:
    """Every point of the templates, and the templates that have a block of each name; libraries of functions aside."""
    paths = [path for path in templates_dir().rglob("*.j2") if path.parent.name != "functions"]
    texts = {path.name: path.read_text() for path in paths}
    library = "".join(path.read_text() for path in (templates_dir() / "functions").iterdir())
    points = {found[2] for text in (*texts.values(), library) for found in POINT.finditer(text)}
    blocks: dict[str, set[str]] = {}
    for name, text in texts.items():
        for block in re.findall(r"{% block (\w+) %}", text):
            blocks.setdefault(block, set()).add(name)
    return points, blocks


def test_every_block_is_for_a_point_and_every_point_has_a_block() -> None:
    points, blocks = points_and_blocks()
    assert set(blocks) - points == set()
    assert points - set(blocks) == set()


def test_a_part_stands_at_its_point_with_its_indentation() -> None:
    skeleton = "def f():\n    {% at body %}\n    {% at nothing %}\n    return {{ value }}\n"
    parts = (
        "{% block body %}\nx = {{ value }}\nif x:\n    {% at inner %}\n{% endblock %}\n",
        "{% block inner %}\n\ny = 1\n{% endblock %}\n",
    )
    text = rendered(skeleton, {"parts": parts, "value": 7})
    assert text == "def f():\n    x = 7\n    if x:\n\n        y = 1\n    return 7\n"


@pytest.mark.slow
def test_every_part_and_every_function_is_of_some_kernel(monkeypatch: pytest.MonkeyPatch) -> None:
    """A file or a function that no plan lists would never be read. (Headers are of packs and launches.)"""
    used: set[str] = set()

    def listed(skeleton: str, holes: Mapping[str, Any]) -> str:
        used.update((skeleton, *holes["parts"]))
        return ""

    monkeypatch.setattr(kernel, "rendered", listed)
    shipped = [load_spec(name) for name in shipped_specs()]
    of_wgmma = grouped_wgmma.QUICK, grouped_wgmma.MORE
    by_layouts = Mma(atom_layout=(2, 2, 1), permutation=("(16,2,2):(1,32,16)", "(8,2,2):(1,16,8)", 16))
    rare = [
        replace(gemm(), mma=by_layouts),
        replace(warpgroups.spec("sm90"), schedule=Schedule(programmatic=True)),
        *(
            replace(warpgroups.spec("sm90"), schedule=Schedule(programmatic="weights", cluster=cluster))
            for cluster in (None, (2, 1))
        ),
        replace(warpgroups.spec("sm90"), schedule=Schedule(pace=1000)),
        warpgroups.spec("sm90", dtype="e4m3", c=gemm().problem.c, cta=(128, 192, 128), promote_k=128),
        gemm("kkn", "f16", c_dtype="f32", schedule=Schedule(split_k=2, reduction="atomics")),
        *(
            replace(gemm("kkn", "f16"), family="sm100", mma=Mma(cta_group=ctas), schedule=Schedule(cluster=(4, 2)))
            for ctas in (1, 2)
        ),
        replace(gemm("kkn", "f16"), family="sm100", mma=Mma(cta_group=2), tile=Tile((64, 64, 64))),
        replace(gemm("kkn", "f16"), family="sm100", schedule=Schedule(split_k=2)),
        replace(gemm("kkn", "f16"), family="sm100", schedule=Schedule(tiles="dynamic")),
        *pairs.CASES.values(),
        sm100_pairs.SPECS["halves"],
        sm100_quantized.COLUMNS.spec(),
        *(setting.spec() for setting in (sm100_scaled_groups.MXF8, sm100_scaled_groups.K_MAJOR)),
        *(setting.spec for setting in (*block_scales.OTHERS, block_scales.OF_LANES[0])),
        *(
            setting.spec()
            for settings in (quantized.OTHERS, grouped_kernels.QUICK, *of_wgmma, grouped_tcgen05.SETTINGS)
            for setting in settings
        ),
    ]
    cases = (CASES, simt_cases.CASES, dtype_cases.CASES, warpgroups.CASES, split_k.CASES)
    asked = [(spec, None) for spec in (*combinations(), *map(spec_of, ROWS), *rare, *shipped)]
    asked += [(spec, None) for table in cases for spec in table.values()]
    asked += [(spec, (m, 4096, 4096)) for spec in shipped for m in (16, 300, 4096)]
    for spec, problem in asked:
        for arch in ("sm_80", "sm_90a", "sm_100a", "sm_120a"):
            with contextlib.suppress(SpecError):
                render(plan(spec, arch, problem))
    there = {str(path.relative_to(templates_dir())) for path in templates_dir().rglob("*.py.j2")}
    for library in (templates_dir() / "functions").iterdir():
        name = f"functions/{library.name}"
        there |= {f"{name}#{found}" for found in re.findall(r"{% block (\w+) %}", library.read_text())} - {name}
        there.remove(name)
    # Others include two, and only families of tests convert operands (tests/plan/families).
    included = {"host/host.py.j2", "host/persistent_launch.py.j2"}
    assert there - used == {*included, "mma/converted.py.j2"}


class Int32(int):
    """An int32 that does not wrap around but fails."""

    def __new__(cls, value: int) -> Int32:
        assert -(2**31) <= value < 2**31
        return super().__new__(cls, value)

    def __add__(self, other: int) -> Int32:
        return Int32(int(self) + other)

    def __sub__(self, other: int) -> Int32:
        return Int32(int(self) - other)

    def __mul__(self, other: int) -> Int32:
        return Int32(int(self) * other)

    __radd__, __rmul__ = __add__, __mul__


def functions_of(text: str, *names: str, reciprocal_error: float = 0.0, **constants: int) -> dict[str, Any]:
    """Functions of a kernel as plain Python, with float32 and a reciprocal that is off by a share."""
    scope: dict[str, Any] = {
        "cute": SimpleNamespace(
            jit=lambda function: function,
            arch=SimpleNamespace(rcp_approx=lambda x: np.float32(1 / float(x) * (1 + reciprocal_error))),
        ),
        "cutlass": SimpleNamespace(min=min, Float32=np.float32),
        "Int32": Int32,
        **constants,
    }
    for function in ast.parse(text).body:
        if isinstance(function, ast.FunctionDef) and function.name in names:
            exec(ast.unparse(function), scope)
    return scope


@pytest.mark.parametrize("reciprocal_error", [-(2.0**-23), 0.0, 2.0**-23])
def test_quotients_are_exact(reciprocal_error: float) -> None:
    """rcp.approx is off by one unit in the last place at most (PTX ISA): random integers, and beside multiples."""
    text = render(plan(gemm(), "sm_80")).text
    quotient = functions_of(text, "quotient", reciprocal_error=reciprocal_error)["quotient"]
    drawn = new_generator()
    for bits_x, bits_y in drawn.integers(0, 31, (2000, 2)):
        x, y = int(drawn.integers(0, 2**bits_x, endpoint=True)), int(drawn.integers(1, 2**bits_y, endpoint=True))
        near = x // y * y
        for each in {x, near, max(near - 1, 0), min(near + y - 1, 2**31 - 1), 2**31 - 1}:
            if each < 2**31 and y < 2**31:
                assert quotient(Int32(each), Int32(y)) == each // y, (each, y)


@pytest.mark.parametrize("zigzag", [False, True])
@pytest.mark.parametrize("along", ["m", "n"])
def test_tiles_are_counted_in_32_bits_as_far_as_a_grid_goes(along: str, zigzag: bool) -> None:
    """A band as wide as specs may ask for, of more tiles than int32 counts, over a grid that is narrower."""
    text = render(plan(gemm(schedule=Schedule(raster=Raster(along, 1024, zigzag))), "sm_80")).text
    scope = functions_of(text, "quotient", "tile_coordinate", RASTER_GROUP=1024)
    for tiles_m, tiles_n in ((2**23, 250), (250, 2**23), (3, 5), (3000, 5000)):
        last = tiles_m * tiles_n - 1
        found = [scope["tile_coordinate"](Int32(index), Int32(tiles_m), Int32(tiles_n)) for index in (0, last)]
        wide = tiles_n if along == "n" else tiles_m
        back = zigzag and (wide - 1) // 1024 % 2 == 1
        end = (0, tiles_n - 1) if back and along == "n" else (tiles_m - 1, 0) if back else (tiles_m - 1, tiles_n - 1)
        assert found == [(0, 0), end]


@pytest.mark.parametrize("reciprocal_error", [-(2.0**-23), 0.0, 2.0**-23])
@pytest.mark.parametrize(
    ("along", "group", "zigzag"), [("n", 8, False), ("m", 6, True), ("n", 1, True), ("m", 16, False)]
)
def test_the_first_tile_is_the_one_that_bands_say(
    along: str, group: int, zigzag: bool, reciprocal_error: float
) -> None:
    """Random grids and the first 2^21 tiles of them, against integers: bands of a group, each swept across."""
    spec = replace(gemm(), family="sm90", schedule=Schedule(raster=Raster(along, group, zigzag)))
    text = render(plan(spec, "sm_90")).text
    scope = functions_of(text, "first_tile_coordinate", reciprocal_error=reciprocal_error, RASTER_GROUP=group)
    drawn = new_generator()
    for bits in drawn.integers(0, 15, (500, 2)):
        sweep, wide = (int(drawn.integers(1, 2**x, endpoint=True)) for x in bits)
        tiles_m, tiles_n = (sweep, wide) if along == "n" else (wide, sweep)
        end = min(sweep * wide, 2**21)
        for index in {0, end - 1, *(int(x) for x in drawn.integers(0, end, 20))}:
            band, within = divmod(index, min(group, wide) * sweep)
            swept, beside = divmod(within, min(group, wide - band * group))
            swept = sweep - 1 - swept if zigzag and band % 2 else swept
            expected = (swept, band * group + beside) if along == "n" else (band * group + beside, swept)
            found = scope["first_tile_coordinate"](Int32(index), Int32(tiles_m), Int32(tiles_n))
            assert found == expected, (index, tiles_m, tiles_n)


def test_text_that_may_be_anything() -> None:
    assert comment("a\nb") == ("# a b",)
    assert all(len(line) <= LINE_WIDTH for line in comment("word " * 100))
    assert docstring("\\") == ("\\\\",)
    assert constant("X", (1,)) == ("X = (1,)",)
    nested = tuple((n, (n, n)) for n in range(20))
    lines = constant("X", nested)
    assert all(len(line) <= LINE_WIDTH for line in lines)
    assert ast.literal_eval("\n".join(lines).removeprefix("X = ")) == nested
