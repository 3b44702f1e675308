"""Packs that are damaged, cut off, foreign, or forged with the right digests: none loads anything that is not right.

A change of bytes is refused whole. What has a forged index and right digests may be read; each of its kernels then is
what was packed, or is refused when it is asked for.
"""

from __future__ import annotations

import atexit
import hashlib
import json
import random
import shutil
import struct
import tempfile
from collections.abc import Callable, Mapping
from functools import lru_cache
from pathlib import Path
from typing import Any

from cutegen.build import Artifact, Cache, build
from cutegen.build.pack_file import ToPack, read_pack, write_pack
from cutegen.contract.problem import ProblemShape
from cutegen.errors import ArtifactError
from cutegen.run import driver
from tests.fuzz.case import ACCEPTED, FOUND, REFUSED, Case, Outcome, random_of
from tests.fuzz.stand_ins import is_right, stand_in_request

HEADER = struct.Struct("<8sIIQQ32s")
ALIGN_BYTES = 64
WORDS: tuple[Any, ...] = (
    *(None, True, -1, 0, 1, 63, 64, 1 << 31, 1 << 63, 1 << 70, 1.5, float("nan"), "", "x", "../../x", "/dev/zero"),
    *("\x1b[2J", "\udcff", "a" * 5000, [], {}, [[]], "sm_90", "sm_90a", "ldmatrix_probe", "kernel.cubin", "0" * 64),
)


def case(seed: int) -> Case:
    """A change to a pack of three kernels, and the seed of its place."""
    rng = random_of("packs", seed)
    return Case(seed, json.dumps({"change": rng.choice(sorted(CHANGES)), "seed": seed}) + "\n")


def check(case: Case) -> Outcome:
    """Change the pack, and open it as whoever loads one does."""
    table = json.loads(case.text)
    whole, rng = whole_pack(), random.Random(table["seed"])
    changed = CHANGES[table["change"]](whole, rng)
    path = Path(tempfile.mkdtemp(prefix="fuzz-pack-")) / "x.cutepack"
    path.write_bytes(changed)
    try:
        return _opened(path, same=changed == whole, by_bytes=table["change"] in OF_BYTES)
    finally:
        shutil.rmtree(path.parent)


def _opened(path: Path, *, same: bool, by_bytes: bool) -> Outcome:
    try:
        file = read_pack(path)
    except ArtifactError as error:
        return Outcome(FOUND, "an unchanged pack is refused") if same else _refused(error)
    if by_bytes and not same:
        return Outcome(FOUND, "bytes were changed, and it was read")
    for entry in file.entries:
        try:
            artifact = file.artifact(entry)
        except ArtifactError as error:
            return _refused(error)
        if not is_right(artifact):
            return Outcome(FOUND, f"{entry} gives another kernel than was packed")
    if driver.load_driver.cache_info().currsize:
        return Outcome(FOUND, "the driver was loaded")
    return Outcome(ACCEPTED)


def _refused(error: ArtifactError) -> Outcome:
    said = str(error)
    if "\n" in said or not said.isprintable() or len(said) > 2000:
        return Outcome(FOUND, f"a message that is not one printable line: {said[:200]!r}")
    return Outcome(REFUSED, said)


@lru_cache
def whole_pack() -> bytes:
    """Three kernels that are stand-ins, one of them for a problem."""
    folder = Path(tempfile.mkdtemp(prefix="cutegen-fuzz-"))
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    built = {arch: build(stand_in_request(arch), Cache(folder / "cache")) for arch in ("sm_80", "sm_90")}
    asked = (("sm_80", None), ("sm_80", ProblemShape(64, 64, 32)), ("sm_90", None))
    write_pack(folder / "x.cutepack", [_to_pack(shape, arch, built[arch]) for arch, shape in asked])
    return (folder / "x.cutepack").read_bytes()


def _to_pack(problem: ProblemShape | None, arch: str, artifact: Artifact) -> ToPack:
    return ToPack(name="hgemm", problem=problem, target=arch, ops=(), artifact=artifact)


def _flipped(whole: bytes, rng: random.Random) -> bytes:
    data = bytearray(whole)
    for _ in range(rng.choice((1, 1, 2, 30))):
        data[_place(rng, len(data))] ^= 1 << rng.randrange(8)
    return bytes(data)


def _place(rng: random.Random, size: int) -> int:
    """Anywhere, and often in the header."""
    return rng.randrange(HEADER.size) if rng.random() < 0.3 else rng.randrange(size)


def _zeroed(whole: bytes, rng: random.Random) -> bytes:
    """A block that a file system lost."""
    begin = _place(rng, len(whole))
    end = min(len(whole), begin + rng.choice((1, 8, 512, 4096)))
    return whole[:begin] + bytes(end - begin) + whole[end:]


def _cut_off(whole: bytes, rng: random.Random) -> bytes:
    return whole[: _place(rng, len(whole))]


def _added_to(whole: bytes, rng: random.Random) -> bytes:
    at, more = rng.choice((len(whole), _place(rng, len(whole)))), rng.randbytes(rng.choice((1, 64, 1000)))
    return whole[:at] + more + whole[at:]


def _moved(whole: bytes, rng: random.Random) -> bytes:
    """Two blocks in each other's place."""
    size = rng.choice((8, 64, 512))
    one, other = sorted(rng.sample(range(0, len(whole) - size, size), 2))
    parts = whole[:one], whole[other : other + size], whole[one + size : other], whole[one : one + size]
    return b"".join((*parts, whole[other + size :]))


def _header(whole: bytes, rng: random.Random) -> bytes:
    """Another number in the header."""
    fields = list(HEADER.unpack_from(whole))
    at = rng.randrange(1, 5)
    fields[at] = rng.choice((0, 1, 2, fields[at] + 1, len(whole), (1 << 32) - 1)) if at < 3 else rng.getrandbits(64)
    return HEADER.pack(*fields) + whole[HEADER.size :]


def _foreign(whole: bytes, rng: random.Random) -> bytes:
    """Another kind of file, perhaps with the magic of a pack."""
    start = rng.choice((b"", b"PK\x03\x04", b"\x7fELF", b"\x80\x04", b"[[kernel]]\n", b"CUTEPACK", whole[:16]))
    return start + rng.randbytes(rng.choice((0, 10, 100, 10_000)))


def _forged(whole: bytes, rng: random.Random) -> bytes:
    """Something else in the index, whose digest then is made right."""
    *_, index_bytes, _, _ = HEADER.unpack_from(whole)
    end = HEADER.size + index_bytes
    index, members = json.loads(whole[HEADER.size : end]), whole[_aligned(end) :]
    for _ in range(rng.choice((1, 1, 1, 3))):
        _change(index, rng)
    text = json.dumps(index).encode("utf-8", "surrogatepass")
    return _sealed(text, members)


def _torn(whole: bytes, rng: random.Random) -> bytes:
    """An index that is no JSON, or one of great depth, with the right digest."""
    *_, index_bytes, _, _ = HEADER.unpack_from(whole)
    end = HEADER.size + index_bytes
    text, at = whole[HEADER.size : end], rng.randrange(index_bytes)
    torn = rng.choice((text[:at], text + text, b"[" * 100_000, b"\xff" + text, text[:at] + b"\0" + text[at:], b"1e999"))
    return _sealed(torn, whole[_aligned(end) :])


def _sealed(text: bytes, members: bytes) -> bytes:
    begin = _aligned(HEADER.size + len(text))
    header = HEADER.pack(b"CUTEPACK", 1, 0, len(text), begin + len(members), hashlib.sha256(text).digest())
    return (header + text).ljust(begin, b"\0") + members


def _aligned(offset: int) -> int:
    return -(-offset // ALIGN_BYTES) * ALIGN_BYTES


def _change(table: Any, rng: random.Random) -> None:
    """Replace, remove, copy or rename something somewhere in JSON."""
    inside = [x for x in (table.values() if isinstance(table, dict) else table) if isinstance(x, dict | list) and x]
    if inside and rng.random() < 0.85:
        return _change(rng.choice(inside), rng)
    at: Any = rng.choice(list(table)) if isinstance(table, dict) else rng.randrange(len(table))
    match rng.choice(("replace", "replace", "remove", "copy", "swap")):
        case "replace":
            table[at] = rng.choice(WORDS)
        case "remove":
            del table[at]
        case "copy" if isinstance(table, dict):
            table[rng.choice(("more", "../x", "", at + " "))] = table[at]
        case "copy":
            table.append(table[at])
        case "swap":
            other: Any = rng.choice(list(table)) if isinstance(table, dict) else rng.randrange(len(table))
            table[at], table[other] = table[other], table[at]
    return None


Change = Callable[[bytes, random.Random], bytes]
OF_BYTES: Mapping[str, Change] = {
    "flipped": _flipped,
    "zeroed": _zeroed,
    "cut off": _cut_off,
    "added to": _added_to,
    "moved": _moved,
    "header": _header,
    "foreign": _foreign,
}
CHANGES: Mapping[str, Change] = {**OF_BYTES, "forged": _forged, "torn": _torn, "unchanged": lambda whole, rng: whole}
