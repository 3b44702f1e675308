"""Launches a cubin's entry on GPUs, with the tensor maps of its operands."""

import ctypes
import threading
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from cutegen.contract.launch import ONE_CTA, RESULT, LaunchContract, LaunchGeometry
from cutegen.contract.tensor_map import TensorMapFields
from cutegen.errors import DeviceError
from cutegen.hardware import TARGETS, dtype, runs_on
from cutegen.run.call.cached_calls import Launch
from cutegen.run.call.check import CheckedCall
from cutegen.run.driver import Driver
from cutegen.run.gpu.raw_driver import LaunchConfig, raw_driver
from cutegen.run.gpu.workspace import ClearedLaunch, WorkspaceLaunch, workspaces

# Tensor maps of operands on a GPU: the driver makes them, and those of the latest addresses are kept.
#
# A map depends only on an address, extents and strides, so a kept map stays valid.


MAP_BYTES = 128
L2_PROMOTION = "L2_128B"
"""L2 fetch granularity on a miss. Source: CUTLASS `cute/atom/copy_traits_sm90_tma.hpp`."""

_MAP_ALIGN_BYTES = 64
MAPS_AT_ONCE = 16
"""Maps per memory allocation."""
_REMEMBERED_ADDRESSES = 2048
_CUDA_VERSION = 12000
_DATA_TYPES = {"f16": "FLOAT16", "bf16": "BFLOAT16", "f32": "FLOAT32"}
_EncodeTiled = ctypes.CFUNCTYPE(
    ctypes.c_int,
    ctypes.c_void_p,  # tensorMap
    ctypes.c_int,  # tensorDataType
    ctypes.c_uint32,  # tensorRank
    ctypes.c_void_p,  # globalAddress
    ctypes.POINTER(ctypes.c_uint64),  # globalDim
    ctypes.POINTER(ctypes.c_uint64),  # globalStrides
    ctypes.POINTER(ctypes.c_uint32),  # boxDim
    ctypes.POINTER(ctypes.c_uint32),  # elementStrides
    *[ctypes.c_int] * 4,  # interleave, swizzle, l2Promotion, oobFill
)


class TensorMaps:
    """The maps of one operand of one form, in creation order, for one thread.

    Source: CUDA Driver API, `cuTensorMapEncodeTiled`. It is called by its address because it needs the map at a
    multiple of 64 bytes, and `cuda.bindings` passes an object at an arbitrary address.
    """

    def __init__(self, driver: Driver, operand: str, fields: TensorMapFields) -> None:
        self._driver, self._operand, self._fields = driver, operand, fields
        self._encode_tiled = _EncodeTiled(driver.entry_point("cuTensorMapEncodeTiled", _CUDA_VERSION))
        rank = len(fields.extents)
        self._layout = (
            (ctypes.c_uint64 * rank)(*fields.extents),
            (ctypes.c_uint64 * (rank - 1))(*fields.strides_bytes),
            (ctypes.c_uint32 * rank)(*fields.box),
            (ctypes.c_uint32 * rank)(*[1] * rank),
        )
        self._data_type = _constant(driver, "CUtensorMapDataType", f"DATA_TYPE_{data_type(fields.dtype)}")
        self._kinds = (
            _constant(driver, "CUtensorMapInterleave", "INTERLEAVE_NONE"),
            _constant(driver, "CUtensorMapSwizzle", f"SWIZZLE_{swizzle(fields.swizzle_bytes)}"),
            _constant(driver, "CUtensorMapL2promotion", f"L2_PROMOTION_{L2_PROMOTION}"),
            _constant(driver, "CUtensorMapFloatOOBfill", "FLOAT_OOB_FILL_NONE"),
        )
        self._known: dict[int, int] = {}
        self._memory: list[ctypes.Array[ctypes.c_char]] = []
        self._places: list[int] = []
        """Addresses of the maps, in the order in which their operands' addresses were first seen."""

    def at(self, address: int) -> int:
        """Return the host address of the map for an operand at `address`. Raises DeviceError.

        It is valid until some later call, so launch with it, or request it again, before that. The calling thread must
        have a context, without which the driver makes no map.
        """
        place = self._known.get(address)
        if place is None:
            if len(self._known) >= _REMEMBERED_ADDRESSES:
                self._known.clear()  # launches have copied their maps, so the memory can be reused
            place = self._place(len(self._known))
            self._encode(place, address)
            self._known[address] = place
        return place

    def _place(self, number: int) -> int:
        while number >= len(self._places):
            self._memory.append(ctypes.create_string_buffer(MAPS_AT_ONCE * MAP_BYTES + _MAP_ALIGN_BYTES))
            begin = ctypes.addressof(self._memory[-1])
            first = begin + -begin % _MAP_ALIGN_BYTES
            self._places += [first + i * MAP_BYTES for i in range(MAPS_AT_ONCE)]
        return self._places[number]

    def _encode(self, place: int, address: int) -> None:
        status = self._encode_tiled(place, self._data_type, len(self._layout[0]), address, *self._layout, *self._kinds)
        if status:
            function = f"cuTensorMapEncodeTiled for operand {self._operand} at {address:#x} with {self._fields}"
            raise self._driver.failure(function, self._driver.api.CUresult(status))


def data_type(name: str) -> str:
    """Return the driver's name for an element type, or for an integer of its size: copies move bits unchanged.

    >>> data_type("bf16")
    'BFLOAT16'
    """
    return _DATA_TYPES.get(name) or f"UINT{dtype(name).bits}"


def swizzle(swizzle_bytes: int) -> str:
    """Return the driver's name for a swizzle.

    >>> swizzle(128), swizzle(0)
    ('128B', 'NONE')
    """
    return f"{swizzle_bytes}B" if swizzle_bytes else "NONE"


def _constant(driver: Driver, kind: str, name: str) -> int:
    return int(getattr(getattr(driver.api, kind), f"CU_TENSOR_MAP_{name}"))


# Launches a cubin's entry on GPUs.
#
# `GpuKernel.prepare` prepares once what depends on the operands' forms; a call writes addresses and scalars and
# launches.


_SUCCESS = 0


@dataclass(frozen=True, slots=True)
class _Bound:
    """The kernel in one GPU's primary context."""

    function: Any
    context: Any
    context_address: int
    multiprocessors: int
    active_clusters: int | None
    """Number of clusters that the GPU holds at once; None for a kernel without clusters."""


class GpuKernel:
    """A cubin's entry, loaded once per process and bound to a GPU at the first launch there.

    It was compiled for `gpu_arch` (`sm_90a`).
    """

    def __init__(
        self, contract: LaunchContract, cubin: bytes, gpu_arch: str, load_driver: Callable[[], Driver]
    ) -> None:
        self._contract, self._cubin, self._gpu_arch, self._load_driver = contract, cubin, gpu_arch, load_driver
        self._lock = threading.Lock()
        self._bound: dict[int, _Bound] = {}
        self._kernel: Any = None

    def prepare(self, call: CheckedCall) -> Launch:
        """Return the launch for a call of this form on its GPU, for one thread only. Raises DeviceError."""
        driver, ordinal = self._load_driver(), call.device[1]
        with self._lock:
            if ordinal not in self._bound:
                with driver.relaxed_capture():
                    self._bound[ordinal] = self._bind(driver, ordinal)
            bound = self._bound[ordinal]
        form = MappedLaunch if self._contract.maps else GpuLaunch
        launch = form(driver, bound, self._contract, call)
        workspace = self._contract.workspace(call.size.problem)
        if self._contract.adds_to_result:
            return ClearedLaunch(
                launch, driver, bound.context, call.placed[RESULT], self._contract.pointers.index(RESULT)
            )
        return launch if workspace is None else WorkspaceLaunch(launch, workspaces(driver, ordinal), workspace)

    def _bind(self, driver: Driver, ordinal: int) -> _Bound:
        self._check_architecture(driver, ordinal)
        context = driver.primary_context(ordinal)
        with driver.current(context):
            if self._kernel is None:
                # Never unloaded: a captured graph may launch the kernel after this object is gone.
                library = driver.call("cuLibraryLoadData", self._cubin, [], [], 0, [], [], 0)
                self._kernel = driver.call("cuLibraryGetKernel", library, self._contract.entry.encode())
            function = driver.call("cuKernelGetFunction", self._kernel)
            self._allow_shared_memory(driver, function, ordinal)
            active_clusters = self._active_clusters(driver, function, ordinal)
        multiprocessors = driver.attribute("MULTIPROCESSOR_COUNT", ordinal)
        return _Bound(function, context, int(context), multiprocessors, active_clusters)

    def _active_clusters(self, driver: Driver, function: Any, ordinal: int) -> int | None:
        """Count the clusters that run at once: complete ones in the SMs of a GPC. Raises DeviceError for none."""
        contract = self._contract
        if contract.cluster == ONE_CTA:
            return None
        x, y = contract.cluster
        one = LaunchGeometry((x, y, 1), (contract.threads, 1, 1), contract.dynamic_smem_bytes, (x, y, 1))
        found = int(driver.call("cuOccupancyMaxActiveClusters", function, launch_config(driver.api, one)))
        if found == 0:
            raise DeviceError(
                f"cuda:{ordinal} ({driver.device_name(ordinal)}) has no room for a cluster of {x} x {y} CTAs of this "
                "kernel; use a smaller cluster, fewer stages or a smaller tile"
            )
        return found

    def _check_architecture(self, driver: Driver, ordinal: int) -> None:
        found = driver.compute_capability(ordinal)
        if not runs_on(self._gpu_arch, found):
            here = f"sm_{found[0]}{found[1]}"
            way_out = (
                f"build it for this GPU: cutegen build SPEC --arch {here}"
                if any(runs_on(row.gpu_arch, found) for row in TARGETS.values())
                else "no target of cutegen runs on it"
            )
            raise DeviceError(
                f"the kernel was compiled for {self._gpu_arch}; cuda:{ordinal} ({driver.device_name(ordinal)}) is "
                f"{here}; {way_out}"
            )

    def _allow_shared_memory(self, driver: Driver, function: Any, ordinal: int) -> None:
        needed = self._contract.dynamic_smem_bytes
        available = driver.attribute("MAX_SHARED_MEMORY_PER_BLOCK_OPTIN", ordinal)
        if needed > available:
            raise DeviceError(
                f"the kernel needs {needed} bytes of dynamic shared memory per CTA; cuda:{ordinal} "
                f"({driver.device_name(ordinal)}) has {available}; use fewer stages or a smaller tile"
            )
        attribute = driver.api.CUfunction_attribute.CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES
        driver.call("cuFuncSetAttribute", function, attribute, needed)


class GpuLaunch:
    """One form of call on one GPU and one thread, with parameters laid out for the driver.

    Every parameter has a slot of eight bytes, low byte first as on every host of NVIDIA's driver. The driver receives
    the slots' addresses and copies the values before the launch returns, so slots can be reused.
    """

    __slots__ = (
        *("_address_slots", "_arguments", "_bound", "_config", "_current", "_current_at", "_driver", "_launch"),
        *("_placed", "_pointers", "_raw", "_scalars", "_slots", "_stream"),
    )

    def __init__(self, driver: Driver, bound: _Bound, contract: LaunchContract, call: CheckedCall) -> None:
        names = [parameter.name for parameter in contract.parameters]
        nothing = (0,) * len(contract.pointers), (0,) * len(contract.scalars)
        values = [int(x) for x in contract.arguments(*nothing, call.size, maps=(0,) * len(contract.maps))]
        self._driver, self._raw, self._bound = driver, raw_driver(driver), bound
        self._current = ctypes.c_void_p()
        self._current_at = ctypes.addressof(self._current)
        # One more slot than parameters, for addresses that the kernel does not take because it has tensor maps instead.
        self._slots = (ctypes.c_uint64 * (len(values) + 1))(*values)
        first = ctypes.addressof(self._slots)
        self._pointers = (ctypes.c_void_p * len(values))(*(first + 8 * index for index in range(len(values))))
        self._address_slots = [names.index(name) if name in names else len(values) for name in contract.pointers]
        self._scalars = [ctypes.c_float.from_address(first + 8 * names.index(name)) for name in contract.scalars]
        geometry = contract.geometry(
            call.size.problem, multiprocessors=bound.multiprocessors, active_clusters=bound.active_clusters
        )
        self._config = LaunchConfig.of(
            geometry, in_clusters=bound.active_clusters is not None, programmatic=contract.programmatic
        )
        # Created once, so that ctypes takes them without a conversion at each launch.
        self._launch, function = self._raw.launch, ctypes.c_void_p(int(bound.function))
        self._arguments = (ctypes.byref(self._config), function, self._pointers, None)
        self._placed: tuple[int, ...] | None = None
        self._stream = 0

    def __call__(self, addresses: tuple[int, ...], scalars: tuple[float, ...], stream: int) -> None:
        """Launch on the addresses, asynchronously. Raises DeviceError."""
        if self.is_context_current():
            self.launch_on_current_context(addresses, scalars, stream)
        else:
            with self._driver.current(self._bound.context):
                self.launch_on_current_context(addresses, scalars, stream)

    def is_context_current(self) -> bool:
        """Return whether the calling thread's current context is this GPU's.

        A thread that never used CUDA has none; a thread that works on two GPUs may have the other's.
        """
        status = self._raw.get_current_context(self._current_at)
        return status == _SUCCESS and self._current.value == self._bound.context_address

    def launch_on_current_context(self, addresses: tuple[int, ...], scalars: tuple[float, ...], stream: int) -> None:
        """Launch in a thread whose context is known to be right. Raises DeviceError.

        Addresses and a stream that are unchanged since the previous call are not written again.
        """
        if addresses != self._placed:
            self._place(addresses)
        if scalars:
            for slot, scalar in zip(self._scalars, scalars, strict=True):
                slot.value = scalar
        if stream != self._stream:
            self._config.stream = self._stream = stream
        status = self._launch(*self._arguments)
        if status != _SUCCESS:
            raise self._driver.failure("cuLaunchKernelEx", self._driver.api.CUresult(status))

    def _place(self, addresses: tuple[int, ...]) -> None:
        slots = self._slots
        for index, address in zip(self._address_slots, addresses, strict=True):
            slots[index] = address
        self._placed = addresses


class MappedLaunch(GpuLaunch):
    """A form of call of a kernel with tensor maps: the driver receives a map's address instead of a slot's."""

    __slots__ = ("_maps",)

    def __init__(self, driver: Driver, bound: _Bound, contract: LaunchContract, call: CheckedCall) -> None:
        super().__init__(driver, bound, contract, call)
        parameters = [parameter.name for parameter in contract.parameters]
        self._maps: list[tuple[int, int, TensorMaps]] = []
        for each, fields in zip(contract.maps, contract.map_fields(call.size), strict=True):
            # A matrix without elements may have no address. Nothing of it is read, so the result's address serves as
            # well.
            address_of = contract.pointers.index(each.name if call.placed[each.name].span_bytes else RESULT)
            maps = TensorMaps(driver, each.name, fields)
            self._maps.append((parameters.index(f"map_{each.name}"), address_of, maps))

    def _place(self, addresses: tuple[int, ...]) -> None:
        self._placed = None  # if one of them fails, none counts as placed
        for parameter, tensor, maps in self._maps:
            self._pointers[parameter] = maps.at(addresses[tensor])
        super()._place(addresses)


def launch_config(api: Any, geometry: LaunchGeometry) -> Any:
    """Make the configuration of `cuLaunchKernelEx` for a kernel with clusters, without the stream."""
    cluster = api.CUlaunchAttribute()
    cluster.id = api.CUlaunchAttributeID.CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION
    dimensions = cluster.value.clusterDim
    dimensions.x, dimensions.y, dimensions.z = geometry.cluster
    config = api.CUlaunchConfig()
    config.gridDimX, config.gridDimY, config.gridDimZ = geometry.grid
    config.blockDimX, config.blockDimY, config.blockDimZ = geometry.block
    config.sharedMemBytes = geometry.dynamic_smem_bytes
    config.attrs, config.numAttrs = [cluster], 1
    return config
