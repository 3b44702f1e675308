"""Records what a function that the CuTe DSL has compiled launches: each parameter as bytes, without a GPU.

The DSL's host code calls its runtime library, whose name is in CUTE_DSL_LIBS: a few lines of C stand in for it.
Tensors are DLPack objects whose addresses are made up, because nothing is read. A `Recording` is made before the DSL is
imported.
"""

from __future__ import annotations

import ctypes
import os
import pickle
import struct
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import ModuleType
from typing import Any

from cutegen.ptx import Program

_RUNTIME = r"""
#include <string.h>
typedef void (*Record)(const void *config, const char *kernel, void **parameters);
static Record record;
static char names[64][1024];
static int count;
void record_by(Record given) { record = given; }
int _cudaLaunchKernelEx(const void *config, const void *kernel, void **parameters) {
  record(config, kernel, parameters);
  return 0;
}
int _cudaLibraryLoadData(void **library) { *library = names; return 0; }
int _cudaLibraryGetKernel(void **kernel, void *library, const char *name) {
  *kernel = strncpy(names[count++ % 64], name, 1023);
  return 0;
}
int _cudaGetDevice(int *device) { *device = 0; return 0; }
int _cudaSetDevice(int device) { return 0; }
int _cudaDeviceGetAttribute(int *value, int attribute, int device) { *value = 1 << 18; return 0; }
int _cudaFuncSetAttribute(const void *kernel, int attribute, int value) { return 0; }
int _cudaKernelSetAttributeForDevice(const void *kernel, int attribute, int value, int device) { return 0; }
int _cuKernelGetAttribute(int *value, int attribute, const void *kernel, int device) { *value = 0; return 0; }
int cuda_dialect_init_library_once(void **once, int (*init)(void **), int (*load)(void **, int), void *unused) {
  if (*once) return 0;
  if (init(once)) return 1;
  return load ? load(once, 0) : 0;
}
int cuda_dialect_unload_library_once(void **once) { return 0; }
void CuteDSLRT_TVMFFISetRaisedCudaError(void) {}
void CuteDSLRT_TVMFFISetRaisedCudaLaunchError(void) {}
"""
_CLUSTER, _ATTRIBUTE_BYTES = 4, 72
_FIRST_ADDRESS, _APART_BYTES = 0x7000_0000_0000, 1 << 36
_CUDA = 2
_CODES = {
    "i32": (0, 32, 1),
    "f16": (2, 16, 1),
    "f32": (2, 32, 1),
    "bf16": (4, 16, 1),
    "e4m3": (10, 8, 1),
    "ue8m0": (14, 8, 1),
    "e2m1x2": (17, 4, 2),
}
"""DLPack's codes, bits and lanes."""


class _Config(ctypes.Structure):
    """`cudaLaunchConfig_t`."""

    _fields_ = (
        ("grid", ctypes.c_uint * 3),
        ("block", ctypes.c_uint * 3),
        ("smem_bytes", ctypes.c_size_t),
        ("stream", ctypes.c_void_p),
        ("attributes", ctypes.c_void_p),
        ("attribute_count", ctypes.c_uint),
    )


class _Tensor(ctypes.Structure):
    """`DLManagedTensor`."""

    _fields_ = (
        ("data", ctypes.c_void_p),
        ("device_type", ctypes.c_int),
        ("device_id", ctypes.c_int),
        ("rank", ctypes.c_int),
        ("code", ctypes.c_uint8),
        ("bits", ctypes.c_uint8),
        ("lanes", ctypes.c_uint16),
        ("shape", ctypes.POINTER(ctypes.c_int64)),
        ("strides", ctypes.POINTER(ctypes.c_int64)),
        ("offset_bytes", ctypes.c_uint64),
        ("context", ctypes.c_void_p),
        ("deleter", ctypes.c_void_p),
    )


_new_capsule = ctypes.pythonapi.PyCapsule_New
_new_capsule.restype, _new_capsule.argtypes = ctypes.py_object, (ctypes.c_void_p, ctypes.c_char_p, ctypes.c_void_p)


class Named:
    """A tensor of GPU memory that does not exist; `strides` are in elements, row-major if not given."""

    def __init__(
        self, address: int, dtype: str, shape: tuple[int, ...], strides: tuple[int, ...] | None = None
    ) -> None:
        if strides is None:
            strides, step = (), 1
            for extent in reversed(shape):
                strides, step = (step, *strides), step * extent
        numbers = ctypes.c_int64 * len(shape)
        self._shape, self._strides = numbers(*shape), numbers(*strides)
        self.address = address
        fields = (len(shape), *_CODES[dtype], self._shape, self._strides, 0, None, None)
        self._tensor = _Tensor(address, _CUDA, 0, *fields)

    def __dlpack__(self, **_: Any) -> Any:
        """The tensor as a capsule."""
        return _new_capsule(ctypes.addressof(self._tensor), b"dltensor", None)

    def __dlpack_device__(self) -> tuple[int, int]:
        """GPU 0."""
        return _CUDA, 0


class Recording:
    """The launches of functions that the DSL compiles for sm_100a; the DSL leaves its files in `folder`."""

    def __init__(self, folder: Path) -> None:
        source, library = folder / "runtime.c", folder / "runtime.so"
        source.write_text(_RUNTIME)
        subprocess.run(["cc", "-shared", "-fPIC", "-w", "-o", library, source], check=True)
        os.environ.update(CUTE_DSL_ARCH="sm_100a", CUTE_DSL_KEEP="ptx", CUTE_DSL_DISABLE_FILE_CACHING="1")
        os.environ.update(CUTE_DSL_LIBS=str(library), CUTE_DSL_DUMP_DIR=str(folder))
        self._folder = folder
        self._places: dict[str, int] = {}
        self._tensors: list[Named] = []
        self._program: Program | None = None
        self._launches: list[dict[str, Any]] = []
        callback = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_char_p, ctypes.POINTER(ctypes.c_void_p))
        self._callback, self._library = callback(self._record), ctypes.CDLL(str(library))
        self._library.record_by(self._callback)

    def tensor(self, name: str, dtype: str, *shape: int, strides: tuple[int, ...] | None = None) -> Named:
        """A tensor that the next launch knows as `name`."""
        self._places[name] = _FIRST_ADDRESS + len(self._places) * _APART_BYTES
        found = Named(self._places[name], dtype, shape, strides)
        self._tensors.append(found)
        return found

    def save(self, name: str, function: Any, *arguments: Any) -> None:
        """Calls a compiled function, and writes its PTX and what it launches to `name`.pickle."""
        ptx = function.artifacts.PTX
        self._program, self._launches = Program.parse(ptx), []
        function(*arguments)
        found = {"ptx": ptx, "launches": self._launches, "places": self._places}
        (self._folder / f"{name}.pickle").write_bytes(pickle.dumps(found))
        self._places = {}

    def _record(self, config: int, kernel: bytes, parameters: Any) -> None:
        """Called by the library: what is launched."""
        found, entry = _Config.from_address(config), kernel.decode()
        assert self._program is not None
        declared = self._program.entries[entry].parameters
        sizes = [(each.count or 1) * each.type.bits // 8 for each in declared]
        cluster = None
        for i in range(found.attribute_count):
            raw = ctypes.string_at(found.attributes + _ATTRIBUTE_BYTES * i, _ATTRIBUTE_BYTES)
            number, *extents = struct.unpack_from("<i4x3I", raw)
            cluster = tuple(extents) if number == _CLUSTER else cluster
        launch = {
            "entry": entry,
            "grid": tuple(found.grid),
            "block": tuple(found.block),
            "cluster": cluster,
            "smem_bytes": found.smem_bytes,
            "parameters": [ctypes.string_at(parameters[i], size) for i, size in enumerate(sizes)],
        }
        self._launches.append(launch)


def on_a_gpu(cutlass: ModuleType, sms: int = 148) -> None:
    """The DSL's questions about the GPU are answered, with its number of SMs: there is none."""
    info = cutlass.utils.HardwareInfo
    info.__init__ = lambda *_, **__: None
    for query in ("get_max_active_clusters", "get_device_multiprocessor_count"):
        setattr(info, query, lambda *_, **__: sms)


@contextmanager
def without_triton() -> Iterator[None]:
    """QuACK can be imported where Triton is not: it needs a base class of it, and decorates functions."""
    import torch
    import torch._dynamo  # it looks for Triton when it is imported

    names = ("triton", "triton.runtime", "triton.runtime.cache")
    modules = [ModuleType(name) for name in names]
    modules[0].runtime, modules[1].cache, modules[2].FileCacheManager = modules[1], modules[2], object  # type: ignore[attr-defined]
    kept, compile_ = {name: sys.modules.get(name) for name in names}, torch.compile
    sys.modules.update(zip(names, modules, strict=True))
    torch.compile = lambda f=None, **_: (lambda g: g) if f is None else f
    try:
        yield
    finally:
        torch.compile = compile_
        for name, module in kept.items():
            if module is None:
                del sys.modules[name]
            else:
                sys.modules[name] = module
