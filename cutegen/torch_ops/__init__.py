"""Calls from PyTorch. The modules import torch, so they are imported only after torch is.

torch_entry.py   `cutegen.matmul` of torch tensors: directly to the kernel, by autograd, or by the dispatcher
call.py          a call's arguments as one value
eager.py         a call's tensors -> one lookup -> the launch
first_use.py     the first launch of a kernel that no hardware has run, compared with float64
cpu_reference.py the same formula in torch, for tensors in host memory
call_cache.py    repeated calls, by guards or by all attributes
ops.py           `torch.ops.cutegen`: schemas, kernels, fakes, autocast, vmap
lowering.py      how programs of Inductor call kernels: by the functions of compiled.py
activations.py   torch's modules by name; activations of pairs of columns, and their derivatives
gradients.py     the backward passes, which call these ops
grouped.py       `cutegen.grouped_mm`: its ops, and their backward passes
linear.py        `cutegen.Linear`; its weight gradient may be added to an f32 buffer
replacing.py     `cutegen.replace_linear`: a model's layers in place
model_calls.py   the calls in a run of a model that computes nothing, for `cutegen.prepare`
float8.py        a layer in 8-bit floats with a backward pass
quantize.py      `cutegen.quantize`: a factor per block; of 8 bits for 16 or 32 values, in the blocked layout
packed_rows.py   where the factors of packed rows are: micro_scales_of_groups.py reads them
sharding.py      how DTensors are multiplied
flops.py         what torch's FlopCounterMode counts
switches.py      torch's settings: tf32
"""
