"""The environment is read when asked, and what it says wrongly is refused by name."""

from __future__ import annotations

from pathlib import Path

import pytest

from cutegen.errors import RequestError
from cutegen.support import environment


def test_unset_and_empty_are_none(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in (environment.CACHE_DIR, environment.CACHE_SIZE):
        monkeypatch.delenv(name, raising=False)
    assert (environment.cache_dir(), environment.cache_size_limit_bytes()) == (None, None)
    for name in (environment.CACHE_DIR, environment.CACHE_SIZE):
        monkeypatch.setenv(name, "")
    assert (environment.cache_dir(), environment.cache_size_limit_bytes()) == (None, None)


def test_the_cache_folder_is_absolute(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HOME", str(tmp_path))
    for text, expected in ((str(tmp_path), tmp_path), ("kernels", tmp_path / "kernels"), ("~/k", tmp_path / "k")):
        monkeypatch.setenv("CUTEGEN_CACHE_DIR", text)
        assert environment.cache_dir() == expected


def test_a_home_that_does_not_exist_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CUTEGEN_CACHE_DIR", "~nobody-of-this-name/kernels")
    with pytest.raises(RequestError, match="CUTEGEN_CACHE_DIR: found '~nobody-of-this-name/kernels'"):
        environment.cache_dir()


def test_a_relative_folder_in_a_removed_one_is_refused(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    gone = tmp_path / "gone"
    gone.mkdir()
    monkeypatch.chdir(gone)
    gone.rmdir()
    monkeypatch.setenv("CUTEGEN_CACHE_DIR", "kernels")
    with pytest.raises(RequestError, match=r"CUTEGEN_CACHE_DIR: found .kernels.; expected a folder; .*No such file"):
        environment.cache_dir()


@pytest.mark.parametrize(
    ("text", "size_bytes"),
    [
        ("0", 0),
        ("4096", 4096),
        ("4096B", 4096),
        ("1kB", 1000),
        ("1KiB", 1024),
        ("500 mb", 5 * 10**8),
        (" 2GiB ", 2 << 30),
    ],
)
def test_a_size_has_a_decimal_or_a_binary_unit(text: str, size_bytes: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CUTEGEN_CACHE_SIZE", text)
    assert environment.cache_size_limit_bytes() == size_bytes


@pytest.mark.parametrize("text", ["-1", "ten", "1 PB", "1e9", "GiB", "1.GiB", "٣", " "])
def test_what_is_no_size_is_refused(text: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CUTEGEN_CACHE_SIZE", text)
    with pytest.raises(RequestError, match=r"CUTEGEN_CACHE_SIZE: found .*; expected bytes or a size"):
        environment.cache_size_limit_bytes()
