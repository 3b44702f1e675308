"""Renders a plan to source text, and reads it back: templates write what the plan decided, and decide nothing."""

from cutegen.render.edited import ReadKernel, read_kernel
from cutegen.render.kernel import render

__all__ = ["ReadKernel", "read_kernel", "render"]
