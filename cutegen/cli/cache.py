"""`cutegen cache`: what is cached, how large it is, whether it is sound, and why a look-up missed."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any

import typer

from cutegen.build import Cache, Entry
from cutegen.cli.build import miss_lines, miss_table
from cutegen.cli.options import ArchOption, JsonOption, OutOption
from cutegen.cli.output import Answer
from cutegen.environment import parse_size_bytes
from cutegen.errors import ArtifactError, CheckError
from cutegen.plan.columns import aligned, wrapped
from cutegen.spec import load_spec
from cutegen.straight_line import build_request

SHOWN_KEY_DIGITS = 16

verbs = typer.Typer(help="What is cached, why a look-up missed, sizes.")


@verbs.command("list")
def list_entries(out: OutOption = None, json: JsonOption = False) -> None:
    """Every entry, the one used last first."""
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
            metavar="[SPEC]", help="Say also whether this one is cached, and if not, why.", show_default=False
        ),
    ] = None,
    arch: ArchOption = None,
    out: OutOption = None,
    json: JsonOption = False,
) -> None:
    """Where the cache is, how much is in it; with a spec, why a look-up misses."""
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
    if spec is not None:
        more_lines, table["lookup"] = _look_up(cache, spec, arch)
        lines += ["", *more_lines]
    answer.give(lambda: table, lambda: lines)


def _look_up(cache: Cache, spec: str, arch: str | None) -> tuple[list[str], dict[str, Any]]:
    request = build_request(load_spec(spec), arch)
    key = request.inputs.key
    if cache.path(key).exists():
        return [f"{spec}: in the cache under {key}"], {"key": key, "hit": True, "miss": None}
    miss = cache.explain_miss(request)
    return miss_lines(miss, with_source=True), {"key": key, "hit": False, "miss": miss_table(miss)}


@verbs.command()
def verify(out: OutOption = None, json: JsonOption = False) -> None:
    """Check every file of every entry; damaged entries are set aside. Exit 1 if there are any."""
    answer = Answer.asked(json=json, out=out)
    cache = Cache.from_environment()
    count, damages = len(cache.entries()), cache.verify()
    table = [{"path": str(damage.path), "problem": damage.problem} for damage in damages]
    lines = [x for damage in damages for x in wrapped(damage.problem, first="  ", rest="    ")]
    answer.give(
        lambda: {"checked": count, "damaged": table},
        lambda: [f"{count} entries checked, {len(damages)} damaged", *lines],
    )
    if damages:
        raise CheckError(
            f"{len(damages)} of {count} cache entries are damaged and were set aside; they will be built again"
        )


@verbs.command()
def prune(
    size: Annotated[
        str | None,
        typer.Option(
            "--size",
            metavar="SIZE",
            help="Down to this size, as in 500MB; default: the cache's own bound.",
            show_default=False,
        ),
    ] = None,
    out: OutOption = None,
    json: JsonOption = False,
) -> None:
    """Remove the entries that were not used for longest, until the rest fits."""
    answer = Answer.asked(json=json, out=out)
    cache = Cache.from_environment()
    _say_removed(cache.prune(None if size is None else parse_size_bytes(size, "--size")), answer)


@verbs.command()
def clear(out: OutOption = None, json: JsonOption = False) -> None:
    """Remove every entry."""
    answer = Answer.asked(json=json, out=out)
    _say_removed(Cache.from_environment().clear(), answer)


@verbs.command()
def path(out: OutOption = None, json: JsonOption = False) -> None:
    """Print the cache's folder."""
    answer = Answer.asked(json=json, out=out)
    directory = Cache.from_environment().directory
    answer.give(lambda: {"path": str(directory)}, lambda: [str(directory)])


def _say_removed(entries: tuple[Entry, ...], answer: Answer) -> None:
    size_bytes = sum(entry.size_bytes for entry in entries)
    answer.give(
        lambda: {"removed": [entry.key for entry in entries], "bytes": size_bytes},
        lambda: [f"{len(entries)} entries removed, {size_bytes:,} bytes"],
    )


def _described(entry: Entry) -> dict[str, Any]:
    """An entry's row; one whose manifest cannot be read is listed all the same."""
    try:
        manifest = entry.manifest()
        kernel, arch = manifest.entry, manifest.inputs.gpu_arch
    except ArtifactError:
        kernel, arch = "unreadable", ""
    used = time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(entry.last_used_s))
    return {
        "key": entry.key,
        "entry": kernel,
        "arch": arch,
        "bytes": entry.size_bytes,
        "last_used": used,
        "path": str(Path(entry.path)),
    }


def register(app: typer.Typer) -> None:
    """Add this verb and what can be done with it."""
    app.add_typer(verbs, name="cache")
