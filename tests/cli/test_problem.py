"""`--problem` and `--batch`: what they change of a plan, and runs of whole batches."""

from __future__ import annotations

from pathlib import Path

import pytest

from cutegen.cli.many import named_kernels
from cutegen.contract import ProblemShape
from tests.cli.commands import Cli

OPEN = """
family = "sm80"
[problem]
a = { dtype = "f16", major = "k" }
b = { dtype = "f16", major = "k" }
c = { dtype = "f16", major = "n" }
"""


@pytest.fixture
def bare(tmp_path: Path) -> Path:
    """A spec with nothing but the operands."""
    path = tmp_path / "bare.toml"
    path.write_text(OPEN)
    return path


def test_plan_is_for_the_problem(cli: Cli, bare: Path) -> None:
    narrow = cli(f"plan {bare} --arch sm_90 --problem 16,4096,4096 --json").json
    wide = cli(f"plan {bare} --arch sm_90 --problem 4096,4096,4096 --json").json
    assert narrow["tile"] != wide["tile"]
    assert narrow["problem"] == {"m": 16, "n": 4096, "k": 4096, "batch": 1}
    batched = cli(f"plan {bare} --arch sm_90 --problem 128,128,4096 --batch 512 --json").json
    assert (batched["problem"]["batch"], batched["split_k"]) == (512, None)


def test_kernels_to_build_are_chosen_for_groups(cli: Cli) -> None:
    """`build` and `pack` name their kernels alike; a spec without groups has none."""
    (one,) = named_kernels(["sm80_bf16_grouped"], ["512,256,128"], None, 8, "a100", None, verb="build")
    assert one.problem == ProblemShape(512, 256, 128, groups=8)
    for verb in ("build", "pack"):
        out = "--out x.cutepack" if verb == "pack" else ""
        refused = cli(f"{verb} sm80_hgemm_tn --arch a100 --problem 512,256,128 --groups 8 {out}")
        assert "problem.groups: found a problem of 8 groups, and none in the spec" in refused.err


@pytest.mark.parametrize("verb", ["plan", "emit", "show"])
def test_the_verbs_agree(verb: str, cli: Cli, bare: Path) -> None:
    table = cli(f"plan {bare} --arch sm_90 --problem 64,8192,8192 --json").json
    m, n, k = table["tile"]
    text = cli(f"{verb} {bare} --arch sm_90 --problem 64,8192,8192").out
    assert (f"CTA_M, CTA_N, CTA_K = {m}, {n}, {k}" if verb == "emit" else f"{m}x{n}x{k}") in text


def test_show_is_for_the_batch_that_is_named(cli: Cli, bare: Path) -> None:
    words = f"{bare} --arch sm_90 --problem 128,128,4096"
    tile = cli(f"plan {words} --batch 512 --json").json["decisions"][0]["chosen"]
    assert tile in cli(f"show {words} --batch 512").out
    assert tile not in cli(f"show {words}").out


def test_a_batch_has_at_most_as_many_matrices_as_a_grid_has_layers(cli: Cli, bare: Path) -> None:
    outcome = cli(f"plan {bare} --problem 64,64,64 --batch 65536")
    assert (outcome.code, "'--batch': 65536 is not in the range 1<=x<=65535" in outcome.err) == (2, True)
    assert cli(f"plan {bare} --problem 64,64,64 --batch 65535").code == 0


@pytest.mark.dsl
def test_a_batch_is_run_and_checked(cli: Cli, bare: Path) -> None:
    outcome = cli(f"run {bare} --arch sm_80 --device cpu --problem 40,72,200 --batch 3")
    assert outcome.code == 0, outcome.err
    assert "M 40, N 72, K 200, a batch of 3" in outcome.out
    assert "every element within its bound" in outcome.out
    table = cli(f"run {bare} --arch sm_80 --device cpu --problem 40,72,200 --batch 3 --json").json
    assert (table["batch"], table["ok"], table["as_predicted"]) == (3, True, True)
