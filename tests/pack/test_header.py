"""The header of a pack: a namespace for each name, a kernel of several problems once, and what has no header."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from cutegen.build.pack_file import read_pack
from cutegen.cli.main import main
from cutegen.errors import RequestError
from cutegen.pack.header import pack_header

pytestmark = pytest.mark.dsl


def test_each_name_is_a_namespace_with_its_kernels(gemms_path: Path) -> None:
    header, entries = pack_header(read_pack(gemms_path)), read_pack(gemms_path).entries
    assert header.count("namespace sm80_hgemm_tn __attribute__") == header.count("namespace sm90_hgemm_tn __att") == 1
    different = {(each.name, each.files["kernel.cubin"].sha256, str(each.launch)) for each in entries}
    assert header.count("alignas(64) inline const unsigned char cubin[]") == len(different)
    assert header.count("-1, -1, -1, -1, 8, 0, false") == (1 if len(different) == len(entries) else 0)


def test_emit_writes_it_and_says_what_else_a_pack_does_not_have(
    gemms_path: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "gemms.h"
    assert main(["emit", str(gemms_path), "--out", str(out)]) == 0
    assert out.read_text() == pack_header(read_pack(gemms_path))
    capsys.readouterr()
    assert main(["emit", str(gemms_path), "--what", "cpp", "--json"]) == 0
    assert json.loads(capsys.readouterr().out).keys() == {"schema", "pack", "cpp"}
    assert main(["emit", str(gemms_path), "--what", "ptx"]) == 2
    assert "expected cpp, a header with all kernels of the pack" in " ".join(capsys.readouterr().err.split())
    assert main(["emit", str(gemms_path), "--what", "cpp", "--arch", "sm_80"]) == 2
    assert "a pack, which has its own" in " ".join(capsys.readouterr().err.split())


def test_a_probe_has_no_header(pack_path: Path) -> None:
    with pytest.raises(RequestError, match="found ldmatrix_probe, of kind ldmatrix_probe; expected GEMMs"):
        pack_header(read_pack(pack_path))
