"""The tensor maps of a launch: those among its parameters, and those that a kernel finds, or makes, in memory.

Source: PTX ISA, `cp.async.bulk.tensor`, `tensormap.replace`, "Tensor-map". A bulk copy reads a map by the tensormap
proxy when it is issued, and until it is complete.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from cutegen.ptx.errors import LaunchError
from cutegen.ptx.machine.memory import PARAM_WINDOW, WINDOW_BYTES, GlobalMemory
from cutegen.ptx.machine.tensor_map import TENSOR_MAP_ALIGN, TENSOR_MAP_BYTES, BoundTensor
from cutegen.ptx.machine.tensor_map_object import decode
from cutegen.ptx.machine.warp import Warp
from cutegen.ptx.watch.tensor_map_proxy import TensorMapProxy, Writer
from cutegen.ptx.watch.violations import ViolationKind


@dataclass(slots=True)
class MapsOfLaunch:
    """Maps by their offset in the parameters, and those of other bytes as they are used."""

    parameters: Mapping[int, BoundTensor]
    memories: Mapping[str, GlobalMemory]
    proxy: TensorMapProxy = field(default_factory=TensorMapProxy)
    _decoded: dict[bytes, BoundTensor] = field(default_factory=dict)

    def at(self, warp: Warp, site: int, thread: int, address: int, rank: int) -> tuple[BoundTensor, int | None]:
        """The tensor of the map at the generic `address`, which must have `rank` modes, and where kernels may write it.

        That is its global address; None if it is among the parameters.
        """
        tensor, place = self.parameters.get(address - PARAM_WINDOW), None
        if tensor is None:
            is_parameter = PARAM_WINDOW <= address < PARAM_WINDOW + WINDOW_BYTES
            place = None if is_parameter else address
            tensor = self._bound(warp, site, thread, self._octets(warp, site, thread, address), address)
        if len(tensor.map.extents) != rank:
            message = f"{rank} coordinates for a tensor map of {len(tensor.map.extents)} modes"
            warp.cta.fault(ViolationKind.OUT_OF_BOUNDS, site, thread, message, always=True)
        return tensor, place

    def acquire(self, warp: Warp, site: int, thread: int, address: int) -> None:
        """`thread` acquires the map at the generic `address`."""
        octets = self._octets(warp, site, thread, address)
        self.proxy.acquire(thread, warp.cta.ordering, address, octets)

    def check(self, warp: Warp, site: int, thread: int, address: int, writers: Sequence[Writer]) -> None:
        """`thread` issues a copy that uses the map at the global `address`, which `writers` have written before."""
        octets = self._octets(warp, site, thread, address)
        missing = self.proxy.missing(thread, warp.cta.ordering, address, octets, writers)
        if missing is not None:
            message = f"use of a tensor map that this launch has written, without its {missing}"
            warp.cta.fault(ViolationKind.RACE, site, thread, message, address)

    def _octets(self, warp: Warp, site: int, thread: int, address: int) -> bytes:
        if address % TENSOR_MAP_ALIGN:
            message = f"a tensor map is aligned to {TENSOR_MAP_ALIGN} bytes"
            warp.cta.fault(ViolationKind.MISALIGNED, site, thread, message, address, always=True)
        is_parameter = PARAM_WINDOW <= address < PARAM_WINDOW + WINDOW_BYTES
        memory, local = ("param", address - PARAM_WINDOW) if is_parameter else ("global", address)
        buffer = self.memories[memory].holding(local, TENSOR_MAP_BYTES)
        if buffer is None:
            message = "no tensor map is here: these bytes belong to no parameter, array or variable in global memory"
            warp.cta.fault(ViolationKind.OUT_OF_BOUNDS, site, thread, message, address, always=True)
            raise AssertionError("this fault ends the launch")
        return buffer.bytes.data[local - buffer.start :][:TENSOR_MAP_BYTES].tobytes()

    def _bound(self, warp: Warp, site: int, thread: int, octets: bytes, address: int) -> BoundTensor:
        """The tensor that the bytes of a map describe, in the array at its address."""
        if octets not in self._decoded:
            try:
                tensor_map, start = decode(octets)
                buffer = self.memories["global"].holding(start, 1)
                if buffer is None:
                    raise LaunchError(f"a tensor map's address, {start:#x}, is in no array")
                self._decoded[octets] = BoundTensor(tensor_map, buffer, start - buffer.start)
            except LaunchError as error:
                warp.cta.fault(ViolationKind.OUT_OF_BOUNDS, site, thread, str(error), address, always=True)
        return self._decoded[octets]


def words_at(address: int) -> np.ndarray:
    """The addresses of the words of a map."""
    return np.arange(address, address + TENSOR_MAP_BYTES, 4, dtype=np.int64)
