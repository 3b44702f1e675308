"""C++ names of mangled ones, by the C++ library of this machine if it has one."""

import ctypes
from functools import cache
from typing import Any


def demangled(name: str) -> str:
    """Return the C++ name of a symbol; the symbol itself if it is none, or if there is no C++ library.

    >>> demangled("_Z6kernelPfi") in ("kernel(float*, int)", "_Z6kernelPfi"), demangled("kernel")
    (True, 'kernel')
    """
    function = _function()
    if function is None or not name.startswith("_Z"):
        return name
    status = ctypes.c_int()
    address = function(name.encode(), None, None, ctypes.byref(status))
    if status.value or not address:
        return name
    try:
        return ctypes.string_at(address).decode(errors="replace")
    finally:
        _free(address)


@cache
def _function() -> Any:
    """Return `abi::__cxa_demangle` (Itanium C++ ABI), which returns memory of `malloc`."""
    try:
        found = ctypes.CDLL("libstdc++.so.6").__cxa_demangle
    except (OSError, AttributeError):
        return None
    found.restype = ctypes.c_void_p
    found.argtypes = [ctypes.c_char_p, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_void_p]
    return found


def _free(address: int) -> None:
    free = ctypes.CDLL(None).free
    free.argtypes = [ctypes.c_void_p]
    free.restype = None
    free(address)
