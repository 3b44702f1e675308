"""From a kernel's source to a verified artifact on disk: key, cache, compilation in a child process, checks.

An artifact is a folder `<cache>/<2 hex>/<key>/` of five files: `kernel.py`, `plan.json`, `kernel.ptx`, `kernel.cubin`
and `manifest.json`. There is no host code and no pickle in it, so an entry can never run anything on the host.

    request.py    a request, and its key
    builder.py    the build: look up, else compile, check, publish
    compiler.py   runs child.py, the only file that leads to `cutlass`, under a time limit
    emission.py   instructions in the PTX against the plan's
    cubin.py      registers and local memory from the ELF; disassembly
    artifact.py   an artifact's files and its description of itself, read and verified, or written
    pack_file.py  many artifacts in one file, with the requests that each serves
    cache.py      the folder of artifacts: locks, atomic publishing, quarantine, eviction; why a lookup found nothing
    record.py     the kernels that a program requests, as a list for packs
    tables.py     the results of a build, as text
    disk.py       files that others may have placed: read within bounds, removed with a message; temporary folders

Events that deserve attention but are not errors are logged as one line to the logger `cutegen.build`.
"""

from cutegen.build.artifact import Artifact, Digest, InstructionCounts, Manifest, open_artifact
from cutegen.build.builder import build
from cutegen.build.cache import Cache, CacheInfo, Damage, Entry, Miss, Removed, explain_miss
from cutegen.build.cubin import disassemble, find_nvdisasm
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
