"""Finds the kernel that serves a call: from the operands of a call to a request, and from the request to a kernel.

    shapes.py      extents and batches, by torch.matmul's rules; types.py: element types; formula.py: the epilogue's ops
    placement.py   each tensor as it lies, or in a copy that some kernel reads
    request.py     what a call asks of a kernel
    resolve.py     from the tensors of a call to its request
    provider.py    what a provider of kernels is; providers.py: who is asked, in which order
    tuned.py       the first of them: what `cutegen tune` found on this GPU
    pack.py        the second: kernels that were compiled ahead of time
    model.py       the last: spec -> plan -> build
    ready.py       a call with its kernel, prepared once
    arrays.py      calls with NumPy arrays, on the CPU; patience.py: how long that would take
    explain.py     which kernel would serve, in words; recording.py: what was asked for; settings.py: switches

Nothing here imports a framework, and only `model.py` the planner: a kernel that a pack has is found without.
"""
