"""Problems to measure: the named suites of `cutegen bench`."""

from collections.abc import Mapping

from cutegen.contract.problem import ProblemShape


def _suite(*rows: tuple[int, int, int]) -> tuple[ProblemShape, ...]:
    return tuple(ProblemShape(*row) for row in rows)


SUITES: Mapping[str, tuple[ProblemShape, ...]] = {
    "square": _suite(*((extent, extent, extent) for extent in (512, 1024, 2048, 4096, 8192))),
    # The linear layers of an 8-billion-parameter Llama 3 (hidden 4096, MLP 14336, grouped QKV 6144), two batch sizes.
    "llm": _suite(
        *((tokens, *layer) for tokens in (8192, 512) for layer in ((6144, 4096), (4096, 4096), (14336, 4096)))
    )
    + _suite((8192, 4096, 14336), (512, 4096, 14336)),
    "skinny": _suite(
        (16, 4096, 4096), (16, 8192, 8192), (64, 8192, 8192), (128, 4096, 14336), (4096, 64, 4096), (256, 256, 65536)
    ),
    # The sizes of this project's first measurements, from launch-bound to power-bound.
    "seed": _suite(
        (1024, 1024, 1024),
        (2048, 2048, 2048),
        (4096, 4096, 4096),
        (8192, 8192, 8192),
        (8192, 4096, 14336),
        (512, 8192, 8192),
        (64, 8192, 8192),
        (16, 4096, 4096),
    ),
}
