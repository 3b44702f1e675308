"""Tables of a build's results, and of the reasons for a cache miss: for people and for programs."""

from dataclasses import asdict
from typing import Any

from cutegen.build.artifact import PLAN, Artifact, InstructionCounts
from cutegen.build.cache import Miss
from cutegen.support.typed_json import parse_object, read
from cutegen.support.words import aligned, wrapped

SHOWN_DIFF_LINES = 40
NOT_KEPT = "none: the cache cannot be written; --out FOLDER keeps the kernel"


def miss_lines(miss: Miss, *, with_source: bool) -> list[str]:
    """Explain why a lookup found nothing."""
    if miss.nearest is None:
        return ["Not in the cache: no kernel of this name was built here before"]
    lines = [f"Not in the cache: nearest is {miss.nearest.key[:16]}, which differs in"]
    lines += aligned(
        [(d.field, f"cached {_short(d.cached)}, requested {_short(d.requested)}") for d in miss.differences]
    )
    if with_source and miss.source_diff:
        shown = miss.source_diff[:SHOWN_DIFF_LINES]
        hidden = len(miss.source_diff) - len(shown)
        lines += ["", "Difference of the sources", *shown, *([f"{hidden} more lines"] if hidden else [])]
    return lines


def miss_table(miss: Miss | None) -> dict[str, Any] | None:
    """Return the same for programs."""
    if miss is None:
        return None
    nearest = None if miss.nearest is None else miss.nearest.key
    return {
        "nearest": nearest,
        "differences": [asdict(difference) for difference in miss.differences],
        "source_diff": list(miss.source_diff),
    }


def _short(value: str) -> str:
    """Return a digest by its first digits, anything else unchanged."""
    return value[:12] if len(value) == 64 and value.isalnum() else value


def build_lines(artifact: Artifact, title: str, miss: Miss | None, *, with_source: bool) -> list[str]:
    """Show a build for people, and for a miss its reason."""
    manifest = artifact.manifest
    facts = [
        ("key", artifact.key),
        ("path", str(artifact.path) if artifact.lasts else NOT_KEPT),
        ("registers", f"{manifest.registers} a thread"),
        ("spills", f"{manifest.spill_bytes:,} bytes per thread"),
        *((name, f"{digest.size_bytes:,} bytes") for name, digest in sorted(manifest.files.items())),
    ]
    lines = [f"{title}: {'hit, from the cache' if artifact.hit else 'miss, compiled'}", *aligned(facts)]
    lines += [*remarks(artifact), "", *instruction_lines(manifest.instructions)]
    if manifest.warnings:
        lines += ["", "Warnings", *(x for text in manifest.warnings for x in wrapped(text, first="  ", rest="    "))]
    if miss is not None:
        lines += ["", *miss_lines(miss, with_source=with_source)]
    return lines


def remarks(artifact: Artifact) -> list[str]:
    """Return the remarks of the plan on its target, a sentence each."""
    file = f"{artifact.path}/{PLAN}"
    found = parse_object(artifact.plan_json, file).get("remarks", [])
    return [read(str, text, file, "remarks") for text in found]


def instruction_lines(counts: InstructionCounts) -> list[str]:
    """Write the instructions of the PTX text and the plan's predictions."""
    opcodes = sorted(counts.predicted.keys() | counts.emitted.keys())
    rows = [(name, f"{counts.predicted.get(name, 0):,}", f"{counts.emitted.get(name, 0):,}") for name in opcodes]
    header = ("opcode", "predicted", "emitted")
    return ["Instructions in the PTX text", *aligned(rows, header=header, right={1, 2})]


def instruction_table(counts: InstructionCounts) -> dict[str, Any]:
    """Return the same for programs."""
    return {"predicted": dict(counts.predicted), "emitted": dict(counts.emitted)}


def build_table(artifact: Artifact, target: str, miss: Miss | None) -> dict[str, Any]:
    """Return a build for programs."""
    manifest = artifact.manifest
    return {
        "key": artifact.key,
        "path": str(artifact.path) if artifact.lasts else None,
        "hit": artifact.hit,
        "target": target,
        "remarks": remarks(artifact),
        "registers": manifest.registers,
        "spills": manifest.spill_bytes,
        "instructions": instruction_table(manifest.instructions),
        "files": {name: digest.size_bytes for name, digest in sorted(manifest.files.items())},
        "warnings": list(manifest.warnings),
        "miss": miss_table(miss),
    }
