"""Calls from PyTorch. The modules import torch, so they are imported only after torch is.

torch_entry.py   `cutegen.matmul` of torch tensors: directly to the kernel, or through torch's dispatcher
call.py          a call's arguments as one value
eager.py         a call's tensors -> one lookup -> the launch
first_use.py     the first launch of a kernel that no hardware has run, compared with float64
cpu_reference.py the same formula in torch, for tensors in host memory
call_cache.py    repeated calls, by guards or by all attributes
autograd.py      eager calls with gradients
ops.py           `torch.ops.cutegen`: schemas, kernels, fakes, autocast, vmap
lowering.py      how programs of Inductor call kernels: by the functions of compiled.py
gated.py         activations of pairs of columns, and their derivatives
gradients.py     the backward passes, which call these ops
grouped.py       `cutegen.grouped_mm`: its ops; grouped_gradients.py: their backward passes
linear.py        `cutegen.Linear`
replacing.py     `cutegen.replace_linear`: a model's layers in place; activations.py: torch's modules by name
model_calls.py   the calls in a run of a model that computes nothing, for `cutegen.prepare`
main_grad.py     a layer whose weight gradient is added to an f32 buffer
float8.py        a layer in 8-bit floats with a backward pass; quantize.py: `cutegen.quantize`, with a factor per block
micro_scales.py  factors of 8 bits for 16 or 32 values: quantization, the blocked layout, and what they stand for
packed_rows.py   where the factors of packed rows are: micro_scales_of_groups.py reads them
sharding.py      how DTensors are multiplied
flops.py         what torch's FlopCounterMode counts
switches.py      torch's settings: tf32
"""
