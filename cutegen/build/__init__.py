"""From a kernel's source to a verified artifact on disk: key, cache, compilation in a child process, checks.

An artifact is a folder `<cache>/<2 hex>/<key>/` of five files: `kernel.py`, `plan.json`, `kernel.ptx`, `kernel.cubin`
and `manifest.json`. There is no host code and no pickle in it, so an entry can never run anything on the host.

    request.py    what is asked, and the key it has
    builder.py    the one straight line: look up, else compile, check, publish
    compiler.py   runs child.py, the only file that leads to `cutlass`, under a time limit
    workspace.py  temporary folders that go when their process goes
    emission.py   instructions in the PTX against the plan's
    cubin.py      registers and local memory out of the ELF; disassembly
    manifest.py   what an artifact says of itself
    artifact.py   an artifact's files, read and verified, or written
    pack_file.py  many artifacts in one file; pack_index.py says what each answers
    cache.py      the folder of artifacts: locks, atomic publishing, quarantine, eviction
    misses.py     why a look-up found nothing
    record.py     the kernels that a program asks for, as a list for packs
    tables.py     what a build found or made, in words
    disk.py       files that somebody else may have put there: read within bounds, removed with a word

Everything worth a person's attention that is not an error is logged as one line to the logger `cutegen.build`.
"""

from __future__ import annotations

from cutegen.build.artifact import Artifact, open_artifact
from cutegen.build.builder import build
from cutegen.build.cache import Cache, CacheInfo, Damage, Entry, Removed
from cutegen.build.cubin import disassemble, find_nvdisasm
from cutegen.build.manifest import Digest, InstructionCounts, Manifest
from cutegen.build.misses import Miss, explain_miss
from cutegen.build.request import BuildRequest, KeyInputs, dsl_distributions

__all__ = [
    "Artifact",
    "BuildRequest",
    "Cache",
    "CacheInfo",
    "Damage",
    "Digest",
    "Entry",
    "InstructionCounts",
    "KeyInputs",
    "Manifest",
    "Miss",
    "Removed",
    "build",
    "disassemble",
    "dsl_distributions",
    "explain_miss",
    "find_nvdisasm",
    "open_artifact",
]
