"""Calls from PyTorch. Its modules import torch with themselves, so nobody imports them before torch is there.

door.py        `cutegen.matmul` of torch tensors: straight to the kernel, or through torch's dispatcher
call.py        a call's arguments as one value
eager.py       a call's tensors -> one look-up -> the launch
by_torch.py    the same formula by torch, for tensors in host memory
remembered.py  simple calls that were made before; fused.py: those with more terms
recorded.py    eager calls with gradients
ops.py         `torch.ops.cutegen`: schemas, kernels, fakes, autocast, vmap
gradients.py   the backward passes, which are calls of these ops
linear.py      `cutegen.Linear`
main_grad.py   a layer whose weight gradient is added to an f32 buffer
float8.py      a layer in 8-bit floats that has a backward pass
sharding.py    how DTensors are multiplied
switches.py    what torch is set to: tf32
"""
