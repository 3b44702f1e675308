"""CUTEGEN_RECORD: what a program asks for becomes a list that is packed from."""

from __future__ import annotations

import json
import logging
import re
import subprocess
import sys
import tomllib
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import pytest

import cutegen
from cutegen import api
from cutegen.build import Cache
from cutegen.build import record as recorder
from cutegen.build.pack_file import check_identities
from cutegen.build.record import record
from cutegen.contract import ProblemShape
from cutegen.dispatch.pack import load_pack
from cutegen.dispatch.providers import providers
from cutegen.errors import RequestError
from cutegen.hardware import target
from cutegen.pack.kernel_list import read_calls, read_list
from tests.pack.test_pack import REQUEST


@pytest.fixture
def path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("CUTEGEN_RECORD", str(tmp_path / "shapes.toml"))
    monkeypatch.setattr(recorder, "_done", set())
    monkeypatch.setattr(recorder, "_counts", {})
    monkeypatch.setattr(recorder, "COUNTED_EVERY_S", 1e9)  # on a busy machine, tests take long
    return tmp_path / "shapes.toml"


def rows(path: Path) -> list[dict[str, object]]:
    return tomllib.loads(path.read_text())["kernel"]


@pytest.mark.dsl
def test_what_is_compiled_is_recorded_once_and_read_back(path: Path, kernels: Cache) -> None:
    spec = cutegen.load_spec("sm80_hgemm_tn")
    mine = replace(spec, name="mine", tile=replace(spec.tile, stages=2))
    for _ in range(2):
        cutegen.compile(spec, "sm_80", problem=(256, 256, 128), cache=kernels)
        cutegen.compile("sm80_hgemm_tn", "sm_80", cache=kernels)
    assert [str(each) for each in read_list(path)] == [
        "sm80_hgemm_tn for sm_80, 256x256x128",
        "sm80_hgemm_tn for sm_80",
    ]
    api._record(mine, target("sm_80"), None)
    last = read_list(path)[-1]
    assert (last.spec, last.target, last.problem) == (mine, "sm_80", None)
    assert re.fullmatch("mine-[0-9a-f]{8}", last.name)


def test_what_a_program_calls_alike_can_be_packed(path: Path) -> None:
    spec = cutegen.load_spec("sm80_hgemm_tn")
    edited = replace(spec, tile=replace(spec.tile, cta=(64, 64, 32)))
    for name in ("", "k", "sm80_hgemm_tn", "my\xa0k\udcff"):
        for each in (spec, edited, replace(edited, description="as before")):
            api._record(replace(each, name=name), target("sm_80"), None)
    found = read_list(path)
    check_identities(each.identity for each in found)
    assert len(found) == 8  # what is described otherwise is the same kernel
    assert [each.spec for each in found] == [spec, edited] * 4
    names = [each.name for each in found]
    assert names[4] == "sm80_hgemm_tn"  # which ships
    endings = {name.rpartition("-")[2] for name in names if name != "sm80_hgemm_tn"}
    assert len(endings) == 2
    stems = [name.rpartition("-")[0] or name for name in names]
    assert stems == [stem for stem in ("kernel", "k", "sm80_hgemm_tn", "my_k_") for _ in range(2)]


@pytest.mark.dsl
def test_what_calls_ask_for_is_recorded(path: Path, pack_path: Path) -> None:
    with load_pack(pack_path):
        providers.kernel_for(REQUEST)
        providers.kernel_for(replace(REQUEST, problem=ProblemShape(64, 64, 64)))
        providers.kernel_for(REQUEST)
    found = read_list(path)
    assert [(each.problem, each.target) for each in found] == [
        (ProblemShape(512, 512, 512), "sm_80"),
        (ProblemShape(64, 64, 64), "sm_80"),
    ]
    assert found[0].spec.problem.a.dtype == "f16"
    assert found[0].name.startswith("matmul_f16_tn-")


def test_nothing_is_written_unless_it_is_asked_for(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("CUTEGEN_RECORD", raising=False)
    monkeypatch.chdir(tmp_path)
    record({"spec": "x"})
    assert list(tmp_path.iterdir()) == []


def test_what_people_wrote_into_the_list_stays(path: Path) -> None:
    path.write_text("# mine\n[[kernel]]\nspec = 'a'")  # without a line's end
    record({"spec": "b"})
    record({"spec": "b c"})
    assert path.read_text().startswith("# mine\n[[kernel]]\nspec = 'a'\n")
    assert [row["spec"] for row in rows(path)] == ["a", "b", "b c"]


def test_threads_and_processes_lose_nothing_of_each_other(path: Path) -> None:
    write = (
        "import sys; from cutegen.build.record import record\n"
        "for i in range(12): record({'spec': sys.argv[1] * (i % 4 + 1)})"
    )
    started = [subprocess.Popen([sys.executable, "-c", write, letter]) for letter in "ab"]
    with ThreadPoolExecutor(4) as threads:
        list(threads.map(lambda i: record({"spec": "c" * (i % 5 + 1)}), range(40)))
    assert [each.wait() for each in started] == [0, 0]
    expected = {letter * n for letter in "ab" for n in range(1, 5)} | {"c" * n for n in range(1, 6)}
    assert sorted(str(row["spec"]) for row in rows(path)) == sorted(expected)
    assert [each.name for each in path.parent.iterdir() if each.name.endswith(".toml")] == ["shapes.toml"]


def test_a_list_does_not_grow_without_end(
    path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(recorder, "MAX_KERNELS", 3)
    with caplog.at_level(logging.WARNING, "cutegen.build"):
        for each in "abcd":
            record({"spec": each})
    assert [row["spec"] for row in rows(path)] == ["a", "b", "c"]
    (said,) = caplog.messages
    assert "has 3 kernels, the maximum" in said


FOREIGN = (
    'family = "sm80"\nproblem.a = { dtype = "f16", major = "k" }\n',
    "[[kernel]]\nspec = 'a'\n[tool]\nx = 1\n",
    "[kernel]\nspec = 'a'\n",
    "kernel = [{ spec = 'a' }]\n",
    '[[kernel]]\nspec = """a\n',
    "# notes\n",
    "import cutegen\n",
    pytest.param("x = " + "[" * 5000, id="nested without end"),
)


@pytest.mark.parametrize("text", FOREIGN)
def test_a_file_of_another_kind_stays_as_it_is_and_costs_a_warning(
    text: str, path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    path.write_text(text)
    for _ in range(3):
        record({"spec": "a b"})
    assert path.read_text() == text
    (said,) = caplog.messages
    assert said == (f"CUTEGEN_RECORD: a kernel was not recorded: {path}: found no list of kernels; name another file")


@pytest.mark.parametrize("text", ["", " \n", "\ufeff[[kernel]]\nspec = 'a'\n", "[[kernel]]\r\nspec = 'a'\r\n"])
def test_a_list_or_an_empty_file_is_added_to(text: str, path: Path) -> None:
    path.write_bytes(text.encode())
    record({"spec": "b"})
    record({"spec": "c"})
    listed = tomllib.loads(path.read_bytes().decode("utf-8-sig"))["kernel"]
    assert [row["spec"] for row in listed] == ["a"] * bool(text.strip()) + ["b", "c"]


@pytest.mark.parametrize("there", ["folder", "file for a folder", "not UTF-8", "no name"])
def test_a_list_that_cannot_be_written_costs_a_warning_and_no_call(
    there: str, path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    if there == "folder":
        path.mkdir()
    elif there == "file for a folder":
        path.touch()
        monkeypatch.setenv("CUTEGEN_RECORD", str(path / "shapes.toml"))
    elif there == "no name":
        monkeypatch.setenv("CUTEGEN_RECORD", "/")
    else:
        path.write_bytes(b"\xff")
    for _ in range(3):
        record({"spec": "a"})
    (said,) = caplog.messages
    assert said.startswith("CUTEGEN_RECORD: a kernel was not recorded: ")


def test_calls_are_counted_by_extents_across_processes(path: Path) -> None:
    row = {"request": REQUEST.as_json()}
    record(row)
    record({"request": replace(REQUEST, problem=ProblemShape(64, 64, 64)).as_json()})
    for _ in range(3):
        recorder.count(row, (500, 512, 512, 1))
    recorder.count(row, (512, 512, 512, 1), 2)
    assert "calls" not in path.read_text()  # not yet
    recorder.write_counts()
    script = (
        "import json, sys; from cutegen.build.record import count, record\n"
        "row = json.loads(sys.argv[1]); record(row); count(row, (500, 512, 512, 1), 10)"
    )
    subprocess.run([sys.executable, "-c", script, json.dumps(row)], check=True)  # its end writes them
    first, second = rows(path)
    assert first["calls"] == [[500, 512, 512, 1, 13], [512, 512, 512, 1, 2]]
    assert "calls" not in second
    record(row)
    assert len(rows(path)) == 2
    assert [(str(each.problem), each.times) for each in read_calls(path)] == [
        ("500x512x512", 13),
        ("512x512x512", 2),
        ("64x64x64", 1),
    ]
    assert [each.problem for each in read_list(path)] == [ProblemShape(512, 512, 512), ProblemShape(64, 64, 64)]


def test_counts_of_a_request_that_was_served_before_have_a_row(path: Path) -> None:
    recorder.count({"request": REQUEST.as_json()}, (8, 8, 8, 1))
    recorder.write_counts()
    assert [row["calls"] for row in rows(path)] == [[[8, 8, 8, 1, 1]]]


def test_extents_without_end_are_counted_up_to_a_limit(
    path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(recorder, "MOST_EXTENTS", 2)
    monkeypatch.setattr(recorder, "COUNTED_EVERY_S", 0.0)  # each call writes
    for m in (1, 2, 2, 3):
        recorder.count({"request": REQUEST.as_json()}, (m, 8, 8, 1))
    assert [row["calls"] for row in rows(path)] == [[[2, 8, 8, 1, 2], [1, 8, 8, 1, 1]]]
    assert "calls with more than 2 different extents: others are not counted" in caplog.text


@pytest.mark.parametrize(
    ("calls", "said"),
    [
        ("12", r"kernel\[0\]\.calls: found 12; expected lists of M, N, K, batch and a count, each 1 or more"),
        ("[[1, 2, 3, 4]]", r"kernel\[0\]\.calls\[0\]: found \[1, 2, 3, 4\]; expected lists of M, N, K, batch"),
        ("[[1, 2, 3, 4, 0]]", r"calls\[0\]: found \[1, 2, 3, 4, 0\]; expected lists of M, N, K, batch"),
        ("[[1, 2, 3, 4, 'x']]", r"calls\[0\]: found .*; expected lists of M, N, K, batch"),
        (f"[[{2**40}, 2, 3, 4, 1]]", r"calls\[0\]: found problem: found M, N, K = .*; expected extents of a problem"),
    ],
)
def test_counts_that_are_none_are_named(calls: str, said: str, path: Path) -> None:
    record({"request": REQUEST.as_json()})
    path.write_text(path.read_text() + f"calls = {calls}\n")
    with pytest.raises(RequestError, match=said):
        read_calls(path)


@pytest.mark.parametrize(
    ("row", "said"),
    [
        ("spec = 'sm80_hgemm_tn'", r"kernel\[0\]\.problems: found none; expected .* the problems to measure"),
        (
            "spec = 'sm80_hgemm_tn'\ncalls = []",
            r"kernel\[0\]\.calls: found a key together with spec; expected problems",
        ),
    ],
)
def test_a_row_without_a_problem_has_no_calls_to_measure(row: str, said: str, path: Path) -> None:
    path.write_text(f"[[kernel]]\n{row}\n")
    with pytest.raises(RequestError, match=said):
        read_calls(path)


def test_a_recorded_program_makes_every_call_the_slow_way_and_counts_it(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    torch = pytest.importorskip("torch")
    from cutegen.dispatch import prepared_call
    from cutegen.torch_ops import call_cache, eager

    made: list[str] = []

    class Prepared:
        check_addresses = staticmethod(lambda pointers: None)
        placed = ()
        launch = staticmethod(lambda *_: made.append("launched"))

    def kernel_for(request: object, *, compiling: bool = True) -> object:
        contract = SimpleNamespace(passed=[SimpleNamespace(name=name) for name in ("a", "b", "c")])
        kernel = SimpleNamespace(contract=contract, prepare=lambda *forms, clears: Prepared())
        return SimpleNamespace(kernel=kernel)

    monkeypatch.setattr(prepared_call.providers, "kernel_for", kernel_for)
    monkeypatch.setattr(eager, "guard_cpu_time", lambda resolved: None)
    with cutegen.matmul_settings(cpu_tensors="executor"):
        call_cache.table.renew()
        for m in (3, 5, 5):
            cutegen.matmul(torch.ones(m, 8, dtype=torch.half), torch.ones(8, 8, dtype=torch.half))
    recorder.write_counts()
    assert made == ["launched"] * 3
    assert {tuple(each) for row in rows(path) for each in row["calls"]} == {(5, 8, 8, 1, 2), (3, 8, 8, 1, 1)}


def test_calls_that_torch_computes_are_warned_of_once(path: Path, caplog: pytest.LogCaptureFixture) -> None:
    torch = pytest.importorskip("torch")
    recorder._said = False
    for _ in range(2):
        cutegen.matmul(torch.ones(2, 3), torch.ones(3, 2))
    (said,) = caplog.messages
    assert said.startswith("CUTEGEN_RECORD: torch computes the calls in host memory, which are not recorded")
    assert not path.exists()
