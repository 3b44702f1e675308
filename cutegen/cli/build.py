"""`cutegen build`: find the kernel in the cache, or compile it."""

from __future__ import annotations

from dataclasses import asdict
from typing import Annotated, Any

import typer

from cutegen.api import build_request
from cutegen.build import Artifact, Cache, Manifest, Miss, explain_miss
from cutegen.build import build as build_artifact
from cutegen.cli.options import (
    ArchOption,
    BatchOption,
    JsonOption,
    OutOption,
    ProblemOption,
    SpecArgument,
    named_problem,
)
from cutegen.cli.output import Answer
from cutegen.spec import load_spec
from cutegen.support.columns import aligned, wrapped

SHOWN_DIFF_LINES = 40


def build(
    spec: SpecArgument,
    problem: ProblemOption = None,
    batch: BatchOption = None,
    arch: ArchOption = None,
    with_source: Annotated[
        bool, typer.Option("--explain-miss", help="Show how the nearest cached source differs.")
    ] = False,
    out: OutOption = None,
    json: JsonOption = False,
) -> None:
    """Compiles it, or finds it: key, path, sizes, registers, spills, predicted against emitted instructions."""
    answer = Answer.asked(json=json, out=out)
    loaded, cache = load_spec(spec), Cache.from_environment()
    request = build_request(loaded, arch, problem=named_problem(problem, batch))
    miss = None if cache.holds(request.inputs.key) else explain_miss(cache, request)
    artifact = build_artifact(request, cache)
    answer.give(
        lambda: _table(artifact, request.target.name, miss),
        lambda: _lines(artifact, f"{loaded.name} for {request.target.name}", miss, with_source),
    )


def miss_lines(miss: Miss, *, with_source: bool) -> list[str]:
    """Why a look-up found nothing."""
    if miss.nearest is None:
        return ["Not in the cache: no kernel of this name was built here before"]
    lines = [f"Not in the cache: nearest is {miss.nearest.key[:16]}, which differs in"]
    lines += aligned(
        [(d.field, f"cached {_short(d.cached)}, requested {_short(d.requested)}") for d in miss.differences]
    )
    if with_source and miss.source_diff:
        shown = miss.source_diff[:SHOWN_DIFF_LINES]
        hidden = len(miss.source_diff) - len(shown)
        lines += ["", "Difference of the sources", *shown, *([f"and {hidden} lines more"] if hidden else [])]
    return lines


def miss_table(miss: Miss | None) -> dict[str, Any] | None:
    """The same for JSON."""
    if miss is None:
        return None
    nearest = None if miss.nearest is None else miss.nearest.key
    return {
        "nearest": nearest,
        "differences": [asdict(difference) for difference in miss.differences],
        "source_diff": list(miss.source_diff),
    }


def _short(value: str) -> str:
    """A digest by its first digits, anything else as it is."""
    return value[:12] if len(value) == 64 and value.isalnum() else value


def _lines(artifact: Artifact, title: str, miss: Miss | None, with_source: bool) -> list[str]:
    manifest = artifact.manifest
    facts = [
        ("key", artifact.key),
        ("path", str(artifact.path)),
        ("registers", f"{manifest.registers} a thread"),
        ("spills", f"{manifest.spill_bytes:,} bytes a thread"),
        *((name, f"{digest.size_bytes:,} bytes") for name, digest in sorted(manifest.files.items())),
    ]
    lines = [f"{title}: {'hit, from the cache' if artifact.hit else 'miss, compiled'}", *aligned(facts)]
    lines += ["", "Instructions in the PTX text", *_instructions(manifest)]
    if manifest.warnings:
        lines += ["", "Warnings", *(x for text in manifest.warnings for x in wrapped(text, first="  ", rest="    "))]
    if miss is not None:
        lines += ["", *miss_lines(miss, with_source=with_source)]
    return lines


def _instructions(manifest: Manifest) -> list[str]:
    predicted, emitted = manifest.instructions.predicted, manifest.instructions.emitted
    opcodes = sorted(predicted.keys() | emitted.keys())
    rows = [(opcode, f"{predicted.get(opcode, 0):,}", f"{emitted.get(opcode, 0):,}") for opcode in opcodes]
    return aligned(rows, header=("opcode", "predicted", "emitted"), right={1, 2})


def _table(artifact: Artifact, target: str, miss: Miss | None) -> dict[str, Any]:
    manifest = artifact.manifest
    return {
        "key": artifact.key,
        "path": str(artifact.path),
        "hit": artifact.hit,
        "target": target,
        "registers": manifest.registers,
        "spills": manifest.spill_bytes,
        "instructions": {
            "predicted": dict(manifest.instructions.predicted),
            "emitted": dict(manifest.instructions.emitted),
        },
        "files": {name: digest.size_bytes for name, digest in sorted(manifest.files.items())},
        "warnings": list(manifest.warnings),
        "miss": miss_table(miss),
    }


def register(app: typer.Typer) -> None:
    """Add this verb."""
    app.command()(build)
