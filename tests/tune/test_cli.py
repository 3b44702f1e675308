"""`cutegen tune` without a GPU: its refusals, the whole path with a stand-in timer, and what becomes of records."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest

from cutegen.cli.main import main
from cutegen.contract.problem import Groups, ProblemShape
from cutegen.dispatch.model import spec_of
from cutegen.dispatch.request import Matrix, Request
from cutegen.hardware import TARGETS
from cutegen.support.toml_text import toml_value
from cutegen.tune.measuring import end_children
from cutegen.tuned import store
from cutegen.tuned.answer import record_for
from tests.house.documents import ROOT
from tests.tuned.made import measured, open_spec, with_winner

SPEC = """
[problem]
a = { dtype = "f16", major = "k" }
b = { dtype = "f16", major = "k" }
c = { dtype = "f16", major = "n" }
"""
PAGE = (ROOT / "docs" / "json.md").read_text()


@pytest.fixture(autouse=True)
def _folders(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CUTEGEN_TUNED_DIR", str(tmp_path / "tuned"))
    monkeypatch.setenv("COLUMNS", "200")
    monkeypatch.chdir(tmp_path)
    (tmp_path / "open.toml").write_text(SPEC)


@pytest.fixture(scope="module")
def records() -> Any:
    """Two, of one bucket and of another, none of them kept yet."""
    yield with_winner(measured(open_spec()), 2), with_winner(measured(open_spec("other"), seed=1), 0)
    end_children()


def run(capsys: pytest.CaptureFixture[str], *words: str, code: int = 0) -> tuple[str, str]:
    assert main(["tune", *words]) == code, capsys.readouterr().err
    captured = capsys.readouterr()
    return captured.out, captured.err


def table(capsys: pytest.CaptureFixture[str], row: str, *words: str) -> dict[str, Any]:
    """The JSON that a command prints, whose keys are those of a row of the page."""
    (keys,) = re.findall(rf"^\| `cutegen tune {row}` \| (.*) \|$", PAGE, re.MULTILINE)
    found: dict[str, Any] = json.loads(run(capsys, *words, "--json")[0])
    assert list(found) == re.findall(r"`(\w+)`", keys)
    return found


@pytest.mark.parametrize(
    ("words", "code", "message"),
    [
        (["open.toml"], 2, "found no problem; expected one or more of --problem M,N,K, --suite NAME, --problems FILE"),
        (["open.toml", "--problems", "none.txt"], 2, "none.txt cannot be read"),
        (["open.toml", "--problems", "empty.txt"], 2, "empty.txt: found no problem; expected lines such as"),
        (["open.toml", "--problems", "wrong.txt"], 2, "wrong.txt:2: found '4,x,4'; expected M,N,K or M,N,K,BATCH"),
        (["open.toml", "--problems", "digits.txt"], 2, "digits.txt:1: found '64,64,64,1_0'; expected M,N,K or"),
        (["open.toml", "--problems", "zero.txt"], 2, "zero.txt:1: found '64,64,64,0'; expected M,N,K or M,N,K,BATCH"),
        (["open.toml", "--problems", "large.txt"], 2, "large.txt:1: problem: found M, N, K = (99999999999, 1, 1)"),
        (["open.toml", "--problems", "long.txt"], 2, "long.txt: found more than 1,048,576 bytes; expected a shorter"),
        (
            ["open.toml", "--problem", "64,64,64", "--seed", f"{2**63}"],
            2,
            f"{2**63} is not in the range 0<=x<={2**63 - 1}",
        ),
        (["open.toml", "--problem", "64,64,64", "--by", "luck"], 2, "--by: found 'luck'; expected graph or launch"),
        (["open.toml", "--suite", "bunk"], 2, "bunk"),
        (["show", "nobody"], 2, "expected one; `cutegen tune SPEC --problem M,N,K` makes the first"),
        (["forget"], 2, "expected names in `cutegen tune list`, --damaged or --all"),
        (["export", "away"], 2, "export: found no record"),
        (["import", "open.toml"], 3, "found no table tuned.asked"),
        (["ldmatrix_probe", "--problem", "64,64,64", "--stand-in", "0"], 2, "a GEMM, which can be measured"),
    ],
)
def test_what_cannot_be_is_said_in_a_line(
    words: list[str], code: int, message: str, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    (tmp_path / "empty.txt").write_text("# nothing\n\n")
    (tmp_path / "digits.txt").write_text("64,64,64,1_0")
    (tmp_path / "zero.txt").write_text("64,64,64,0")
    (tmp_path / "large.txt").write_text("99999999999,1,1")
    (tmp_path / "long.txt").write_text("64,64,64\n" * (1 << 17))
    (tmp_path / "wrong.txt").write_text("\ufeff64,64,64,3 # after a byte order mark\n4,x,4\n")
    _, errors = run(capsys, *words, code=code)
    assert message in errors
    assert errors.count("\n") == 1


def test_without_a_gpu_that_is_what_it_says(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    from cutegen.bench import benchmark

    monkeypatch.setattr(benchmark, "present_target", lambda: None)
    _, errors = run(capsys, "open.toml", "--problem", "64,64,64", code=3)
    assert "no supported GPU found" in errors
    assert errors.count("\n") == 1


@pytest.mark.dsl
def test_the_whole_path_with_a_stand_in_timer(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    words = ["open.toml", "--problem", "64,64,128", "--most", "2", "--stand-in", "0", "--arch", "sm_80", "--jobs", "2"]
    found = table(capsys, "SPEC", *words)
    (result,) = found["results"]
    assert (result["winner"], result["favorite"]) != (None, None)
    assert {one["status"] for one in result["candidates"]} == {"ok"}
    (path,) = (tmp_path / "tuned").glob("*.toml")
    assert path.name == result["file"]
    assert not list((tmp_path / "tuned" / "unfinished").glob("[!f.]*"))


REQUEST = Request(
    a=Matrix("f16", "k", 16),
    b=Matrix("f16", "k", 16),
    c=Matrix("f16", "n", 16),
    ops=("bias_n", "relu"),
    bias="f16",
    problem=ProblemShape(64, 64, 128),
    target="sm_80",
)


GROUPED = replace(REQUEST, groups=Groups("m"), problem=ProblemShape(64, 64, 128, 1, 4))


def write_grouped(path: Path) -> None:
    """One call of four groups."""
    path.write_text(f"[[kernel]]\nrequest = {toml_value(GROUPED.as_json())}\n")


def write_list(path: Path) -> None:
    """Two kernels as a program records them, one of them on two targets, with their calls."""
    rows = [
        (REQUEST, [[60, 64, 128, 1, 5], [64, 64, 128, 1, 2]]),
        (replace(REQUEST, target="sm_90"), [[60, 64, 128, 1, 3]]),
    ]
    rows.append((replace(REQUEST, problem=ProblemShape(128, 64, 128), ops=("bias_n",)), [[128, 64, 128, 1, 40]]))
    row = "[[kernel]]\nrequest = {}\ncalls = {}\n"
    path.write_text("".join(row.format(toml_value(request.as_json()), calls) for request, calls in rows))


@pytest.mark.dsl
def test_the_calls_of_a_list_are_tuned_once_each_and_weighted(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    write_list(tmp_path / "calls.toml")
    words = ["--from", "calls.toml", "--most", "2", "--stand-in", "0", "--arch", "sm_80", "--jobs", "2"]
    found = table(capsys, "--from LIST.toml", *words)
    problems = [(each["problem"]["m"], each["name"]) for each in found["results"]]
    assert problems == [(128, "matmul_f16_tn_bias_n"), (60, "matmul_f16_tn_bias_n_relu")]  # the most work first
    for row, regime in zip(found["calls"], ("graph", "launch"), strict=True):
        us = {
            each["name"]: {one["name"]: one[regime]["median_us"] for one in each["candidates"]}
            for each in found["results"]
        }
        model, tuned = (
            sum(count * us[each["name"]][each[which]] for each, count in zip(found["results"], (40, 10), strict=True))
            for which in ("favorite", "winner")
        )
        assert row == {
            "regime": regime,
            "calls": 50,
            "model_us": pytest.approx(model),
            "tuned_us": pytest.approx(tuned),
            "gain": pytest.approx(model / tuned),
        }
    said, _ = run(capsys, *words)
    assert "  50 calls, one launch, L2 cache cold and clean: " in said
    record = record_for(spec_of(REQUEST), TARGETS["sm_80"], REQUEST.problem, "stand-in")
    assert record is not None  # what serves the calls of the row looks for it by its own problem
    assert record.evidence.problem == ProblemShape(60, 64, 128)


def test_groups_of_a_list_are_not_tuned(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    write_grouped(tmp_path / "calls.toml")
    errors = run(capsys, "--from", "calls.toml", code=2)[1]
    assert "1 call of groups not tuned: a list does not have the sizes of groups" in errors
    assert "found no call to tune; expected one without groups, or --sizes NAME" in errors
    listed = run(capsys, "--from", "calls.toml", "--sizes", "3,61", code=2)[1]
    assert "--sizes: found 3,61 together with --from; expected one of uniform, spread" in listed


@pytest.mark.dsl
@pytest.mark.slow
def test_groups_of_a_list_are_tuned_for_a_distribution(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    write_grouped(tmp_path / "calls.toml")
    words = ["--most", "1", "--stand-in", "0", "--arch", "sm_80", "--jobs", "2"]
    (result,) = table(capsys, "--from LIST.toml", "--from", "calls.toml", "--sizes", "zipf", *words)["results"]
    assert (result["sizes"], result["problem"]["groups"]) == ("zipf", 4)
    record = record_for(spec_of(GROUPED), TARGETS["sm_80"], GROUPED.problem, "stand-in")
    assert record is not None
    assert record.evidence.sizes == "zipf"
    shown = run(capsys, "list")[0]
    assert "64x64x128 in 4 groups (zipf)" in shown
    by_name = ["sm80_bf16_grouped", "--problem", "64,64,128", "--sizes", "3,0,61", *words]
    (listed,) = table(capsys, "SPEC", *by_name)["results"]
    assert (listed["sizes"], listed["problem"]["groups"]) == ("3,0,61", 3)


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ("sm80_bf16_grouped --problem 64,64,64", "found a kernel of groups without --groups; expected packed groups"),
        ("sm80_bf16_grouped --problem 64,64,64 --sizes 3,4", "--sizes: found 7 along M; expected 64, all of"),
        ("open.toml --problem 64,64,64 --groups 4", "--groups, --sizes: found with a spec without groups"),
        ("padded.toml --problem 64,64,64 --groups 4", "found padded groups of m; expected packed groups"),
    ],
)
def test_groups_that_cannot_be_measured_are_refused(
    words: str, message: str, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    (tmp_path / "padded.toml").write_text(f'{SPEC}groups = {{ of = "m", layout = "padded" }}\n')
    assert message in run(capsys, *words.split(), "--stand-in", "0", code=2)[1]


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ("open.toml --from calls.toml", "SPEC: found open.toml together with --from"),
        ("--from calls.toml --suite llm", "--suite: found together with --from"),
        ("--from none.toml", "--from: found no file none.toml"),
        ("--problem 64,64,64", "tune: found neither SPEC nor --from LIST.toml"),
    ],
)
def test_a_list_has_its_own_specs_and_problems(
    words: str, said: str, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    write_list(tmp_path / "calls.toml")
    assert said in run(capsys, *words.split(), code=2)[1]


def test_records_are_listed_shown_exported_forgotten_and_imported(
    records: Any, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    paths = [store.keep(each) for each in records]
    broken = "gpu-64x64x64-0123456789abcdef-64x64x64.toml"
    (tmp_path / "tuned" / broken).write_text("schema = 3")
    listed = table(capsys, "list", "list")
    assert {row["file"] for row in listed["records"]} == {path.name for path in set(paths)}
    assert [row["file"] for row in listed["damaged"]] == [broken]
    assert "damaged:" in run(capsys, "list")[0]
    shown = table(capsys, "show RECORD", "show", str(paths[0]))
    assert shown["winner"] == records[1].evidence.winner  # the second was kept in the place of the first
    assert records[1].evidence.winner in run(capsys, "show", "nvidia")[0]
    assert table(capsys, "export FOLDER", "export", "away")["files"] == [paths[0].name]
    assert table(capsys, "forget RECORD", "forget", "--all")["files"] == [broken, paths[0].name]
    assert "has no record" in run(capsys, "list")[0]
    assert table(capsys, "import FILE", "import", "away")["files"] == [paths[0].name]
    assert store.load(paths[0]) == records[1]


def test_nothing_but_records_is_forgotten(records: Any, capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    kept = store.keep(records[0])
    mine = kept.with_name("mine.toml")
    mine.write_text(SPEC)
    for words in (["open.toml"], [str(mine)], [kept.name, "open.toml"]):
        assert "expected a name in `cutegen tune list`" in run(capsys, "forget", *words, code=2)[1]
    assert kept.exists()
    run(capsys, "forget", "--damaged")
    assert kept.exists()
    run(capsys, "forget", "--all")
    assert not kept.exists()
    assert (tmp_path / "open.toml").read_text() == mine.read_text() == SPEC


def test_a_link_is_what_is_forgotten_where_it_is(
    records: Any, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    kept = store.keep(records[0])
    outside, target = tmp_path / "link.toml", tmp_path / "aside.toml"
    outside.symlink_to(kept)
    assert "expected a name in `cutegen tune list`" in run(capsys, "forget", "link.toml", code=2)[1]
    assert outside.is_symlink()
    kept.rename(target)
    kept.symlink_to(target)
    assert run(capsys, "forget", kept.name, str(kept))[0].splitlines() == ["1 forgotten", f"  {kept.name}"]
    assert (kept.is_symlink(), target.exists()) == (False, True)


def test_only_records_are_exported(records: Any, capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    kept = store.keep(records[0])
    assert "open.toml: found no table tuned.asked" in run(capsys, "export", "away", kept.name, "open.toml", code=3)[1]
    assert not (tmp_path / "away").exists()


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ("--format svg --json", "--json: found together with a picture in svg; expected only one of them"),
        ("--out a.svg --json", "--json: found together with a picture in svg; expected only one of them"),
        ("--format svg --out a.json", "--format: found svg together with --out a.json; expected text"),
        ("--format text --out a.svg", "--format: found text together with --out a.svg; expected svg"),
        ("--format svg --out a.zzz", "which ends with .zzz; expected .txt or .json or .svg"),
        ("--out a.png", "which ends with .png; expected .txt or .json or .svg"),
        ("--format gif", "--format: found 'gif'; expected text or svg"),
    ],
)
def test_one_form_is_asked_for(
    words: str, message: str, records: Any, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    kept = store.keep(records[0])
    said, errors = run(capsys, "show", kept.name, *words.split(), code=2)
    assert (said, errors.count("\n")) == ("", 1)
    assert message in errors
    assert not list(tmp_path.glob("a.*"))


def test_the_picture_has_a_mark_for_each_timed_candidate(
    records: Any, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    path = store.keep(records[0])
    run(capsys, "show", path.name, "--out", "plot.svg")
    picture = ElementTree.fromstring((tmp_path / "plot.svg").read_text())
    named = [each.text or "" for each in picture.iter("{http://www.w3.org/2000/svg}title")]
    found = records[0].evidence
    assert sorted(name.partition(":")[0] for name in named) == sorted(one.name for one in found.candidates)
    (winners,) = [name for name in named if name.startswith(f"{found.winner}:")]
    assert f"{found.times(found.winner).median_us:.4g} us measured" in winners
