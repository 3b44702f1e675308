"""The build: look up, else compile, check the result, and publish it."""

import atexit
import logging
import os
from collections.abc import Iterable, Iterator, Mapping
from datetime import UTC, datetime

from cutegen.build import artifact
from cutegen.build.cache import Cache
from cutegen.build.compiler import CompilerOutput, compile_source
from cutegen.build.cubin import resource_usage
from cutegen.build.disk import TemporaryFolder, workspace
from cutegen.build.emission import check_emission, check_mbarriers, count_instructions, count_mbarriers
from cutegen.build.request import BuildRequest
from cutegen.errors import CacheError, EmissionError

DEFAULT_TIMEOUT_S = 120.0

FENCED_BY_ITSELF = "C7519"
"""ptxas: "warpgroup.arrive is injected ... to allow use of registers in GMMA"."""
EPILOGUE_SPILLS_BYTES = 64
"""Spill that is allowed when a chain begins its next part before it has stored the last one: some addresses, once per
tile. Sums that do not fit spill far more."""

_log = logging.getLogger("cutegen.build")


def build(request: BuildRequest, cache: Cache, *, timeout_s: float = DEFAULT_TIMEOUT_S) -> artifact.Artifact:
    """Return the artifact for `request`: from the cache, or compiled within `timeout_s` and published there.

    If the cache cannot be written, one warning is logged and the artifact is kept in a temporary folder until the
    process ends. Raises CompileError if the compiler fails, EmissionError if it emitted another kind of instruction
    than planned, CacheError if no temporary folder can be written either.
    """
    if hit := cache.lookup(request):
        return hit
    try:
        lock = cache.lock(request.inputs.key, wait_s=2 * timeout_s)
    except CacheError as error:
        return _keep_uncached(_make(request, timeout_s), error)
    with lock:
        if hit := cache.lookup(request):  # another process built it while this one waited
            return hit
        content = _make(request, timeout_s)
        try:
            return cache.publish(content)
        except CacheError as error:
            return _keep_uncached(content, error)


def _make(request: BuildRequest, timeout_s: float) -> artifact.Content:
    with workspace() as directory:
        output = compile_source(
            request.source,
            request.target.gpu_arch,
            directory,
            timeout_s=timeout_s,
            remarks=_multiplies_by_wgmma(request.instructions),
        )
        try:
            return inspect_output(request, output)
        except EmissionError as error:
            raise EmissionError(f"{request.source.entry}: {error}; the PTX is {directory / artifact.PTX}") from error


def inspect_output(request: BuildRequest, output: CompilerOutput) -> artifact.Content:
    """Return the artifact of the compiler's output, checked against the plan. Raises EmissionError."""
    source = request.source
    emitted = count_instructions(output.ptx.decode(), source.entry, request.instructions)
    usage = resource_usage(output.cubin, source.entry)
    warnings = (
        *check_emission(request.instructions, emitted, edited=request.edited),
        *_mbarriers(request, output.ptx.decode()),
        *_spills(request, usage.stack_bytes, emitted),
        *_given_up(request, output.of_wgmma),
    )
    files = {
        artifact.SOURCE: source.text.encode(),
        artifact.PLAN: request.plan_json.encode(),
        artifact.PTX: output.ptx,
        artifact.CUBIN: output.cubin,
    }
    inputs = request.inputs
    manifest = artifact.Manifest(
        format_version=inputs.format_version,
        key=inputs.key,
        entry=source.entry,
        inputs=inputs,
        files={name: artifact.Digest.of(data) for name, data in files.items()},
        registers=usage.registers,
        spill_bytes=usage.stack_bytes,
        instructions=artifact.InstructionCounts(dict(request.instructions), emitted),
        warnings=warnings,
        created=datetime.now(UTC).isoformat(timespec="seconds"),
    )
    return artifact.Content(manifest, {**files, artifact.MANIFEST: manifest.to_bytes()})


def _mbarriers(request: BuildRequest, ptx: str) -> tuple[str, ...]:
    """Compare the mbarriers in the PTX with the plan's."""
    if request.mbarriers is None:
        return ()
    return check_mbarriers(request.mbarriers, count_mbarriers(ptx), edited=request.edited)


def _spills(request: BuildRequest, spilled_bytes: int, emitted: Mapping[str, int]) -> Iterator[str]:
    """Warn that a wgmma kernel spills: sums would go through memory, for which wgmma waits.

    Raises EmissionError if the plan chose the tile, and so should have left enough registers, for more than the few
    registers that spill between two main loops.
    """
    if not spilled_bytes or not _multiplies_by_wgmma(emitted):
        return
    found = f"{spilled_bytes:,} bytes of registers spill per thread"
    if request.tile_is_chosen and spilled_bytes > EPILOGUE_SPILLS_BYTES:
        raise EmissionError(f"{found}, with a tile that cutegen chose; a smaller tile.cta needs fewer")
    yield f"{found}; a smaller tile.cta needs fewer"


def _given_up(request: BuildRequest, messages: Iterable[tuple[str, str]]) -> Iterator[str]:
    """Warn about the assembler's messages on `wgmma`: one waits for another, or for a reader of its registers.

    Fences on registers that the assembler moved itself cost nothing. Raises EmissionError if the plan chose the tile.
    """
    for code, message in messages:
        if code == FENCED_BY_ITSELF:
            continue
        if request.tile_is_chosen:
            raise EmissionError(f"the assembler reports on wgmma: {message} ({code})")
        yield f"the assembler reports on wgmma: {message} ({code})"


def _multiplies_by_wgmma(instructions: Iterable[str]) -> bool:
    return any(opcode.startswith("wgmma.") for opcode in instructions)


def _keep_uncached(content: artifact.Content, reason: CacheError) -> artifact.Artifact:
    _log.warning("%s; this build is not cached", reason)
    try:
        folder = TemporaryFolder.make("uncached")
        atexit.register(_remove_at_exit, folder, os.getpid())
        content.write(folder.path)
    except OSError as error:
        raise CacheError(f"{reason}; a temporary artifact cannot be written either: {error}") from error
    return artifact.Artifact(folder.path, content, hit=False, lasts=False)


def _remove_at_exit(folder: TemporaryFolder, owner: int) -> None:
    if os.getpid() == owner:  # a forked process runs the same exit functions
        folder.remove()
