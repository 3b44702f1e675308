"""One call's operands, wherever it computes.

    operands.py          a caller's tensor -> TensorView; dlpack.py and cuda_array.py read what is no array of NumPy
    storage.py           how each matrix has to lie in memory; allocation
    check.py             do these operands fit this kernel? suggestions.py: what to paste if not
    memory_overlap.py    where they lie: alignment, shared memory
    epilogue_operands.py what a call hands in for the epilogue, and nothing else
    transposed_copies.py transposed copies of B, made once and kept
    fast_path.py         a call with torch tensors again; dynamo.py knows it by guards
    streams.py           which CUDA stream a call goes to
    bits.py              floats that NumPy has no type for

Nothing here launches: `cutegen.run.gpu` and `cutegen.run.cpu` do.
"""
