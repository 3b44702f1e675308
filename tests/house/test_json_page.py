"""docs/json.md and what the commands print: the same keys."""

from __future__ import annotations

import json
import re
import shlex
from pathlib import Path

import pytest

from cutegen.bench.ceilings import Ceilings
from cutegen.bench.conditions import Conditions
from cutegen.bench.tables import bench_table
from cutegen.build import Cache
from cutegen.cli.output import SCHEMA, Answer
from cutegen.cli.verbs import VERBS
from cutegen.contract.problem import ProblemShape
from tests.bench.conftest import ceilings as ceilings
from tests.bench.conftest import result
from tests.house.documents import ROOT
from tests.house.replay import printed
from tests.pack.conftest import gemms_path as gemms_path
from tests.pack.conftest import pack_path as pack_path

PAGE = ROOT / "docs" / "json.md"
ROWS = dict(re.findall(r"^\| `cutegen ([^`]+)` \| (.*) \|$", PAGE.read_text(), re.MULTILINE))
NEEDS_GPU = "bench SPEC"  # and of `tune` tests/tune/test_cli.py has every row
WORDS = {
    "SPEC": "sm80_hgemm_tn --arch sm_80",
    "PROBE": "ldmatrix_probe --arch sm_80",
    "EXPR": "8:1",
    "FILE.ptx": "examples/reverse.ptx --block 64 --arg u32[64]:arange",
}


def keys(row: str) -> list[str]:
    return re.findall(r"`(\w+)`", ROWS[row])


@pytest.fixture(autouse=True)
def _cached(monkeypatch: pytest.MonkeyPatch, kernels: Cache) -> None:
    monkeypatch.setenv("CUTEGEN_CACHE_DIR", str(kernels.directory))
    monkeypatch.chdir(ROOT)


OTHERS = {"ANOTHER": "sm80_bf16_nn", "NEW.cutepack": "{new}", "OLD.cutepack": "{old}", "GEMMS.cutepack": "{gemms}"}


def command(row: str) -> str:
    """A row with its placeholders filled in, part by part: `show SPEC mma` says the SPEC first."""
    spec = next((words for name, words in WORDS.items() if name in row), "")
    name = next((name for name in WORDS if name in row), "")
    small = " --device cpu" if row.startswith(("run SPEC", "run PROBE", "probe SPEC")) else ""
    small += " --problem 8,8,64" if row.startswith("run SPEC") else ""
    filled = row.replace(name, spec) if name else row
    for other, words in OTHERS.items():
        filled = filled.replace(other, words)
    return f"cutegen {filled}{small} --json"


@pytest.mark.dsl
@pytest.mark.parametrize("row", sorted(row for row in ROWS if not row.startswith(("bench ", "tune "))))
def test_a_command_prints_the_keys_that_the_page_names(
    row: str, pack_path: Path, gemms_path: Path, tmp_path: Path
) -> None:
    files = {"new": tmp_path / "new.cutepack", "old": pack_path, "gemms": gemms_path}
    table = json.loads(printed(command(row).format(**files)))
    assert list(table) == keys(row)
    assert table["schema"] == SCHEMA


def test_the_page_names_the_keys_of_measurements(ceilings: Ceilings, capsys: pytest.CaptureFixture[str]) -> None:
    Answer(json=True, out=None).give(
        lambda: bench_table(
            ceilings, [result("mine", ProblemShape(64, 64, 64), 3.0, ours=True)], Conditions(None, None, {})
        ),
        list,
    )
    assert list(json.loads(capsys.readouterr().out)) == keys(NEEDS_GPU)


def test_the_page_has_every_verb_and_the_version() -> None:
    assert {shlex.split(row)[0] for row in ROWS} == set(VERBS)
    assert f"`schema` is {SCHEMA}" in PAGE.read_text()
