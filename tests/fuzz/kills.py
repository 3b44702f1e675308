"""Builds that are killed at any moment: what is published is whole, and the next build is right and cleans up."""

from __future__ import annotations

import json
import logging
import os
import signal
import tempfile
import time
from pathlib import Path

from cutegen.build import Cache, build
from tests.fuzz.case import ACCEPTED, FOUND, Case, Outcome, random_of
from tests.fuzz.judge import exception_text
from tests.fuzz.stand_ins import is_right, stand_in_request

LONGEST_BUILD_S = 0.35
"""Of a stand-in, about; some builds end before they are killed."""


def case(seed: int) -> Case:
    """How many build at once, and after how many seconds each is killed; None lets one end."""
    rng = random_of("kills", seed)
    after_s = [round(rng.uniform(0, LONGEST_BUILD_S), 4) for _ in range(rng.choice((1, 1, 2, 3)))]
    if len(after_s) > 1 and rng.random() < 0.5:
        after_s[0] = None  # type: ignore[call-overload]
    return Case(seed, json.dumps({"killed_after_s": after_s, "seed": seed}) + "\n")


def check(case: Case) -> Outcome:
    """Let processes build, kill them, and build again."""
    logging.getLogger("cutegen.build").setLevel(logging.CRITICAL)
    with tempfile.TemporaryDirectory(prefix="fuzz-kills-", ignore_cleanup_errors=True) as folder:
        temporary = Path(folder, "tmp")
        temporary.mkdir()
        os.environ["TMPDIR"] = tempfile.tempdir = str(temporary)
        try:
            return _tried(json.loads(case.text)["killed_after_s"], Cache(Path(folder, "cache")), temporary)
        finally:
            os.environ["TMPDIR"] = tempfile.tempdir = str(Path(folder).parent)


def _tried(killed_after_s: list[float | None], cache: Cache, temporary: Path) -> Outcome:
    build(stand_in_request("sm_90"), cache)
    start_s = time.monotonic()
    builders = {_builder(cache): after_s for after_s in killed_after_s}
    for pid, after_s in sorted(builders.items(), key=lambda item: item[1] or 0.0):
        if after_s is not None:
            time.sleep(max(0.0, start_s + after_s - time.monotonic()))
            os.kill(pid, signal.SIGKILL)
    statuses = {pid: os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) for pid in builders}
    failed = [pid for pid, status in statuses.items() if status not in (0, -signal.SIGKILL)]
    problem = _said(cache, failed[0]).read_text() if failed else _problem(cache, temporary)
    return Outcome(FOUND, f"{problem}: {killed_after_s}") if problem else Outcome(ACCEPTED, str(statuses.values()))


def _problem(cache: Cache, temporary: Path) -> str:
    if damages := cache.verify():
        return f"an entry is damaged: {damages[0].problem}"
    if not build(stand_in_request("sm_90"), cache).hit:
        return "another entry is gone"
    again = build(stand_in_request(), cache)
    if not is_right(again):
        return "the next build is another kernel"
    if halves := [path.name for path in again.path.parent.iterdir() if path.name.startswith(".")]:
        return f"half an entry is left: {halves}"
    return _left_behind(temporary, cache)


def _left_behind(temporary: Path, cache: Cache) -> str:
    """Folders of killed processes go with the next build, once the compilers that they had started are gone."""
    for number in range(40):
        build(stand_in_request("sm_86", f"number = {number}"), cache)
        left = [path.name for path in temporary.iterdir()]
        if not left:
            return ""
        time.sleep(0.1)
    return f"temporary folders are left: {left}"


def _builder(cache: Cache) -> int:
    """A process that builds; its id."""
    if pid := os.fork():
        return pid
    said = "it built another kernel"
    try:
        said = "" if is_right(build(stand_in_request(), cache)) else said
    except Exception as error:
        said = exception_text(error)
    finally:
        _said(cache, os.getpid()).write_text(said)
        os._exit(bool(said))


def _said(cache: Cache, pid: int) -> Path:
    """Where a builder that fails says why."""
    return cache.directory.parent / f"{pid}.txt"
