"""Every example runs, on a machine without a GPU, and says what it is for."""

from __future__ import annotations

import ast
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.house.documents import ROOT

EXPECTED = {
    "explain_swizzle.py": "plain: 32 wavefronts",
    "fp8_mlp.py": "against the weights before in float64: relative error",
    "hopper_ladder.py": "clusters of 2",
    "ladder.py": "B transposed once",
    "missing_barrier.py": "without bar.sync: line",
    "moe_layer.py": "gradient of down: relative error",
    "quickstart.py": "relative error",
    "read_a_plan.py": "and not",
    "transformer_block.py": "largest difference of a loss",
}
SLOW = {"ladder.py", "fp8_mlp.py"}  # ten kernels are built, and two with large tiles
SMALL = {"ladder.py": ["--problem", "40,72,48"]}


def test_every_example_is_here() -> None:
    assert sorted(EXPECTED) == sorted(path.name for path in (ROOT / "examples").glob("*.py"))


@pytest.mark.dsl
@pytest.mark.parametrize("name", [pytest.param(x, marks=pytest.mark.slow) if x in SLOW else x for x in EXPECTED])
def test_an_example_runs(name: str, tmp_path: Path) -> None:
    path = ROOT / "examples" / name
    assert ast.get_docstring(ast.parse(path.read_text()))
    environment = os.environ | {"CUTEGEN_CACHE_DIR": str(tmp_path / "cache")}
    done = subprocess.run(
        [sys.executable, str(path), *SMALL.get(name, [])], cwd=tmp_path, env=environment, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
    assert EXPECTED[name] in done.stdout
