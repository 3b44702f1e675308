"""One kernel with `wgmma`, right and with a mistake: what is changed, and what must be found then."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from warpgroup_kernels import COMMIT, FENCE, FILL, PROXY_FENCE, Tile, dump, image_of, kernel, mma, wait, zero

from cutegen.ptx import LaunchReport, Program, TensorMap, ViolationKind

Array = np.ndarray[Any, Any]
K = ViolationKind
SIZE = 16384
B_AT = 8192
COLUMNS = 32
REGISTERS = COLUMNS // 2
_RNG = np.random.default_rng(5)
A_VALUES = _RNG.standard_normal((64, 64)).astype(np.float16)
B_VALUES = _RNG.standard_normal((COLUMNS, 64)).astype(np.float16)
A = Tile(matrix=A_VALUES.view(np.uint16), swizzle_bytes=128)
B = Tile(matrix=B_VALUES.view(np.uint16), swizzle_bytes=128, at=B_AT)
READY = FILL + PROXY_FENCE + "bar.sync 0;"
SKIP = "mov.b32 %r30, 0;"
"""Something to put a mistake in the place of."""


def step(k: int, *, first: int = 0, adds: str = "%p0") -> str:
    """The instruction for 16 of K."""
    where = A.descriptor(32 * k), B.descriptor(32 * k)
    return mma(f"m64n{COLUMNS}k16", "f32.f16.f16", REGISTERS, *where, ", 1, 1, 0, 0", first=first, adds=adds)


@dataclass(frozen=True, slots=True, kw_only=True)
class Wrong:
    """A right body, the one change that makes it wrong, and what is found then: a violation, or a wrong product."""

    name: str
    right: str
    change: tuple[str, str]
    kind: ViolationKind | None = None
    fill: str = READY
    says: str = ""
    block: int = 128
    also: ViolationKind | None = None
    """What some orders come to first."""
    k_steps: int = 4

    @property
    def wrong(self) -> tuple[str, str]:
        """(fill, body) with the mistake."""
        before, after = self.change
        places = self.fill.count(before) + self.right.count(before)
        assert places >= 1, self.name
        if before in self.right:
            return self.fill, self.right.replace(before, after, 1)
        return self.fill.replace(before, after, 1), self.right

    def launch(self, fill: str, body: str, policy: str, **options: Any) -> tuple[Array, LaunchReport]:
        """The accumulators (threads, registers) that a kernel leaves behind, and the report."""
        parameters = ", .param .align 64 .b8 map[128]"
        text = kernel(body, fill=fill, size_bytes=SIZE, parameters=parameters)
        out = np.full((self.block, REGISTERS), 0xABABABAB, np.uint32)
        image = image_of(A, B, size_bytes=SIZE)
        tensor = A_VALUES.copy()
        tensor_map = TensorMap(array=tensor, extents=(64, 64), strides_bytes=(128,), box=(64, 64), swizzle_bytes=128)
        options |= {"policy": policy, "max_steps": 200_000, "args": [image, out, tensor_map]}
        return out, Program.parse(text).launch("k", grid=1, block=self.block, **options)

    def expected(self) -> Array:
        """The product (64, columns)."""
        depth = 16 * self.k_steps
        product: Array = A_VALUES[:, :depth].astype(np.float64) @ B_VALUES[:, :depth].astype(np.float64).T
        return product


ALL = "".join(step(k) for k in range(4))
PLAIN = zero(REGISTERS) + FENCE + ALL + COMMIT + SKIP + wait() + dump(REGISTERS)
LAST_WAIT = wait().replace(" 0;", " 00;")
TWO = zero(REGISTERS) + FENCE + step(0) + step(1) + COMMIT + step(2) + step(3) + COMMIT + wait() + dump(REGISTERS)
