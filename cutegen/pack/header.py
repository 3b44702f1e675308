"""The kernels of a pack in a header for C++, with a function for each name."""

from dataclasses import replace

from cutegen.build.pack_file import PackFile
from cutegen.contract.launch import GEMM
from cutegen.errors import RequestError
from cutegen.render.cpp import CppKernel, cpp_header_of


def pack_header(file: PackFile) -> str:
    """Return the header of a pack; a kernel of several problems is in it once.

    Raises RequestError for a probe, and for kernels of one name with other operands.
    """
    named: dict[str, list[CppKernel]] = {}
    for entry in file.entries:
        if entry.kind != GEMM:
            raise RequestError(
                f"{file.path}: found {entry.name}, of kind {entry.kind}; expected GEMMs, for C++ to call"
            )
        kernels = named.setdefault(entry.name, [])
        cubin = file.artifact(entry).cubin
        made = CppKernel(contract=entry.launch, cubin=cubin, gpu_arch=entry.gpu_arch, problems=(entry.problem,))
        for i, each in enumerate(kernels):
            if replace(each, problems=made.problems) == made:
                kernels[i] = replace(each, problems=(*each.problems, entry.problem))
                break
        else:
            kernels.append(made)
    return cpp_header_of(named)
