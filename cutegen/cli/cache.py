"""`cutegen cache`: what is cached, how large it is, whether it is intact, and why a lookup missed."""

import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any

import typer

from cutegen.api import build_request
from cutegen.build import Cache, Damage, Entry, Removed, explain_miss
from cutegen.build.tables import miss_lines, miss_table
from cutegen.cli.options import ArchOption, JsonOption, OutOption, named_spec
from cutegen.cli.output import Answer
from cutegen.cli.parsing import Verbs
from cutegen.cli.verbs import VERBS
from cutegen.errors import ArtifactError, CacheError, CheckError
from cutegen.support.environment import parse_size_bytes
from cutegen.support.words import aligned, wrapped

SHOWN_KEY_DIGITS = 16

verbs = Verbs(help=VERBS["cache"].summary)


@verbs.command("list")
def list_entries(out: OutOption = None, json: JsonOption = False) -> None:
    """Lists every entry, most recently used first."""
    answer = Answer.asked(json=json, out=out)
    rows = [_described(entry) for entry in Cache.from_environment().entries()]
    answer.give(lambda: {"entries": rows}, lambda: _entry_lines(rows))


def _entry_lines(rows: Sequence[Mapping[str, Any]]) -> list[str]:
    if not rows:
        return ["the cache is empty"]
    cells = [(x["key"][:SHOWN_KEY_DIGITS], x["entry"], x["arch"], f"{x['bytes']:,}", x["last_used"]) for x in rows]
    return aligned(cells, header=("key", "kernel", "arch", "bytes", "last used"), right={3}, indent=0)


@verbs.command()
def info(
    spec: Annotated[
        str | None,
        typer.Argument(
            metavar="[SPEC]", help="Also say whether this spec is cached, and if not, why.", show_default=False
        ),
    ] = None,
    arch: ArchOption = None,
    out: OutOption = None,
    json: JsonOption = False,
) -> None:
    """Shows where the cache is and how much it holds; with a spec, why a lookup misses."""
    answer = Answer.asked(json=json, out=out)
    cache = Cache.from_environment()
    found = cache.info()
    table: dict[str, Any] = {
        "path": str(found.directory),
        "entries": found.entries,
        "bytes": found.size_bytes,
        "limit_bytes": found.size_limit_bytes,
        "quarantined": found.quarantined,
        "writable": found.writable,
        "problem": found.problem or None,
    }
    lines = aligned(
        [
            ("path", str(found.directory)),
            ("entries", f"{found.entries:,}"),
            ("size", f"{found.size_bytes:,} of {found.size_limit_bytes:,} bytes"),
            ("quarantined", f"{found.quarantined:,}"),
            ("writable", "yes" if found.writable else "no"),
        ],
    )
    lines += wrapped(found.problem, first="", rest="  ") if found.problem else []
    if spec is not None:
        more_lines, table["lookup"] = _look_up(cache, spec, arch)
        lines += ["", *more_lines]
    answer.give(lambda: table, lambda: lines)


def _look_up(cache: Cache, spec: str, arch: str | None) -> tuple[list[str], dict[str, Any]]:
    request = build_request(named_spec(spec), arch)
    key = request.inputs.key
    if cache.holds(key):
        return wrapped(f"{spec}: in the cache under {key}", rest="  "), {"key": key, "hit": True, "miss": None}
    miss = explain_miss(cache, request)
    return miss_lines(miss, with_source=True), {"key": key, "hit": False, "miss": miss_table(miss)}


@verbs.command()
def verify(out: OutOption = None, json: JsonOption = False) -> None:
    """Checks every file of every entry and sets damaged entries aside if possible. Exit 1 if any is damaged."""
    answer = Answer.asked(json=json, out=out)
    cache = Cache.from_environment()
    count, damages = len(cache.entries()), cache.verify()
    texts = [f"{damage.problem}; {damage.outcome}" for damage in damages]
    answer.give(
        lambda: {"checked": count, "damaged": [_damage_table(damage) for damage in damages]},
        lambda: [
            f"{count} entries checked, {len(damages)} damaged",
            *(x for text in texts for x in wrapped(text, first="  ", rest="    ")),
        ],
    )
    if damages:
        raise CheckError(_verdict(count, damages))


def _damage_table(damage: Damage) -> dict[str, Any]:
    return {
        "path": str(damage.path),
        "problem": damage.problem,
        "set_aside": damage.set_aside,
        "outcome": damage.outcome,
    }


def _verdict(count: int, damages: tuple[Damage, ...]) -> str:
    staying = [damage for damage in damages if not damage.set_aside]
    text = f"{len(damages)} of {count} cache entries are damaged"
    if len(staying) < len(damages):
        text += f"; {len(damages) - len(staying)} set aside, to be rebuilt"
    if staying:
        text += f"; {len(staying)} still in the cache: {staying[0].path}: {staying[0].outcome}"
    return text


@verbs.command()
def prune(
    size: Annotated[
        str | None,
        typer.Option(
            "--size",
            metavar="SIZE",
            help="Target size, such as 500MB; default: the cache's own limit.",
            show_default=False,
        ),
    ] = None,
    out: OutOption = None,
    json: JsonOption = False,
) -> None:
    """Removes the least recently used entries until the rest fits."""
    answer = Answer.asked(json=json, out=out)
    cache = Cache.from_environment()
    _say_removed(cache.prune(None if size is None else parse_size_bytes(size, "--size")), answer)


@verbs.command()
def clear(out: OutOption = None, json: JsonOption = False) -> None:
    """Removes every entry. Exit 3 if one remains."""
    answer = Answer.asked(json=json, out=out)
    _say_removed(Cache.from_environment().clear(), answer)


@verbs.command()
def path(out: OutOption = None, json: JsonOption = False) -> None:
    """Prints the cache folder."""
    answer = Answer.asked(json=json, out=out)
    directory = Cache.from_environment().directory
    answer.give(lambda: {"path": str(directory)}, lambda: [str(directory)])


def _say_removed(removed: Removed, answer: Answer) -> None:
    """Report what was removed. Raises CacheError if something remains."""
    size_bytes = sum(entry.size_bytes for entry in removed.entries)
    keys = [entry.key for entry in removed.entries]
    answer.give(
        lambda: {"removed": keys, "bytes": size_bytes, "failures": list(removed.failures)},
        lambda: [f"{len(keys)} entries removed, {size_bytes:,} bytes"],
    )
    if removed.failures:
        raise CacheError(f"{len(removed.failures)} cannot be removed; the first: {removed.failures[0]}")


def _described(entry: Entry) -> dict[str, Any]:
    """Return an entry's row; an entry with an unreadable manifest is listed too."""
    try:
        manifest = entry.manifest()
        kernel, arch = manifest.entry, manifest.inputs.gpu_arch
    except ArtifactError:
        kernel, arch = "unreadable", ""
    return {
        "key": entry.key,
        "entry": kernel,
        "arch": arch,
        "bytes": entry.size_bytes,
        "last_used": _stamp(entry.last_used_s),
        "path": str(Path(entry.path)),
    }


def _stamp(seconds: float) -> str:
    try:
        return time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(seconds))
    except (OverflowError, ValueError, OSError):  # file systems can store times that no calendar can show
        return "unknown"
