"""Names in rendered files: each is read, and comments mention what is there."""

from __future__ import annotations

import ast
import io
import re
import subprocess
import sys
import tokenize
from dataclasses import replace
from pathlib import Path

import pytest

from cutegen.plan import plan
from cutegen.render import render
from cutegen.render.python_text import LINE_WIDTH
from cutegen.spec import Epilogue, G2s, G2sCopy, S2r, S2rCopy, Schedule, Tile, load_spec, shipped_specs
from tests.plan.specs import gemm
from tests.run import wgmma as warpgroups

LONG_SUM = "x -> max(x, alpha) * sigmoid(bias_n) + max(x, -alpha) * silu(bias_m) - (max(scale_m, 0.25) + scale_n)"
UNUSUAL = {
    "C straight from registers": warpgroups.spec("sm90", "kkn", "f16", cta=(128, 64, 64), smem=False),
    "a long sum in a part": replace(
        warpgroups.spec("sm90", "kkn", "f16", cta=(128, 64, 64)),
        epilogue=Epilogue(expression="x -> x + max(min(0.25, beta), -1.125)"),
    ),
    "a long sum of slices": gemm(
        epilogue=Epilogue(ops=("alpha", "bias_n"), expression=LONG_SUM), schedule=Schedule(split_k=2)
    ),
    "vectors only": replace(gemm(epilogue=Epilogue(ops=("scale_m", "silu"))), family="sm120"),
    "vectors and slices": warpgroups.spec("sm90", "kkn", "f16", "bias_n", cta=(128, 64, 64), split_k=4),
    "slices in a cluster only": warpgroups.spec(
        "sm90", "kkn", "f16", cta=(128, 64, 64), split_k=2, cluster=(2, 1, 2), reduction="cluster"
    ),
    "slices in a cluster without copies for several CTAs": warpgroups.spec(
        "sm90", "kkn", "f16", cta=(128, 64, 64), split_k=2, cluster=(1, 1, 2), reduction="cluster"
    ),
    "one stage, A through registers": gemm(tile=Tile(cta=(64, 64, 32), stages=1), g2s=G2s(a=G2sCopy("universal"))),
    "A through registers": gemm(tile=Tile(cta=(64, 64, 32), stages=2), g2s=G2s(a=G2sCopy("universal"))),
    "one operand prefetched": replace(
        warpgroups.spec("sm90", "kkn", "f16", cta=(64, 128, 64)), g2s=G2s(a=G2sCopy(prefetch=3))
    ),
    "two kinds of loads": gemm(s2r=S2r(b=S2rCopy("universal")), epilogue=Epilogue(ops=("relu",))),
    "columns reordered": replace(gemm("knn", "s8", tile=Tile(cta=(64, 64, 64), stages=2)), family="sm120"),
}


@pytest.mark.parametrize("name", UNUSUAL)
def test_an_unusual_kernel_has_no_long_line_and_no_unused_name(name: str, tmp_path: Path) -> None:
    spec = UNUSUAL[name]
    text = render(plan(spec, "sm_100" if name == "columns reordered" else "sm_90")).text
    assert [line for line in text.splitlines() if len(line) > LINE_WIDTH] == []
    assert _unread_constants(text) == set()
    assert _unknown_in_comments(text) == set()
    (tmp_path / "kernel.py").write_text(text)
    command = ["ruff", "check", "--select", "F", "--isolated", "--config", "lint.dummy-variable-rgx='^_$'", "kernel.py"]
    linted = subprocess.run([sys.executable, "-m", *command], cwd=tmp_path, capture_output=True, text=True, check=False)
    assert linted.returncode == 0, linted.stdout + linted.stderr
    unread = {x.id for x in ast.walk(_kernel(text)) if isinstance(x, ast.Name) and isinstance(x.ctx, ast.Store)}
    assert unread - _read(text) <= {"_"}


def test_the_shipped_kernels_read_every_constant_and_name_what_is_there_in_comments() -> None:
    for name in shipped_specs():
        spec = load_spec(name)
        text = render(plan(spec, spec.needs)).text
        assert (_unread_constants(text), _unknown_in_comments(text)) == (set(), set()), name


def test_one_warpgroup_is_not_called_several() -> None:
    text = render(plan(warpgroups.spec("sm90", "kkn", "e4m3", cta=(64, 64, 128)), "sm_90")).text
    assert "# mma.atom_layout: 1x1x1 (one warpgroup for the whole tile: " in text
    assert "nother warpgroup" not in text
    assert "the warpgroups" not in text


def _read(text: str) -> set[str]:
    return {x.id for x in ast.walk(ast.parse(text)) if isinstance(x, ast.Name) and isinstance(x.ctx, ast.Load)}


def _unread_constants(text: str) -> set[str]:
    """The constants at the head that no code reads."""
    targets = [x.targets[0] for x in ast.parse(text).body if isinstance(x, ast.Assign)]
    return {x.id for target in targets for x in ast.walk(target) if isinstance(x, ast.Name)} - _read(text)


def _unknown_in_comments(text: str) -> set[str]:
    """Tensors, by CuTe's names, that comments mention and no code has."""
    tokens = list(tokenize.generate_tokens(io.StringIO(text).readline))
    comments = " ".join(x.string for x in tokens if x.type == tokenize.COMMENT)
    return set(re.findall(r"\bt[A-Z][a-z][A-Z]\w*", comments)) - {x.string for x in tokens if x.type == tokenize.NAME}


def _kernel(text: str) -> ast.FunctionDef:
    """The function that runs on the GPU."""
    (found,) = (x for x in ast.parse(text).body if isinstance(x, ast.FunctionDef) and x.name == "gemm")
    return found
