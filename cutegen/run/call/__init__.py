"""One call's operands, for GPU and CPU.

    operands.py          a caller's tensor -> TensorView; interfaces.py reads other arrays than NumPy's
    storage.py           the required memory layout of each matrix; allocation
    check.py             do these operands fit this kernel? suggestions.py: code to paste if not
    memory_overlap.py    addresses: alignment, shared memory
    epilogue_operands.py the epilogue operands of a call, and no others
    transposed_copies.py transposed copies of B, made once and kept
    cached_calls.py      a repeated call with torch tensors: recognized by guards, checked and launched
    streams.py           the CUDA stream of a call
    bits.py              floats that NumPy lacks

Nothing here launches: `cutegen.run.gpu` and `cutegen.run.cpu` do.
"""
