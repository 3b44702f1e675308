"""Executes what `recording.py` has recorded: launches of kernels that the CuTe DSL compiled, with their parameters.

A pointer in a parameter becomes the array that stands for its tensor, and a tensor map, which the DSL's host code
encodes by itself, a `TensorMap`. Its fields: words 0 and 1 have the address, word 2 the rank, the type and the swizzle,
words 3 to 7 strides in units of 16 bytes, words 8 to 12 extents minus one, then bytes of the box minus one.
"""

from __future__ import annotations

import importlib.metadata
import pickle
import re
import shutil
import struct
import subprocess
import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np

from cutegen.ptx import LaunchReport, Program, TensorMap

Array = np.ndarray[Any, Any]
_APART_BYTES = 1 << 36
"""Tensors lie further apart than any is long."""
_MAP_BYTES, _MAP_ALIGN = 128, 64
_SWIZZLES = {0: 0, 1: 32, 2: 64, 3: 128}
_ELEMENTS = {0: (1, None), 1: (2, None), 6: (2, None), 7: (4, None), 10: (2, None), 11: (1, 4)}
"""Bytes of an item, and bits of an element if they are fewer, by code: u8, u16, f16, f32, bf16, u4."""


@lru_cache(maxsize=4)
def _parsed(ptx: str) -> Program:
    """The program, which launches in several orders share."""
    return Program.parse(ptx)


@dataclass(frozen=True, slots=True)
class Recorded:
    """A kernel's PTX, its launches as recorded, and the addresses of the tensors, by name."""

    ptx: str
    launches: list[dict[str, Any]]
    places: dict[str, int]

    @classmethod
    def load(cls, path: Path) -> Recorded:
        """Reads what `Recording.save` wrote."""
        return cls(**pickle.loads(path.read_bytes()))

    def without(self, pattern: str) -> Iterator[tuple[str, Recorded]]:
        """Each line that `pattern` matches, and the kernel without it."""
        lines = self.ptx.split("\n")
        for i, line in enumerate(lines):
            if re.search(pattern, line):
                yield line.strip(), replace(self, ptx="\n".join(lines[:i] + lines[i + 1 :]))

    def launch(self, arrays: Mapping[str, Array], **options: Any) -> list[LaunchReport]:
        """Executes all launches with `arrays` in the places of the tensors; one report of each."""
        return [self._launch(each, arrays, **options) for each in self.launches]

    def _launch(self, given: dict[str, Any], arrays: Mapping[str, Array], **options: Any) -> LaunchReport:
        program = _parsed(self.ptx)
        declared = program.entries[given["entry"]].parameters
        arguments = [self._argument(raw, each, arrays) for raw, each in zip(given["parameters"], declared, strict=True)]
        return program.launch(
            given["entry"],
            grid=given["grid"],
            block=given["block"],
            cluster=given["cluster"] if given["cluster"] != (1, 1, 1) else None,
            args=arguments,
            dynamic_smem_bytes=given["smem_bytes"],
            **options,
        )

    def _at(self, address: int, arrays: Mapping[str, Array]) -> Array | None:
        """The bytes of a tensor from an address on."""
        for name, first in self.places.items():
            if first <= address < first + _APART_BYTES:
                return arrays[name].reshape(-1).view(np.uint8)[address - first :]
        return None

    def _argument(self, raw: bytes, declared: Any, arrays: Mapping[str, Array]) -> Any:
        if len(raw) == _MAP_BYTES and declared.align_bytes == _MAP_ALIGN:
            return self._map(raw, arrays)
        words = self._words(raw, arrays)
        if declared.count is not None or not isinstance(words, bytes):
            return words
        return np.frombuffer(words, declared.type.dtype)[0].item()

    def _words(self, raw: bytes, arrays: Mapping[str, Array]) -> Any:
        """A parameter's bytes, with arrays in the places of addresses."""
        parts: list[Any] = []
        at = 0
        while at < len(raw):
            found = (
                self._at(struct.unpack_from("<Q", raw, at)[0], arrays) if at % 8 == 0 and at + 8 <= len(raw) else None
            )
            parts.append(np.uint8(raw[at]) if found is None else found)
            at += 1 if found is None else 8
        if not any(isinstance(part, np.ndarray) for part in parts):
            return raw
        return parts[0] if len(raw) == 8 else tuple(parts)

    def _map(self, raw: bytes, arrays: Mapping[str, Array]) -> TensorMap:
        """A tensor map as the DSL's host code encodes it."""
        words = struct.unpack("<32I", raw)
        array = self._at(words[0] | words[1] << 32, arrays)
        assert array is not None
        return decoded(words, array)


def decoded(words: tuple[int, ...], octets: Array) -> TensorMap:
    """The map of `words` of the tensor that begins with `octets`."""
    rank, (item, element_bits) = (words[2] >> 4 & 7) + 1, _ELEMENTS[words[2] >> 7 & 15]
    box = [(words[13] >> 24) + 1, *((words[14] >> 8 * i & 0xFF) + 1 for i in range(4))]
    return TensorMap(
        array=octets.view(f"u{item}"),
        extents=tuple(word + 1 for word in words[8 : 8 + rank]),
        strides_bytes=tuple(16 * word for word in words[3 : 2 + rank]),
        box=tuple(box[:rank]),
        swizzle_bytes=_SWIZZLES[words[2] >> 13 & 3],
        element_bits=element_bits,
    )


def bf16_of(values: Array) -> Array:
    """The bits of values in bf16, rounded to the nearest."""
    words = values.astype(np.float32).view(np.uint32)
    return (words + 0x7FFF + (words >> 16 & 1) >> 16).astype(np.uint16)


def values_of_bf16(bits: Array) -> Array:
    """The values of bits of bf16 in float64."""
    return (bits.astype(np.uint32) << 16).view(np.float32).astype(np.float64)


def factor_atoms(codes: Array) -> Array:
    """Factors (rows, factors) in atoms of 128 rows and 4 of them, those along K first; NaNs behind the last row."""
    atoms = np.full((-(-len(codes) // 128), codes.shape[1] // 4, 512), 0xFF, np.uint8)
    rows, factors = np.indices(codes.shape)
    atoms[rows // 128, factors // 4, rows % 32 * 16 + rows % 128 // 32 * 4 + factors % 4] = codes
    return atoms


def record(folder: Path, script: str, *arguments: str) -> Path:
    """Runs a script that records launches to `folder`."""
    path = Path(__file__).with_name(script)
    done = subprocess.run([sys.executable, path, folder, *arguments], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return folder


def missing(*packages: str) -> str | None:
    """What a recording needs and is not here: a C compiler, torch, or one of `packages`; None if all is."""
    for package in ("torch", *packages):
        try:
            importlib.metadata.distribution(package)
        except importlib.metadata.PackageNotFoundError:
            return f"the package {package}"
    return "a C compiler" if shutil.which("cc") is None else None
