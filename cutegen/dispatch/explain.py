"""Explains in words which kernel would serve a call, and why."""

from __future__ import annotations

from cutegen.dispatch.providers import providers
from cutegen.dispatch.resolve import Resolved
from cutegen.support.columns import aligned


def explained(resolved: Resolved) -> str:
    """The request, what each provider said to it, and what is copied for the call. Compiles nothing."""
    shape = f"result: {resolved.dtype}, shape {resolved.problem.result}"
    if resolved.empty:
        return f"{shape}; there is no element to compute, and no kernel is asked for"
    request = resolved.request
    rows = [("problem", str(request.problem)), ("on", request.device or request.target)]
    rows += [(name, str(getattr(request, name))) for name in ("a", "b", "c")]
    rows.append(("epilogue", ", ".join(request.ops) or "none"))
    rows += [(f"copied: {name}", why) for name, why in resolved.copies.items()]
    for provider, answer in providers.answers(request):
        rows.append(("serves" if answer.open is not None else "asked", f"{provider.name}: {answer.why}"))
    return "\n".join([shape, *aligned(rows)])
