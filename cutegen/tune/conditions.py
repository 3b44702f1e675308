"""The GPU of a measurement, and the packages whose versions affect times."""

from cutegen.bench.conditions import conditions, nvml
from cutegen.tuned.record import DeviceFacts

PACKAGES = ("cutegen", "nvidia-cutlass-dsl", "torch", "cuda-bindings")


def present_device() -> DeviceFacts:
    """Return torch's current GPU. Raises torch's RuntimeError if there is none."""
    import torch

    ordinal = torch.cuda.current_device()
    properties = torch.cuda.get_device_properties(ordinal)
    found = nvml(ordinal)
    limits = None if found is None else found.limits()
    return DeviceFacts(
        name=properties.name,
        uuid=str(getattr(properties, "uuid", "")) or None,
        multiprocessors=properties.multi_processor_count,
        memory_bytes=properties.total_memory,
        sm_clock_mhz=None if limits is None else limits.sm_clock_mhz,
        memory_clock_mhz=None if limits is None else limits.memory_clock_mhz,
        power_limit_w=None if limits is None else limits.power_w,
        driver=conditions().driver,
    )
