"""`manifest.json`: what is written is read back, and not one byte of it can change unnoticed."""

from __future__ import annotations

import json

import pytest

from cutegen.build import Digest, InstructionCounts, KeyInputs, Manifest
from cutegen.build.request import FORMAT_VERSION
from cutegen.errors import ArtifactError

INPUTS = KeyInputs(
    format_version=FORMAT_VERSION,
    source_sha256="ab" * 32,
    gpu_arch="sm_80",
    dsl_distributions=("nvidia-cutlass-dsl==4.8.1",),
    compile_options=("A=1",),
)
MANIFEST = Manifest(
    format_version=FORMAT_VERSION,
    key=INPUTS.key,
    entry="gemm_0",
    inputs=INPUTS,
    files={"kernel.ptx": Digest.of(b"ptx"), "kernel.cubin": Digest.of(b"")},
    registers=128,
    spill_bytes=16,
    instructions=InstructionCounts({"mma.sync.x": 4}, {"mma.sync.x": 8}),
    warnings=("mma.sync.x: 4 predicted, 8 emitted",),
    created="2026-01-02T03:04:05+00:00",
)


def test_round_trip() -> None:
    assert Manifest.from_bytes(MANIFEST.to_bytes()) == MANIFEST


def test_every_flipped_bit_of_every_byte_is_noticed() -> None:
    data = MANIFEST.to_bytes()
    for position in range(len(data)):
        for bit in (0, 3, 5):
            damaged = bytearray(data)
            damaged[position] ^= 1 << bit
            with pytest.raises(ArtifactError, match=r"manifest\.json"):
                Manifest.from_bytes(bytes(damaged))


def test_every_truncation_is_noticed() -> None:
    data = MANIFEST.to_bytes()
    for length in range(len(data)):
        with pytest.raises(ArtifactError):
            Manifest.from_bytes(data[:length])


@pytest.mark.parametrize("data", [b"", b"[]", b"{}", b"null", b"\xff\xfe", b'{"format_version": 1}'])
def test_what_is_no_manifest_is_refused(data: bytes) -> None:
    with pytest.raises(ArtifactError):
        Manifest.from_bytes(data)


def test_another_format_version_says_so() -> None:
    table = json.loads(MANIFEST.to_bytes())
    table["format_version"] = FORMAT_VERSION - 1
    with pytest.raises(
        ArtifactError,
        match=f"found format version {FORMAT_VERSION - 1}; expected {FORMAT_VERSION}; rebuild the kernel",
    ):
        Manifest.from_bytes(json.dumps(table).encode())


def test_an_added_field_is_refused() -> None:
    table = json.loads(MANIFEST.to_bytes())
    with pytest.raises(ArtifactError):
        Manifest.from_bytes(json.dumps({"extra": 1, **table}).encode())
