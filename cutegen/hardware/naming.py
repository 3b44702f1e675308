"""Names of targets: `sm_90`, `sm90a`, `90`, `9.0`, or a GPU such as `h100` or `H100 SXM`.

Sources: NVIDIA's table of CUDA GPUs and their compute capabilities, developer.nvidia.com/cuda-gpus.
"""

import re
from collections.abc import Mapping
from difflib import get_close_matches

from cutegen.errors import RequestError
from cutegen.hardware.targets import TARGETS, Target, runs_on

_PRODUCTS: Mapping[int, str] = {
    70: "v100 titanv gv100",
    75: "t4 t400 t600 t1000 2060 2070 2080 1650 1660",
    80: "a100 a800 a30",
    86: "a2 a10 a10g a16 a40 a2000 a4000 a4500 a5000 a5500 a6000 3050 3060 3070 3080 3090",
    87: "orin",
    89: "l4 l20 l40 l40s 4050 4060 4070 4080 4090",
    90: "h100 h200 h800 h20 gh200",
    100: "b100 b200 gb200",
    103: "b300 gb300",
    120: "5050 5060 5070 5080 5090",
    121: "gb10",
}
GPU_NAMES: Mapping[str, int] = {name: number for number, names in _PRODUCTS.items() for name in names.split()}
"""Ten times the compute capability of each product, by the distinctive part of its name."""

_CAPABILITY = re.compile(r"(?:sm|compute|cc)?[ _-]?(\d{1,2})\.?(\d)[af]?")
_WORDS_OF_ALL = re.compile(r"nvidia|geforce|tesla|quadro|rtx|gtx|titan(?!v)")


def resolve_target(text: str) -> Target:
    """Return the target that `text` names.

    Raises RequestError for a compute capability without a target, which says whether kernels for another run on it, and
    for an unknown name.

    >>> [resolve_target(text).name for text in ("sm_90a", "sm90", "86", "8.9", "a100", "NVIDIA H100 SXM 80GB")]
    ['sm_90', 'sm_90', 'sm_86', 'sm_89', 'sm_80', 'sm_90']
    """
    if not isinstance(text, str):
        raise RequestError(f"arch: found {text!r}; expected a name, such as 'sm_90' or 'h100'")
    number = _number(text)
    if number is None:
        raise RequestError(f"unknown target {text!r}; {_way_out(text)}")
    if (found := TARGETS.get(f"sm_{number}")) is not None:
        return found
    called = f"sm_{number}" if _capability(text) else f"{text} is sm_{number}, which"
    runnable = [row.name for row in TARGETS.values() if runs_on(row.gpu_arch, divmod(number, 10))]
    way_out = f"kernels for {runnable[-1]} run on it" if runnable else "no kernel for another target runs on it"
    raise RequestError(
        f"unknown target {text!r}; {called} is not supported; {way_out}; expected one of {', '.join(TARGETS)}"
    )


def _number(text: str) -> int | None:
    return _capability(text) or _product(text)


def _capability(text: str) -> int | None:
    """Return ten times the compute capability that `text` spells; None if it does not."""
    match = _CAPABILITY.fullmatch(text.strip().lower())
    return None if match is None else int(match[1] + match[2])


def _product(text: str) -> int | None:
    """Return that of the first word that names a product, whatever the other words are."""
    words = re.findall(r"[a-z0-9]+", _WORDS_OF_ALL.sub(" ", text.lower()))
    return next((GPU_NAMES[word] for word in words if word in GPU_NAMES), None)


def _way_out(text: str) -> str:
    near = get_close_matches(text.lower(), [*TARGETS, *GPU_NAMES], n=1)
    return f"did you mean {near[0]}?" if near else f"known are {', '.join(TARGETS)}, and GPUs such as h100"
