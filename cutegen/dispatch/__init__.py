"""Finds the kernel that serves a call: from the operands to a request, and from the request to a kernel.

    shapes.py      extents, batches and element types, by torch.matmul's rules
    formula.py     the epilogue's ops, and activations, also of pairs of columns
    placement.py   each tensor in place, or as a copy that some kernel reads
    request.py     what a call requires of a kernel
    resolve.py     from the tensors of a call to its request
    grouped.py     the same for groups, whose sizes only the device has
    block_scales.py        factors of blocks of A and B among those tensors
    quantized.py           factors of a quantized result, and which kernels write them
    provider.py    a provider of kernels; providers.py: all of them, in order
    tuned.py       the first: records of `cutegen tune` on this GPU
    pack.py        the second: kernels that were compiled ahead of time; families.py: of which family each is
    model.py       the last: spec -> plan -> build
    prepared_call.py       a call with its kernel, prepared once; prepared.py: kernels built before any call
    arrays.py      calls with NumPy arrays, on the CPU; cpu_time_guard.py: how long that will take
    explain.py     which kernel would serve, as text; settings.py: switches

Nothing here imports a framework, and only `model.py` imports the planner: a kernel from a pack needs neither.
"""
