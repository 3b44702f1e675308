"""Ways to damage an artifact's folder, by name: `FAULTS` for tests that try each, `plant` for those that draw one.

Each takes the folder of a whole artifact and a source of random numbers, and damages the folder in one way. A resealed
fault has right digests throughout, as somebody can write who knows the format.
"""

from __future__ import annotations

import hashlib
import json
import os
import random
import shutil
import socket
import subprocess
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

FILES = ("kernel.cubin", "kernel.ptx", "kernel.py", "manifest.json", "plan.json")
Plant = Callable[[Path, random.Random], None]


@dataclass(frozen=True)
class Fault:
    """One way to damage a folder.

    `openable` ones leave an artifact that `Kernel.open` accepts.
    `of_plan` ones leave the kernel whole, and `plan.json` resealed: a look-up has the plan of its request and is right.
    """

    name: str
    plant: Plant
    openable: bool = False
    of_plan: bool = False

    def __str__(self) -> str:
        return self.name


def plant(folder: Path, rng: random.Random) -> Fault:
    """Damage the folder in one way out of `FAULTS`, drawn by `rng`."""
    fault = rng.choice(FAULTS)
    fault.plant(folder, rng)
    return fault


def scrub(path: Path) -> None:
    """Remove a folder, also one of folders nested too deep for Python."""
    subprocess.run(["rm", "-rf", path], check=True)


# One file


def flip(path: Path, rng: random.Random) -> None:
    """Flip one bit somewhere."""
    data = bytearray(path.read_bytes())
    data[rng.randrange(len(data))] ^= 1 << rng.randrange(8)
    path.write_bytes(data)


def truncate(path: Path, rng: random.Random) -> None:
    """Cut the file somewhere."""
    os.truncate(path, rng.randrange(path.stat().st_size))


def append(path: Path, rng: random.Random) -> None:
    """Add a byte."""
    path.write_bytes(path.read_bytes() + rng.randbytes(1))


def remove(path: Path, rng: random.Random) -> None:
    """Remove the file."""
    path.unlink()


def link(path: Path, rng: random.Random) -> None:
    """Replace the file by a symbolic link to the same bytes."""
    elsewhere = path.parent.parent / f"{path.name}.{rng.randrange(1 << 30)}"
    shutil.move(path, elsewhere)
    path.symlink_to(elsewhere)


def endless(path: Path, rng: random.Random) -> None:
    """Replace the file by a link to a device that never ends."""
    path.unlink()
    path.symlink_to(rng.choice(("/dev/zero", "/dev/urandom")))


def loop(path: Path, rng: random.Random) -> None:
    """Replace the file by a link to itself."""
    path.unlink()
    path.symlink_to(path)


def pipe(path: Path, rng: random.Random) -> None:
    """Replace the file by a FIFO, which would be waited for."""
    path.unlink()
    os.mkfifo(path)


def bound_socket(path: Path, rng: random.Random) -> None:
    """Replace the file by a socket."""
    path.unlink()
    here = os.open(path.parent, os.O_DIRECTORY)
    with socket.socket(socket.AF_UNIX) as server:
        server.bind(f"/proc/self/fd/{here}/{path.name}")  # the path itself may be too long for an address
    os.close(here)


def folder(path: Path, rng: random.Random) -> None:
    """Replace the file by a folder."""
    path.unlink()
    path.mkdir()


def sparse(path: Path, rng: random.Random) -> None:
    """Make the file a terabyte long, without a block on disk."""
    os.truncate(path, 1 << 40)


def brackets(path: Path, rng: random.Random) -> None:
    """100,000 brackets, nested."""
    path.write_text("[" * 100_000 + "]" * rng.choice((0, 100_000)))


def replaced(text: bytes, path: Path, rng: random.Random) -> None:
    """Other bytes altogether."""
    path.write_bytes(text)


ON_A_FILE = (flip, truncate, append, remove, link, endless, loop, pipe, bound_socket, folder, sparse, brackets)
TEXTS = {
    "nothing": b"",
    "null": b"null",
    "a list": b"[]",
    "an object": b"{}",
    "not UTF-8": b"\xff\xfe\x00",
    "a long number": b"1" * 10_000,
    "NaN": b'{"format_version": NaN}',
    "NUL bytes": bytes(64),
    "a lone surrogate": b'{"format_version": "\\ud800"}',
}


# The folder


def extra_name(path: Path, rng: random.Random) -> None:
    """A file whose name is no text and would color a terminal."""
    (path / os.fsdecode(b"\xff\x1b[31m\n")).write_bytes(b"")


def crowded(path: Path, rng: random.Random) -> None:
    """Three thousand files more."""
    for number in range(3000):
        (path / f"{number}").touch()


def deep(path: Path, rng: random.Random) -> None:
    """Folders nested deeper than a path can say."""
    here = os.open(path, os.O_DIRECTORY)
    for _ in range(1500):
        os.mkdir("deeper", dir_fd=here)
        inner = os.open("deeper", os.O_DIRECTORY, dir_fd=here)
        os.close(here)
        here = inner
    os.close(here)


def a_file(path: Path, rng: random.Random) -> None:
    """A file in place of the folder."""
    shutil.rmtree(path)
    path.write_bytes(rng.randbytes(100))


def a_pipe(path: Path, rng: random.Random) -> None:
    """A FIFO in place of the folder."""
    shutil.rmtree(path)
    os.mkfifo(path)


def linked_folder(path: Path, rng: random.Random) -> None:
    """A link to the same folder elsewhere."""
    elsewhere = path.parent / f"elsewhere-{rng.randrange(1 << 30)}"
    path.rename(elsewhere)
    path.symlink_to(elsewhere)


def empty(path: Path, rng: random.Random) -> None:
    """A folder of nothing."""
    for each in path.iterdir():
        each.unlink()


def far_future(path: Path, rng: random.Random) -> None:
    """Last used in a year that no calendar has."""
    try:
        os.utime(path, (1 << 60, 1 << 60))
    except OverflowError:
        os.utime(path, (1 << 33, 1 << 33))


ON_THE_FOLDER = (extra_name, crowded, deep, a_file, a_pipe, linked_folder, empty)


# Resealed: wrong, and every digest is right


def reseal(path: Path, table: dict[str, Any]) -> None:
    """Write `table` as the manifest, with the digest of itself."""
    table = {name: value for name, value in table.items() if name != "manifest_sha256"}
    body = json.dumps(table, indent=2) + "\n"
    sealed = {**table, "manifest_sha256": hashlib.sha256(body.encode()).hexdigest()}
    (path / "manifest.json").write_text(json.dumps(sealed, indent=2) + "\n")


def reseal_files(path: Path) -> None:
    """Give the manifest the digests of the files as they are."""
    table = json.loads((path / "manifest.json").read_text())
    for name in table["files"]:
        data = (path / name).read_bytes()
        table["files"][name] = {"sha256": hashlib.sha256(data).hexdigest(), "size_bytes": len(data)}
    reseal(path, table)


def places(value: Any, at: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """Where every value in a JSON value stands, itself left out."""
    items = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for name, each in items:
        yield (*at, name)
        yield from places(each, (*at, name))


def other_type(value: Any, rng: random.Random) -> Any:
    """A value that no field of the type of `value` takes."""
    nested: Any = 0
    for _ in range(300):
        nested = [nested]
    others = (True, 1.5, 1 << 70, "\ud800", "\x1b[31m", {"a": {}}, nested, [[]])
    kept = [x for x in others if type(x) is not type(value) or isinstance(x, (str, int))]
    return rng.choice(kept)


def spoil(table: Any, rng: random.Random) -> None:
    """Give one value of `table` another type, wherever it stands."""
    *outer, last = rng.choice(sorted(places(table), key=str))
    for name in outer:
        table = table[name]
    table[last] = other_type(table[last], rng)


def manifest_type(path: Path, rng: random.Random) -> None:
    """A value of another type in the manifest."""
    table = json.loads((path / "manifest.json").read_text())
    del table["manifest_sha256"]
    spoil(table, rng)
    reseal(path, table)


def manifest_key(path: Path, rng: random.Random) -> None:
    """A key more or a key less in the manifest."""
    table = json.loads((path / "manifest.json").read_text())
    inner = rng.choice((table, table["inputs"], table["instructions"]))
    if rng.random() < 0.5:
        inner["extra"] = 1
    else:
        del inner[rng.choice(sorted(inner.keys() - {"manifest_sha256"}))]
    reseal(path, table)


def other_plan(change: Callable[[dict[str, Any], random.Random], None], path: Path, rng: random.Random) -> None:
    """A plan that is changed, and all digests with it."""
    plan = json.loads((path / "plan.json").read_text())
    change(plan, rng)
    (path / "plan.json").write_text(json.dumps(plan))
    reseal_files(path)


def other_text(name: str, text: bytes, path: Path, rng: random.Random) -> None:
    """Another file altogether, and its digest."""
    (path / name).write_bytes(text)
    reseal_files(path)


def launch_type(plan: dict[str, Any], rng: random.Random) -> None:
    """A value of another type in the launch contract."""
    spoil(plan["launch"], rng)


def launch_key(plan: dict[str, Any], rng: random.Random) -> None:
    """A key less, or one more, in the launch contract or in one of its tensors."""
    table = rng.choice((plan["launch"], *plan["launch"]["tensors"], *plan["launch"]["parameters"]))
    if rng.random() < 0.5:
        table["extra"] = 1
    else:
        del table[rng.choice(sorted(table.keys() - {"split", "ctas_per_multiprocessor"}))]


def launch_value(plan: dict[str, Any], rng: random.Random) -> None:
    """A value of the right type that cannot be."""
    launch = plan["launch"]
    tensor, parameter = rng.choice(launch["tensors"]), rng.choice(launch["parameters"])
    table, name, value = rng.choice(
        (
            (launch, "cta_tile", [0, 128]),
            (launch, "threads", rng.choice((0, -1, 1025, 1 << 62))),
            (launch, "dynamic_smem_bytes", rng.choice((-1, 1 << 40))),
            (launch, "ctas_per_multiprocessor", 0),
            (launch, "tensors", launch["tensors"][:2]),
            (launch, "tensors", []),
            (launch, "tensors", launch["tensors"][::-1]),
            (launch, "given", launch["tensors"]),
            (launch, "scalars", ["gamma"]),
            (launch, "split", {"slices": 0, "bytes_per_slice": 1, "atomics": False}),
            (launch, "maps", [{"name": "z", "box": [64, 64], "swizzle_bytes": 128}]),
            (launch, "maps", [{"name": "a", "box": [64, 0], "swizzle_bytes": 128}]),
            (launch, "entry", rng.choice(("", "two words", "other_0"))),
            (tensor, "dtype", "f17"),
            (tensor, "modes", ["m"]),
            (tensor, "major", "z"),
            (tensor, "align_bytes", rng.choice((0, -16, 3, 1 << 20))),
            (tensor, "name", "z"),
            (parameter, "name", "z"),
            (parameter, "type", "tensormap"),
        )
    )
    table[name] = value


def no_launch(plan: dict[str, Any], rng: random.Random) -> None:
    """No launch contract, or none that is a table; or a kind that nobody knows."""
    name, value = rng.choice((("launch", None), ("launch", []), ("launch", "x"), ("kind", []), ("kind", "x")))
    plan[name] = value


ON_A_PLAN = (launch_type, launch_key, launch_value, no_launch)

FAULTS: tuple[Fault, ...] = (
    *(Fault(f"{name}: {each.__name__}", lambda path, rng, x=each, y=name: x(path / y, rng))  # type: ignore[misc]
      for name in FILES for each in ON_A_FILE),
    *(Fault(f"{name}: {what}", lambda path, rng, x=text, y=name: replaced(x, path / y, rng))  # type: ignore[misc]
      for name in ("manifest.json", "plan.json") for what, text in TEXTS.items()),
    *(Fault(each.__name__, each) for each in ON_THE_FOLDER),
    Fault("far_future", far_future, openable=True),
    Fault("resealed: manifest_type", manifest_type),
    Fault("resealed: manifest_key", manifest_key),
    *(Fault(f"resealed: {each.__name__}", partial(other_plan, each), of_plan=True) for each in ON_A_PLAN),
    *(Fault(f"resealed: plan.json: {what}", partial(other_text, "plan.json", text), of_plan=what != "not UTF-8")
      for what, text in TEXTS.items()),
    Fault("resealed: plan.json: brackets", partial(other_text, "plan.json", b"[" * 100_000), of_plan=True),
    Fault("resealed: kernel.ptx: not UTF-8", partial(other_text, "kernel.ptx", b"\xff\xfe")),
    Fault("resealed: kernel.py: another", partial(other_text, "kernel.py", b"print('other')\n")),
)  # fmt: skip
"""Every fault, each of which a look-up, `Kernel.open`, `list`, `info` and `verify` must survive."""
