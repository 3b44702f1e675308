"""An operand that speaks DLPack only, and may lie."""

from __future__ import annotations

from typing import Any

from cutegen.run.call import interfaces


class Producer:
    """Speaks DLPack only. `versioned` is the protocol of 1.0; without it, the one before `max_version`."""

    def __init__(
        self, tensor: Any, *, device: tuple[int, int] = (1, 0), versioned: bool = True, **spoiled: Any
    ) -> None:
        self.tensor, self.device, self.versioned, self.spoiled = tensor, device, versioned, spoiled
        self.streams: list[int | None] = []

    def __dlpack_device__(self) -> tuple[int, int]:
        return self.device

    def __dlpack__(self, stream: int | None = None, **options: Any) -> object:
        if options and not self.versioned:
            raise TypeError("unexpected keyword argument 'max_version'")
        self.streams.append(stream)
        capsule = self.tensor.__dlpack__(**options)
        exported, _ = interfaces._open(capsule)
        exported.device_type, exported.device_id = self.device
        for field, value in self.spoiled.items():
            setattr(exported, field, value)
        return capsule
