"""cutegen's kernels among the operators of `cutlass.operators`, NVIDIA's interface to kernels of the CuTe DSL.

provider.py   the provider and its operators, in that interface's own classes; only this module imports it
in_place.py   the plan for operands that a kernel reads and writes in place, in cutegen's

`docs/operators.md` describes what is offered, and what of that interface has no counterpart.
"""

from typing import Any

from cutegen.errors import OutsideError


def register() -> Any:
    """Register cutegen's provider under the name "cutegen", and return it: for `get_operators(providers=[...])`.

    Later calls return the same. Raises OutsideError without nvidia-cutlass-operators, or with another version of its
    interface.
    """
    try:
        from cutegen.operators.provider import CutegenProvider
    except ImportError as error:
        raise OutsideError(
            f"operators.register: found no interface of cutlass.operators 0.3 ({error}); expected the package "
            "nvidia-cutlass-operators; `pip install 'cutegen[operators]'`"
        ) from error
    return CutegenProvider


__all__ = ["register"]
