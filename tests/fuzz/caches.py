"""Damaged caches: every way to use one gives the right kernel or refuses with words, and no other entry suffers."""

from __future__ import annotations

import json
import logging
import random
import shutil
import tempfile
from collections.abc import Callable, Mapping
from pathlib import Path

from cutegen.build import Artifact, Cache, build, explain_miss, open_artifact
from cutegen.errors import CutegenError
from cutegen.run.kernel import Kernel
from tests.build.faults import FAULTS, scrub
from tests.fuzz.case import ACCEPTED, FOUND, REFUSED, Case, Outcome, random_of
from tests.fuzz.stand_ins import is_right, stand_in_request

VICTIM, SECOND, BYSTANDER = "sm_80", "sm_86", "sm_90"
BY_NAME = {fault.name: fault for fault in FAULTS}


class LawError(Exception):
    """The law of this kind does not hold."""


def case(seed: int) -> Case:
    """A fault in one entry, or one in each of two, and around them; and the order in which the cache is then used."""
    rng = random_of("caches", seed)
    table = {
        "faults": rng.sample(sorted(BY_NAME), rng.choice((1, 1, 1, 2))),
        "around": rng.choice((*["nothing"] * 3, *AROUND)),
        "uses": rng.sample(sorted(USES), len(USES)),
        "seed": seed,
    }
    return Case(seed, json.dumps(table) + "\n")


def check(case: Case) -> Outcome:
    """Build two entries, damage one, and use the cache."""
    logging.getLogger("cutegen.build").setLevel(logging.CRITICAL)
    table = json.loads(case.text)
    folder = Path(tempfile.mkdtemp(prefix="fuzz-cache-"))
    try:
        return _tried(table, Cache(folder / "cache"))
    except LawError as error:
        return Outcome(FOUND, str(error))
    finally:
        scrub(folder)


def _tried(table: dict[str, list[str]], cache: Cache) -> Outcome:
    rng = random_of("planted", int(str(table["seed"])))
    victim, second, _ = (build(stand_in_request(arch), cache) for arch in (VICTIM, SECOND, BYSTANDER))
    for name, artifact in zip(table["faults"], (victim, second), strict=False):
        BY_NAME[name].plant(artifact.path, rng)
    AROUND.get(str(table["around"]), lambda cache, rng: None)(cache, rng)
    refusals = [said for use in table["uses"] if (said := _used(use, cache, victim))]
    if not all(is_right(build(stand_in_request(arch), cache)) for arch in (VICTIM, SECOND)):
        raise LawError("a build after the faults gives something else")
    return Outcome(REFUSED, refusals[0]) if refusals else Outcome(ACCEPTED)


def _used(use: str, cache: Cache, victim: Artifact) -> str:
    """What a use says when it refuses; "" when it does what it is for."""
    try:
        USES[use](cache, victim)
    except CutegenError as error:
        said = str(error)
        if "\n" in said or not said.isprintable():
            raise LawError(f"{use}: a message that is not one printable line: {said[:200]!r}") from error
        return said
    return ""


def _look_up(cache: Cache, arch: str) -> None:
    found = cache.lookup(stand_in_request(arch))
    if found is not None and not is_right(found):
        raise LawError(f"a look-up for {arch} gives another kernel")


def _open(victim: Artifact) -> None:
    opened = open_artifact(victim.path)
    Kernel(opened)


def _build(cache: Cache, arch: str) -> None:
    if not is_right(build(stand_in_request(arch), cache)):
        raise LawError(f"a build for {arch} gives another kernel")


USES: Mapping[str, Callable[[Cache, Artifact], object]] = {
    "list": lambda cache, victim: [_manifest(entry) for entry in cache.entries()],
    "info": lambda cache, victim: cache.info(),
    "explain a miss": lambda cache, victim: explain_miss(cache, stand_in_request("sm_89")),
    "look up the victim": lambda cache, victim: _look_up(cache, VICTIM),
    "look up the bystander": lambda cache, victim: _look_up(cache, BYSTANDER),
    "open": lambda cache, victim: _open(victim),
    "build the victim": lambda cache, victim: _build(cache, VICTIM),
    "build the bystander": lambda cache, victim: _build(cache, BYSTANDER),
    "verify": lambda cache, victim: cache.verify(),
    "prune": lambda cache, victim: cache.prune(),
}


def _manifest(entry: object) -> object:
    """One bad entry does not stop a list."""
    try:
        return entry.manifest()  # type: ignore[attr-defined]
    except CutegenError as error:
        return error


def _in_place_of(name: str, cache: Cache, rng: random.Random) -> None:
    """A file, a FIFO's stand-in, or a dangling link where the cache has a folder of its own."""
    path = cache.directory / name
    if path.is_dir():
        shutil.rmtree(path)
    rng.choice((path.touch, lambda: path.symlink_to("nowhere"), lambda: path.symlink_to(path)))()


def _strangers(cache: Cache, rng: random.Random) -> None:
    """Names that are almost those of the cache."""
    for name in (
        "zz",
        "AB",
        ".lock",
        "00/" + "0" * 64,
        "00/." + "0" * 64 + "-x",
        "quarantine/x",
        "locks/x.lock",
        "\udcff",
    ):
        path = cache.directory / name
        path.mkdir(parents=True) if rng.random() < 0.5 else (path.parent.mkdir(exist_ok=True), path.touch())


def _lock_is_a_folder(cache: Cache, rng: random.Random) -> None:
    for lock in (cache.directory / "locks").glob("*.lock"):
        lock.unlink()
        lock.mkdir()


AROUND: Mapping[str, Callable[[Cache, random.Random], None]] = {
    "locks": lambda cache, rng: _in_place_of("locks", cache, rng),
    "quarantine": lambda cache, rng: _in_place_of("quarantine", cache, rng),
    "strangers": _strangers,
    "lock is a folder": _lock_is_a_folder,
}
