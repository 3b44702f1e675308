"""Finds the kernel that serves a call: from the operands of a call to a request, and from the request to a kernel.

    request.py     what a call asks of a kernel; buckets.py: for which problem it is chosen
    provider.py    what a provider of kernels is; providers.py: who is asked, in which order
    model.py       the last of them: spec -> plan -> build

Nothing here imports a framework, and only `model.py` the planner: a kernel that a pack has is found without.
"""
