"""Reads the cubin: registers and local memory per thread, and the disassembly.

A cubin is a 64-bit little-endian ELF image. Its section `.nv.info` lists attributes (EIATTR_* in `cuobjdump -elf`);
those of functions are pairs (symbol index, value). Checked against `ptxas -v` for sm_80, 90a, 100a and 120a.
"""

import shutil
import struct
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from cutegen.build.disk import no_room, workspace
from cutegen.errors import CompileError, OutsideError

_EIATTR_REGCOUNT = 0x2F
_EIATTR_FRAME_SIZE = 0x11
_EIFMT_SVAL = 4  # the attribute carries a 16-bit size and that many bytes; all other formats carry two bytes

_NOT_IN_THE_IMAGE = 8  # SHT_NOBITS of elf.h: a section of zeros, such as shared memory

_SECTION_HEADER = struct.Struct("<IIQQQQIIQQ")
_SYMBOL = struct.Struct("<IBBHQQ")


@dataclass(frozen=True, slots=True)
class ResourceUsage:
    """Per thread: registers, and bytes of local memory (the stack frame, which holds spilled registers)."""

    registers: int
    stack_bytes: int


@dataclass(frozen=True, slots=True)
class _Section:
    name: str
    data: bytes
    link: int


def resource_usage(cubin: bytes, entry: str) -> ResourceUsage:
    """Return registers and local memory of the kernel `entry`. Raises CompileError if `cubin` does not hold it."""
    try:
        sections = _sections(cubin)
        by_name = {section.name: section for section in sections}
        symbols = _symbol_names(by_name[".symtab"], sections)
        values = {
            attribute: value
            for attribute, symbol, value in _function_attributes(by_name[".nv.info"].data)
            if symbols[symbol] == entry
        }
        return ResourceUsage(values[_EIATTR_REGCOUNT], values[_EIATTR_FRAME_SIZE])
    except (struct.error, KeyError, IndexError, ValueError) as error:
        raise CompileError(f"the cubin ({len(cubin)} bytes) holds no resource usage of {entry}: {error!r}") from error


def is_whole(cubin: bytes) -> bool:
    """Return whether the image has all sections and headers that its headers name, to their last bytes.

    What is no image is not judged here: `resource_usage` refuses it.
    """
    try:
        of_programs, of_sections = struct.unpack_from("<QQ", cubin, 32)
        program_bytes, programs, _, sections = struct.unpack_from("<4H", cubin, 54)
        headers = _section_headers(cubin)
    except struct.error:
        return False
    except ValueError:
        return True
    ends = [start + size for _, kind, _, _, start, size, *_ in headers if kind != _NOT_IN_THE_IMAGE]
    ends += [of_programs + programs * program_bytes, of_sections + sections * _SECTION_HEADER.size]
    return max(ends) <= len(cubin)


def disassemble(cubin: bytes) -> str:
    """Return the SASS text of `cubin`, by nvdisasm. Raises OutsideError if nvdisasm is missing or fails."""
    program = find_nvdisasm()
    with workspace() as directory:
        try:
            (directory / "kernel.cubin").write_bytes(cubin)
        except OSError as error:
            raise no_room(error) from error
        command = [program, "--print-code", str(directory / "kernel.cubin")]
        try:
            done = subprocess.run(command, capture_output=True, text=True, check=False)
        except OSError as error:
            raise OutsideError(f"{program} cannot be started: {error.strerror}") from error
    if done.returncode != 0:
        raise OutsideError(f"{program}: exit status {done.returncode}: {done.stderr.strip()}")
    return done.stdout


def find_nvdisasm() -> str:
    """Return the path of the nvdisasm program, from its wheel or PATH. Raises OutsideError."""
    for directory in sys.path:
        for pattern in ("nvidia/cu*/bin/nvdisasm", "nvidia/cuda_nvdisasm/bin/nvdisasm"):
            for program in sorted(Path(directory).glob(pattern), reverse=True):
                return str(program)
    if program_on_path := shutil.which("nvdisasm"):
        return program_on_path
    raise OutsideError("nvdisasm not found; install it with: pip install nvidia-cuda-nvdisasm")


def _section_headers(elf: bytes) -> list[tuple[int, ...]]:
    if elf[:6] != b"\x7fELF\x02\x01":
        raise ValueError(f"found {elf[:6]!r}; expected a 64-bit little-endian ELF image")
    (table_offset,) = struct.unpack_from("<Q", elf, 40)
    header_bytes, count = struct.unpack_from("<HH", elf, 58)
    return [_SECTION_HEADER.unpack_from(elf, table_offset + i * header_bytes) for i in range(count)]


def _sections(elf: bytes) -> list[_Section]:
    headers = _section_headers(elf)
    (names_index,) = struct.unpack_from("<H", elf, 62)
    data = [elf[header[4] : header[4] + header[5]] for header in headers]
    return [
        _Section(_string(data[names_index], header[0]), payload, header[6])
        for header, payload in zip(headers, data, strict=True)
    ]


def _symbol_names(symtab: _Section, sections: list[_Section]) -> list[str]:
    strings = sections[symtab.link].data
    return [_string(strings, symbol[0]) for symbol in _SYMBOL.iter_unpack(symtab.data)]


def _string(table: bytes, offset: int) -> str:
    return table[offset : table.index(b"\0", offset)].decode()


def _function_attributes(info: bytes) -> Iterator[tuple[int, int, int]]:
    """Yield (attribute, symbol index, value) for each per-function attribute in the bytes of `.nv.info`."""
    offset = 0
    while offset < len(info):
        format_code, attribute, size = struct.unpack_from("<BBH", info, offset)
        offset += 4
        if format_code == _EIFMT_SVAL:
            if size == 8:
                yield (attribute, *struct.unpack_from("<II", info, offset))
            offset += size
