"""A pack is read back as it was written, or refused whole: damaged, foreign, forged."""

from __future__ import annotations

import hashlib
import io
import json
import os
import random
import re
import struct
import subprocess
import sys
import zipfile
from collections.abc import Callable
from dataclasses import fields, replace
from pathlib import Path
from typing import Any

import pytest

from cutegen.build import Cache, pack_file
from cutegen.build.artifact import CUBIN, FILES, PTX
from cutegen.build.pack_file import (
    ALIGN_BYTES,
    MAGIC,
    PACK_VERSION,
    PackEntry,
    PackIndex,
    PackMember,
    read_pack,
    write_pack,
)
from cutegen.contract import ProblemShape
from cutegen.contract.launch import (
    BESIDE_RESULT,
    KINDS,
    OPERANDS,
    RESULT,
    SCALARS,
    LaunchContract,
    SplitContract,
    TensorContract,
)
from cutegen.contract.tensor_map import TensorMapContract
from cutegen.errors import ArtifactError, OutsideError, RequestError
from cutegen.pack.building import build_all, copy_artifacts, make_pack
from tests.house.documents import ROOT
from tests.pack.conftest import SMALL, packed_kernels

pytestmark = pytest.mark.dsl

HEADER_BYTES = 64
Index = dict[str, Any]


def taken_apart(data: bytes) -> tuple[Index, bytes]:
    """The index and the members, by the page that describes the format and not by cutegen's reader."""
    magic, version, zero, index_bytes, file_bytes = struct.unpack_from("<8sIIQQ", data)
    assert (magic, version, zero, file_bytes) == (b"CUTEPACK", 1, 0, len(data))
    index = data[HEADER_BYTES : HEADER_BYTES + index_bytes]
    assert hashlib.sha256(index).digest() == data[32:64]
    return json.loads(index), data[-(-(HEADER_BYTES + index_bytes) // 64) * 64 :]


def put_together(index: Any, members: bytes) -> bytes:
    """A pack whose digests of header and index agree, whatever stands in them."""
    return with_text(json.dumps(index).encode(), members)


def with_text(text: bytes, members: bytes) -> bytes:
    """A pack whose digests of header and index agree, whatever the text of the index."""
    begin = -(-(HEADER_BYTES + len(text)) // 64) * 64
    header = struct.pack("<8sIIQQ", b"CUTEPACK", 1, 0, len(text), begin + len(members)) + hashlib.sha256(text).digest()
    return (header + text).ljust(begin, b"\0") + members


@pytest.fixture
def forged(pack_path: Path, tmp_path: Path) -> Callable[[Callable[[Index], object]], Path]:
    """The pack with another index, all of whose digests are right."""

    def forge(change: Callable[[Index], object]) -> Path:
        index, members = taken_apart(pack_path.read_bytes())
        change(index)
        path = tmp_path / "forged.cutepack"
        path.write_bytes(put_together(index, members))
        return path

    return forge


def test_what_was_packed_is_what_is_read(pack_path: Path, kernels: Cache) -> None:
    file = read_pack(pack_path)
    built = build_all(packed_kernels(), kernels)
    assert [(x.name, x.target, x.problem) for x in file.entries] == [
        (x.wanted.name, x.wanted.target, x.wanted.problem) for x in built
    ]
    for entry, each in zip(file.entries, built, strict=True):
        assert each.artifact is not None
        found = file.artifact(entry)
        assert (found.ptx, found.cubin, found.source) == (each.artifact.ptx, each.artifact.cubin, each.artifact.source)
        assert found.plan_json == each.artifact.plan_json
        launch = json.loads(each.artifact.plan_json)["launch"]
        assert json.loads(json.dumps(entry.launch.to_json())) == launch


def test_the_bytes_lie_where_the_page_says(pack_path: Path, kernels: Cache) -> None:
    index, members = taken_apart(pack_path.read_bytes())
    for row, each in zip(index["entries"], build_all(packed_kernels(), kernels), strict=True):
        for name, expected in ((CUBIN, each.artifact.cubin), (PTX, each.artifact.ptx.encode())):
            place = row["files"][name]
            found = members[place["offset"] : place["offset"] + place["size_bytes"]]
            assert (found, place["offset"] % ALIGN_BYTES) == (expected, 0)
            assert hashlib.sha256(found).hexdigest() == place["sha256"]


def test_equal_files_are_kept_once_and_packing_is_reproducible(pack_path: Path, kernels: Cache, tmp_path: Path) -> None:
    wanted = packed_kernels()
    twice = tmp_path / "twice.cutepack"
    make_pack(twice, build_all(wanted, kernels))
    assert twice.read_bytes() == pack_path.read_bytes()
    index, _ = taken_apart(pack_path.read_bytes())
    places = [place["offset"] for row in index["entries"] for place in row["files"].values()]
    assert index["entries"][0]["key"] == index["entries"][1]["key"], "one kernel for the problem and for every other"
    assert len(places) > len(set(places))


def test_every_byte_counts(pack_path: Path, tmp_path: Path, rng: random.Random) -> None:
    data = pack_path.read_bytes()
    index, members = taken_apart(data)
    begin = len(data) - len(members)
    inside = [
        begin + row["files"][n]["offset"] + rng.randrange(row["files"][n]["size_bytes"])
        for row in index["entries"]
        for n in FILES
    ]
    damaged = tmp_path / "damaged.cutepack"
    ends = {
        begin + place["offset"] + place["size_bytes"] for row in index["entries"] for place in row["files"].values()
    }
    between = [end for end in ends if end % 64 and end < len(data)]  # the first byte that fills up to the next member
    assert between
    inside += between
    for at in [*range(HEADER_BYTES), *rng.sample(range(HEADER_BYTES, begin), 20), begin - 1, *inside, len(data) - 1]:
        damaged.write_bytes(data[:at] + bytes([data[at] ^ (1 << rng.randrange(8))]) + data[at + 1 :])
        with pytest.raises(ArtifactError, match=r"^\S*damaged\.cutepack: .+"):
            read_pack(damaged)


def test_what_is_cut_off_or_added_to_is_refused(pack_path: Path, tmp_path: Path, rng: random.Random) -> None:
    data = pack_path.read_bytes()
    damaged = tmp_path / "damaged.cutepack"
    for length in (0, 1, 8, 63, 64, 65, *rng.sample(range(len(data)), 20), len(data) - 1):
        damaged.write_bytes(data[:length])
        with pytest.raises(ArtifactError, match=r"copy the file again|not a pack"):
            read_pack(damaged)
    damaged.write_bytes(data + b"\0")
    with pytest.raises(ArtifactError, match="its header says"):
        read_pack(damaged)
    damaged.write_bytes(put_together(index_of(data), taken_apart(data)[1] + b"more"))
    with pytest.raises(ArtifactError, match="bytes that no entry names"):
        read_pack(damaged)


def index_of(data: bytes) -> Index:
    return taken_apart(data)[0]


def a_zip() -> bytes:
    with zipfile.ZipFile(archive := io.BytesIO(), "w") as file:
        file.writestr(zipfile.ZipInfo("../../escape"), "x")  # without the time of day: it is a test's name
    return archive.getvalue()


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (b"", "not a pack: begins with b''"),
        (a_zip(), "not a pack: begins with b'PK"),
        (b"\x7fELF" + bytes(100), "not a pack"),
        (b"[[kernel]]\nspec = 'sm80_hgemm_tn'\n", "not a pack"),
        (MAGIC + struct.pack("<I", 2) + bytes(52), "found pack format 2; this version of cutegen reads 1"),
        (MAGIC + struct.pack("<IIQQ", 1, 0, 1 << 63, 64) + bytes(32), "more than possible"),
        (MAGIC, "expected a header of 64"),
    ],
)
def test_a_foreign_file_is_refused_with_what_it_is(content: bytes, said: str, tmp_path: Path) -> None:
    path = tmp_path / "foreign.cutepack"
    path.write_bytes(content)
    with pytest.raises(ArtifactError) as refused:
        read_pack(path)
    assert said in str(refused.value)


FORGERIES: list[tuple[Callable[[Index], object], str]] = [
    (lambda i: i["entries"].append(i["entries"][0]), "are both sm80_hgemm_tn for sm_80; expected one"),
    (lambda i: i.update(more=1), "expected cutegen, entries"),
    (lambda i: i.update(entries={}), "expected cutegen, entries"),
    (lambda i: i["entries"][0].update(path="../../x"), "entries[0]: found the key 'path'"),
    (lambda i: i["entries"][0].pop("target"), "entries[0].target: found nothing"),
    (lambda i: i["entries"][0].update(name="a\x1b[31m"), "entries[0].name: found"),
    (lambda i: i["entries"][0].update(kind="plugin"), "entries[0].kind: found 'plugin'"),
    (lambda i: i["entries"][1]["problem"].update(m=-1), "entries[1].problem"),
    (lambda i: i["entries"][0]["files"].pop("kernel.py"), "entries[0].files: found"),
    (lambda i: i["entries"][0]["files"].update({"../x": i["entries"][0]["files"]["kernel.py"]}), "entries[0].files"),
    (lambda i: i["entries"][0]["files"][CUBIN].update(offset=-64), "expected them at"),
    (lambda i: i["entries"][0]["files"][CUBIN].update(size_bytes=1 << 40), "expected at most"),
    (lambda i: i["entries"][0]["files"][PTX].update(size_bytes=1 << 25), "within the file"),
    (lambda i: i["entries"][2]["files"].update({CUBIN: i["entries"][2]["files"][PTX]}), "expected them at"),
    (lambda i: i["entries"].pop(), "bytes that no entry names"),
    (lambda i: i["entries"][0]["files"][PTX].update(sha256="0" * 64), "the file is damaged"),
    (lambda i: i["entries"][0].update(launch={"entry": "x"}), "entries[0]: launch"),
]


@pytest.mark.parametrize(("change", "said"), FORGERIES)
def test_a_forged_index_is_refused_with_its_address(
    forged: Callable[..., Path], change: Callable[[Index], object], said: str
) -> None:
    with pytest.raises(ArtifactError) as refused:
        read_pack(forged(change))
    assert said in str(refused.value)
    assert "\n" not in str(refused.value)


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (lambda row: row.update(key="0" * 64), "key: found"),
        (lambda row: row.update(gpu_arch="sm_90a"), "gpu_arch: found 'sm_90a'; expected 'sm_80'"),
        (lambda row: row["launch"].update(threads=256), "launch: found"),
        (lambda row: row.update(kind="ldmatrix_probe"), "kind: found 'ldmatrix_probe'"),
    ],
)
def test_an_index_that_contradicts_its_artifacts_opens_no_kernel(
    forged: Callable[..., Path], change: Callable[[Index], object], said: str
) -> None:
    file = read_pack(forged(lambda index: change(index["entries"][0])))
    with pytest.raises(ArtifactError) as refused:
        file.artifact(file.entries[0])
    assert said in str(refused.value)


@pytest.mark.parametrize(
    ("change", "found"),
    [
        (lambda text: text.replace(b'"target": ', b'"target": "sm_90a", "target": ', 1), "the key 'target' twice"),
        (lambda text: text.replace(b'"sha256": ', b'"offset": 0, "sha256": ', 1), "the key 'offset' twice"),
        (lambda text: b"\xef\xbb\xbf" + text, "a byte-order mark"),
        (lambda text: text.decode().encode("utf-16"), ""),
    ],
)
def test_an_index_that_two_readers_may_understand_differently_is_refused(
    change: Callable[[bytes], bytes], found: str, pack_path: Path, tmp_path: Path
) -> None:
    index, members = taken_apart(pack_path.read_bytes())
    path = tmp_path / "ambiguous.cutepack"
    path.write_bytes(with_text(change(json.dumps(index).encode()), members))
    with pytest.raises(ArtifactError, match=rf"index: .*{found}"):
        read_pack(path)


def test_only_a_regular_file_is_read_and_a_link_to_one(pack_path: Path, tmp_path: Path) -> None:
    fifo, link = tmp_path / "fifo.cutepack", tmp_path / "link.cutepack"
    os.mkfifo(fifo)
    link.symlink_to(pack_path)
    assert len(read_pack(link).entries) == 5
    for path in (fifo, tmp_path, tmp_path / "nothing", Path(os.devnull)):
        with pytest.raises(ArtifactError):
            read_pack(path)


def test_a_file_that_is_too_large_is_not_read(pack_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pack_file, "MAX_PACK_BYTES", 1000)
    with pytest.raises(ArtifactError, match="expected at most 1,000"):
        read_pack(pack_path)


@pytest.mark.parametrize(("limit", "what"), [("MAX_PACK_BYTES", "pack"), ("MAX_INDEX_BYTES", "index")])
def test_what_no_reader_accepts_is_not_written(
    limit: str, what: str, kernels: Cache, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    outcomes = build_all(packed_kernels()[:1], kernels)
    monkeypatch.setattr(pack_file, limit, 1000)
    with pytest.raises(RequestError, match=rf"found 1 kernel with [\d,]+ bytes of {what}; expected at most 1,000"):
        make_pack(tmp_path / "x.cutepack", outcomes)
    assert list(tmp_path.iterdir()) == []


def test_reading_asks_no_driver_and_runs_nothing(pack_path: Path) -> None:
    ask = f"import sys, cutegen; cutegen.load_pack({str(pack_path)!r}); print({{'cuda', 'cutlass'}} & {{*sys.modules}})"
    assert subprocess.run([sys.executable, "-c", ask], check=True, capture_output=True, text=True).stdout == "set()\n"


def test_two_kernels_that_would_be_asked_for_alike_are_refused(kernels: Cache, tmp_path: Path) -> None:
    outcomes = build_all(packed_kernels()[:1], kernels)
    with pytest.raises(RequestError, match="two kernels called sm80_hgemm_tn for sm_80"):
        make_pack(tmp_path / "x.cutepack", outcomes * 2)
    with pytest.raises(RequestError, match="no kernel to pack"):
        make_pack(tmp_path / "x.cutepack", [])
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("name", ["my\xa0kernel", "a\nb", "\x1b[31m", "\udcff"])
def test_a_name_that_no_reader_takes_is_not_written(name: str, kernels: Cache, tmp_path: Path) -> None:
    (outcome,) = build_all(packed_kernels()[:1], kernels)
    renamed = replace(outcome, wanted=replace(outcome.wanted, name=name))
    with pytest.raises(RequestError) as refused:
        make_pack(tmp_path / "x.cutepack", [renamed])
    assert str(refused.value).startswith(f"pack: found a kernel called {name!r}; expected a line of printable text; ")
    assert list(tmp_path.iterdir()) == []


def test_two_kernels_of_one_folder_are_refused_before_any_is_written(kernels: Cache, tmp_path: Path) -> None:
    outcomes = build_all(packed_kernels()[:2], kernels)
    called = [replace(outcomes[0], wanted=replace(outcomes[0].wanted, name=name)) for name in ("a b", "a_b")]
    with pytest.raises(RequestError, match="two kernels whose folder is a_b-sm_80; expected one; rename"):
        copy_artifacts(tmp_path / "built", [outcomes[1], *called])
    assert list(tmp_path.iterdir()) == []


def test_a_pack_that_cannot_be_written_leaves_the_old_one(pack_path: Path, tmp_path: Path) -> None:
    with pytest.raises(OutsideError, match="cannot be written"):
        write_pack(tmp_path / "no" / "x.cutepack", [])
    taken = tmp_path / "folder.cutepack"
    taken.mkdir()
    with pytest.raises(OutsideError, match=r"folder\.cutepack cannot be written"):
        write_pack(taken, [])
    assert [path.name for path in tmp_path.iterdir()] == ["folder.cutepack"]


def test_the_problem_is_in_the_entry(pack_path: Path) -> None:
    problems = [entry.problem for entry in read_pack(pack_path).entries]
    assert problems == [None, ProblemShape(*SMALL), None, None, None]


def test_the_page_describes_every_key() -> None:
    page = (ROOT / "docs" / "pack_format.md").read_text()
    described = set(re.findall(r"`(\w+)`", page))
    for part in (PackIndex, PackEntry, PackMember, LaunchContract, TensorContract, TensorMapContract, SplitContract):
        assert {field.name for field in fields(part)} <= described, part
    assert {*OPERANDS, RESULT, *BESIDE_RESULT, *SCALARS, *KINDS} <= described
    assert f"version of the format: {PACK_VERSION} |" in page
