"""Write the PTX of CUTLASS operators for sm_100a: `python compile_operators.py FOLDER NAME...`, one file per name.

A NAME is the end of an operator's name. Needs the packages nvidia-cutlass-operators and torch, and no GPU: tensors are
fake, and the number of SMs is said. Nothing that it writes is kept.
"""

import importlib.metadata
import os
import sys
from pathlib import Path

os.environ.update(CUTE_DSL_ARCH="sm_100a", CUTE_DSL_KEEP="ptx", CUTE_DSL_DISABLE_FILE_CACHING="1")
os.environ["CUTE_DSL_DUMP_DIR"] = sys.argv[1]  # by default the working directory

import cutlass
import torch
from torch._subclasses.fake_tensor import FakeTensorMode

SMS, M, N, K = 148, 512, 256, 256


def main() -> None:
    """Compile each operator."""
    package = importlib.metadata.distribution("nvidia-cutlass-operators")
    cutlass.__path__.append(str(Path(str(package.locate_file("cutlass")))))
    import cutlass.operators as operators

    info = cutlass.utils.HardwareInfo
    info.__init__ = lambda *_, **__: None
    for query in ("get_max_active_clusters", "get_device_multiprocessor_count"):
        setattr(info, query, lambda *_, **__: SMS)
    folder, names = Path(sys.argv[1]), sys.argv[2:]
    with FakeTensorMode():
        for operands in (plain(operators, torch.float16), scaled(operators)):
            d = torch.empty(1, M, N, dtype=torch.float32, device="cuda")
            arguments = operators.GemmArguments(*operands, d, accumulator_type=torch.float32)
            for operator in operators.get_operators(arguments, target_sm="100a"):
                for name in names:
                    if operator.metadata.operator_name.endswith(name):
                        compiled = operator.compile(arguments, target_sm="100a").compiled_obj
                        (folder / f"{name}.ptx").write_text(compiled.artifacts.PTX)


def plain(_, element):
    """A and B, both K-major."""
    a = torch.empty(1, M, K, dtype=element, device="cuda")
    return a, torch.empty(1, N, K, dtype=element, device="cuda").transpose(1, 2)


def scaled(operators):
    """The same in e4m3 with factors of 32 values of K, in atoms of 128 rows and 4 factors."""
    mode, swizzle = operators.ScaleMode.Blockwise1x32, operators.ScaleSwizzleMode.Swizzle32x4x4
    for values, rows in zip(plain(operators, torch.float8_e4m3fn), (M, N), strict=True):
        factors = torch.empty(1, rows * K // 32, dtype=torch.float8_e8m0fnu, device="cuda")
        yield operators.ScaledOperand(values, factors, mode, swizzle)


if __name__ == "__main__":
    main()
