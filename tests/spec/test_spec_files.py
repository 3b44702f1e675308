"""Files that are no specs: each is told in one line what was looked for and what to do."""

from __future__ import annotations

import errno
from pathlib import Path

import pytest

from cutegen.errors import SpecError
from cutegen.spec import load_spec, shipped_specs, spec_path


def refusal(name_or_path: str | Path) -> SpecError:
    with pytest.raises(SpecError) as caught:
        load_spec(name_or_path)
    assert "\n" not in str(caught.value)
    return caught.value


def written(folder: Path, content: bytes) -> Path:
    path = folder / "mine.toml"
    path.write_bytes(content)
    return path


@pytest.mark.parametrize(
    ("content", "found", "expected"),
    [
        (b"", "an empty file", "family"),
        (b" \n\n", "an empty file", "family"),
        (b"# only a comment\n", "no key in it", "family"),
        (b"\x7fELF\x02\x01\x01\x00\x90\xff", "byte 0x90 at offset 8, which is not UTF-8", "a TOML file"),
        ("family".encode("utf-16"), "byte 0xff at offset 0", "a TOML file"),
        (b"PK\x03\x04", "a syntax error: Expected '='", "TOML"),
        (b'family = "sm80"\ntile = {\n', "a syntax error: ", "TOML"),
        (b"x" * (2 << 20), "more than 1048576 bytes", "a small TOML file"),
    ],
)
def test_content_that_is_no_spec(content: bytes, found: str, expected: str, tmp_path: Path) -> None:
    path = written(tmp_path, content)
    error = refusal(path)
    assert (error.file, error.key) == (str(path), "")
    assert found in error.found
    assert expected in error.expected


def test_an_empty_file_is_shown_a_spec_to_start_from(tmp_path: Path) -> None:
    assert any(name in refusal(written(tmp_path, b"")).fix for name in shipped_specs())


def test_a_syntax_error_has_line_and_column_and_the_line(tmp_path: Path) -> None:
    error = refusal(written(tmp_path, b'family = "sm80"\n\n[tile]\nstages == 3\n'))
    assert "line 4, column 9" in error.found
    assert error.fix == 'the line reads "stages == 3"'


def test_a_key_written_twice_is_a_syntax_error(tmp_path: Path) -> None:
    assert "line 2" in refusal(written(tmp_path, b"family = 'sm80'\nfamily = 'sm80'\n")).found


def test_a_missing_file_is_told_its_neighbor(tmp_path: Path) -> None:
    (tmp_path / "my_gemm.toml").touch()
    error = refusal(tmp_path / "my_gem.toml")
    assert (error.file, error.found) == (str(tmp_path / "my_gem.toml"), "no such file")
    assert error.fix == f"the nearest file name there is {tmp_path / 'my_gemm.toml'}"


def test_a_missing_file_alone_is_told_the_nearest_shipped_spec_or_how_to_list_them(tmp_path: Path) -> None:
    assert refusal(tmp_path / "sm80_hgem_tn.toml").fix == "the nearest shipped spec is sm80_hgemm_tn"
    assert refusal(tmp_path / "x.toml").fix == "`cutegen list` shows the shipped specs"


def test_a_missing_folder_is_named(tmp_path: Path) -> None:
    assert refusal(tmp_path / "no" / "mine.toml").fix == f"the folder {tmp_path / 'no'} does not exist"
    assert refusal(f"{written(tmp_path, b'')}/mine.toml").found == "no such file"


@pytest.mark.parametrize("name", ["sm80_hgem_tn", "SM80_HGEMM_TN", "sm80hgemm_tn"])
def test_a_bare_name_is_told_the_nearest_shipped_spec(name: str) -> None:
    error = refusal(name)
    assert f'"{name}"' in error.found
    assert error.expected == "sm80_hgemm_tn, the nearest"
    assert error.fix == f"`cutegen list` shows all {len(shipped_specs())}"


def test_a_bare_name_of_a_file_here_is_told_to_be_a_path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    written(tmp_path, b"")
    monkeypatch.chdir(tmp_path)
    assert refusal("mine").expected == "mine.toml, with the suffix: a file of that name exists here"


@pytest.mark.parametrize("name", ["", "?", "zzzz", "a\0b", "\n", "x" * 300])
def test_a_bare_name_like_nothing_is_told_what_a_path_is(name: str) -> None:
    assert refusal(name).expected.endswith("a path, which has a / in it or ends in .toml")


def test_a_directory_is_told_what_is_in_it(tmp_path: Path) -> None:
    written(tmp_path, b"")
    error = refusal(tmp_path)
    assert (error.found, error.fix) == ("a directory", "it contains mine.toml")
    assert refusal(".").found == "a directory"


def test_a_built_folder_is_told_which_commands_take_it(tmp_path: Path) -> None:
    (tmp_path / "kernel.py").touch()
    assert "`cutegen run`, `bench`, `report` and `emit`" in refusal(tmp_path).fix


@pytest.mark.parametrize("path", ["a\0b.toml", "x" * 5000 + ".toml"])
def test_a_path_that_cannot_be(path: str) -> None:
    assert refusal(path).expected == "a readable TOML file"


def test_an_unreadable_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def denied(*_: object, **__: object) -> None:  # root may read everything, so chmod would show nothing
        raise PermissionError(errno.EACCES, "Permission denied")

    path = written(tmp_path, b"")
    monkeypatch.setattr(Path, "open", denied)
    assert refusal(path).found == "permission denied"


def test_a_device_without_end_is_no_spec() -> None:
    assert "more than" in refusal("/dev/zero").found


def test_spec_path_is_only_for_shipped_specs() -> None:
    with pytest.raises(SpecError, match="not a shipped spec"):
        spec_path("../pyproject")


@pytest.mark.parametrize(("name", "way_out"), [("k.ptx", "cutegen check FILE.ptx"), ("./kernel.py", "`cutegen build`")])
def test_files_of_other_kinds_are_sent_to_who_takes_them(name: str, way_out: str) -> None:
    with pytest.raises(SpecError, match=rf"expected a spec, which ends in \.toml; .*{way_out}"):
        load_spec(name)
