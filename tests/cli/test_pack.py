"""`cutegen pack`, and `cutegen build` of many: what is built, written and shown, and what becomes of failures."""

from __future__ import annotations

import json
import os
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from pathlib import Path

import pytest

from cutegen.build import Cache, open_artifact
from cutegen.build.pack_file import MAGIC, read_pack
from cutegen.pack.building import build_all
from cutegen.pack.kernel_list import combinations
from cutegen.spec import spec_path
from tests.cli.commands import Cli

pytestmark = pytest.mark.dsl

NOT_FOR_SM_80 = "sm90_hgemm_tn"


@pytest.fixture(autouse=True)
def _shared(monkeypatch: pytest.MonkeyPatch, kernels: Cache, tmp_path: Path) -> None:
    monkeypatch.setenv("CUTEGEN_CACHE_DIR", str(kernels.directory))
    monkeypatch.chdir(tmp_path)


def test_a_pack_is_made_and_shown(cli: Cli) -> None:
    made = cli("pack sm80_hgemm_tn sm80_bf16_nn --arch a100 --out model.cutepack")
    assert made.code == 0, made.err
    assert made.out.startswith("2 kernels: ")
    shown = cli("pack --list model.cutepack")
    assert shown.out.splitlines()[0] == made.out.splitlines()[-1]
    table = cli("pack --list model.cutepack --json").json
    assert [(x["name"], x["target"], x["problem"]) for x in table["entries"]] == [
        ("sm80_hgemm_tn", "sm_80", None),
        ("sm80_bf16_nn", "sm_80", None),
    ]
    assert table["bytes"] == Path("model.cutepack").stat().st_size


def test_a_list_is_packed_beside_specs(cli: Cli) -> None:
    Path("list.toml").write_text("[[kernel]]\nspec = 'sm80_bf16_nn'\nname = 'of the list'\n")
    assert cli("pack sm80_hgemm_tn --from list.toml --arch sm_80 --out model.cutepack").code == 0
    assert [entry.name for entry in read_pack("model.cutepack").entries] == ["sm80_hgemm_tn", "of the list"]


def test_a_kernel_that_is_named_twice_is_packed_once(cli: Cli) -> None:
    twice = cli("pack sm80_hgemm_tn sm80_hgemm_tn --arch sm_80,a100 --out model.cutepack")
    assert twice.out.startswith("1 kernel: "), twice.err
    assert len(read_pack("model.cutepack").entries) == 1


def test_what_fails_is_said_and_leaves_no_pack_but_loses_nothing(cli: Cli) -> None:
    sentence = f"pack sm80_hgemm_tn {NOT_FOR_SM_80} --arch sm_80 --out model.cutepack"
    failed = cli(sentence)
    assert failed.code == 2
    why, verdict = failed.err.splitlines()[-2:]  # behind what a busy machine sees of progress
    assert why.startswith(f"cutegen: error: {NOT_FOR_SM_80} for sm_80: ")
    assert verdict.endswith(
        "1 kernel of 2 failed; model.cutepack was not written, and the others are in the cache; --partial packs them"
    )
    assert not Path("model.cutepack").exists()
    partial = cli(f"{sentence} --partial --json")
    assert partial.code == 2
    assert [each["hit"] for each in partial.json["kernels"]] == [True]
    assert [each["name"] for each in partial.json["failures"]] == [NOT_FOR_SM_80]
    assert [entry.name for entry in read_pack("model.cutepack").entries] == ["sm80_hgemm_tn"]


@pytest.mark.parametrize(
    ("sentence", "said"),
    [
        ("pack sm80_hgemm_tn", "found no --out"),
        ("pack sm80_hgemm_tn --out model.zip", "expected a name that ends with .cutepack"),
        ("pack --out model.cutepack", "found neither SPEC nor --from"),
        ("pack --problem 1,2,3 --from list.toml --out model.cutepack", "--problem: found without a SPEC"),
        ("pack sm80_hgemm_tn --list x.cutepack", "specs: found together with --list, which builds nothing"),
        ("pack sm80_hgemm_tn --arch sm_80,, --out model.cutepack", "--arch: found 'sm_80,,'"),
        ("pack sm80_hgemm_tn --batch 3 --out model.cutepack", "--batch: found 3 without --problem"),
        ("pack sm80_hgemm_tn --out no/model.cutepack --arch sm_80", "expected an existing folder"),
        ("pack --from no.toml --out model.cutepack", "--from: found no file no.toml; expected a list of kernels"),
        ("build --from no.toml", "--from: found no file no.toml; expected a list of kernels"),
        ("build", "found neither SPEC nor --from"),
        ("build sm80_hgemm_tn sm80_bf16_nn --arch x", "unknown target 'x'"),
    ],
)
def test_what_cannot_be_is_refused(sentence: str, said: str, cli: Cli) -> None:
    refused = cli(sentence)
    assert (refused.code, refused.out) == (2, "")
    assert said in refused.error


@pytest.fixture
def nothing_is_built(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever would be compiled is a defect, whose exit code is 70."""
    monkeypatch.setattr("cutegen.cli.many.build_all", None)
    monkeypatch.setattr("cutegen.cli.build.build_artifact", None)


@pytest.mark.usefixtures("nothing_is_built")
@pytest.mark.parametrize("name", ["my\xa0kernel", "two\nlines", "\x1b[31mred", os.fsdecode(b"\xff")])
def test_a_name_that_no_reader_of_packs_takes_is_refused_before_anything_is_built(name: str, cli: Cli) -> None:
    Path(f"{name}.toml").write_bytes(spec_path("sm80_hgemm_tn").read_bytes())
    Path("list.toml").write_text(f'[[kernel]]\nspec = "sm80_hgemm_tn"\nname = {json.dumps(name)}')
    refused = cli("pack", f"{name}.toml", "--arch", "sm_80", "--out", "model.cutepack")
    assert (refused.code, refused.out) == (2, "")
    assert refused.error.startswith(f"pack: found a kernel called {name!r}; expected a line of printable text; rename")
    if name.isascii():
        listed = cli("pack --from list.toml --arch sm_80 --out model.cutepack")
        assert (listed.code, listed.out) == (2, "")
        assert "kernel[0].name: found" in listed.error
    assert not Path("model.cutepack").exists()


@pytest.mark.usefixtures("nothing_is_built")
def test_two_kernels_called_alike_are_refused_before_anything_is_built(cli: Cli) -> None:
    spec = spec_path("sm80_hgemm_tn").read_text()
    for folder, stages in (("d1", 3), ("d2", 2)):
        Path(folder).mkdir()
        Path(folder, "k.toml").write_text(spec.replace("stages = 3", f"stages = {stages}"))
    packed = cli("pack d1/k.toml d2/k.toml --arch sm_80,sm_90 --out model.cutepack")
    assert (packed.code, packed.out) == (2, "")
    assert packed.error.startswith("pack: found two kernels called k for sm_80; expected one; rename one spec's file")
    built = cli("build d1/k.toml d2/k.toml --arch sm_80,sm_90 --out built")
    assert (built.code, built.out) == (2, "")
    assert built.error.startswith("built: found two kernels whose folder is k-sm_80; expected one; rename one spec's")
    assert not Path("model.cutepack").exists()
    assert not Path("built").exists()


def test_what_is_no_pack_is_a_wrong_request_and_a_damaged_pack_is_not(cli: Cli) -> None:
    Path("foreign.cutepack").write_text("[[kernel]]")
    Path("empty.cutepack").touch()
    Path("folder.cutepack").mkdir()
    Path("cut.cutepack").write_bytes(MAGIC)
    for name, said in (
        ("nothing", "--list: found no file nothing.cutepack; expected a FILE.cutepack"),
        ("folder", "--list: found no file folder.cutepack; expected a FILE.cutepack"),
        ("foreign", "--list: found foreign.cutepack, which is not a pack; expected a FILE.cutepack made by"),
        ("empty", "--list: found empty.cutepack, which is not a pack"),
    ):
        refused = cli(f"pack --list {name}.cutepack")
        assert (refused.code, refused.out) == (2, "")
        assert refused.error.startswith(said)
    damaged = cli("pack --list cut.cutepack")
    assert damaged.code == 3
    assert "expected a header" in damaged.error


@pytest.mark.slow
def test_many_are_built_into_folders_that_open(cli: Cli, kernels: Cache) -> None:
    built = cli("build sm80_hgemm_tn sm80_bf16_nn --arch sm_80 --problem 256,256,128 --out artifacts")
    assert built.code == 0, built.err
    names = ["sm80_bf16_nn-sm_80-256x256x128", "sm80_hgemm_tn-sm_80-256x256x128"]
    assert sorted(path.name for path in Path("artifacts").iterdir()) == names
    for name in names:
        artifact = open_artifact(Path("artifacts", name))
        assert kernels.holds(artifact.key)
        assert '"m": 256' in artifact.plan_json
    again = cli("build sm80_hgemm_tn sm80_bf16_nn --arch sm_80 --problem 256,256,128 --out artifacts --json").json
    assert [each["hit"] for each in again["kernels"]] == [True, True]


def test_a_folder_of_somebody_elses_is_not_replaced(cli: Cli) -> None:
    Path("artifacts/sm80_hgemm_tn-sm_80").mkdir(parents=True)
    Path("artifacts/sm80_hgemm_tn-sm_80/thesis.txt").write_text("years")
    refused = cli("build sm80_hgemm_tn --arch sm_80 --out artifacts")
    assert refused.code == 3
    assert "not an artifact" in refused.error
    assert Path("artifacts/sm80_hgemm_tn-sm_80/thesis.txt").read_text() == "years"


def test_a_file_of_somebody_elses_in_an_artifact_is_not_lost(cli: Cli) -> None:
    folder = Path("artifacts/sm80_hgemm_tn-sm_80")
    assert cli("build sm80_hgemm_tn --arch sm_80 --out artifacts").code == 0
    (folder / "kernel.ptx").unlink()
    assert cli("build sm80_hgemm_tn --arch sm_80 --out artifacts").code == 0  # a damaged one is replaced
    (folder / "thesis.txt").write_text("years")
    refused = cli("build sm80_hgemm_tn --arch sm_80 --out artifacts")
    assert refused.code == 3
    assert "sm80_hgemm_tn-sm_80 cannot be written: it holds 'thesis.txt', which would be lost" in refused.error
    assert (folder / "thesis.txt").read_text() == "years"


def test_one_kernel_is_answered_as_ever(cli: Cli) -> None:
    table = cli("build sm80_hgemm_tn --arch sm_80 --json").json
    assert "instructions" in table
    assert cli("build sm80_hgemm_tn --arch sm_80 --out answer.txt").out == ""
    assert Path("answer.txt").read_text().startswith("sm80_hgemm_tn for sm_80: hit")


@pytest.mark.slow
def test_processes_serve_as_threads_do(kernels: Cache) -> None:
    wanted = combinations(["sm80_hgemm_tn", NOT_FOR_SM_80, "sm80_bf16_nn"], archs=["sm_80"])
    told: list[tuple[int, int]] = []
    with ProcessPoolExecutor(1, get_context("spawn")) as processes:
        outcomes = build_all(wanted, kernels, executor=processes, tell=lambda *done: told.append(done))
    assert [each.failure is None for each in outcomes] == [True, False, True]
    assert told == [(1, 3), (2, 3), (3, 3)]
    threads = build_all(wanted, kernels, jobs=1)
    assert [each.failure for each in outcomes] == [each.failure for each in threads]
    assert [each.artifact and each.artifact.cubin for each in outcomes] == [
        each.artifact and each.artifact.cubin for each in threads
    ]
