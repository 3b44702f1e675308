"""A gated MLP in 8-bit floats as two launches: gate, up, SwiGLU and quantization in one kernel, down in the other.

The first kernel writes its result as the second one reads it: values of e4m3, and a factor for each 1 x 128. Compared
with float64, of the weights as they are and as they were before. Kernels run on a GPU of sm_90 if there is one, else
on the CPU executor. Needs torch.
"""

import torch
from torch import Tensor, nn
from torch.nn import functional

import cutegen

ROWS, WIDTH, HIDDEN = 40, 256, 256
BLOCK = (128, 128)


class Float8MLP(nn.Module):
    """down(silu(gate(x)) * up(x)) with weights of e4m3 and a factor for each 128 x 128, as checkpoints have them."""

    def __init__(self, gate_up: Tensor, down: Tensor) -> None:
        """Quantize the weights, (2 HIDDEN, WIDTH) and (WIDTH, HIDDEN)."""
        super().__init__()
        for name, weight in (("gate_up", gate_up), ("down", down)):
            values, factors = cutegen.quantize(weight, BLOCK)
            self.register_buffer(name, values)
            self.register_buffer(f"of_{name}", factors)

    def forward(self, x: Tensor) -> Tensor:
        """(ROWS, WIDTH) -> (ROWS, WIDTH) in bf16."""
        x8, of_x = cutegen.quantize(x)
        hidden, of_hidden = cutegen.matmul(
            x8,
            self.gate_up.T,
            scale_a=of_x,
            scale_b=self.of_gate_up.T,
            activation="swiglu",
            pairs="halves",
            first="gate",
            quantize="e4m3",
        )
        return cutegen.matmul(hidden, self.down.T, scale_a=of_hidden, scale_b=self.of_down.T)


def exact(x: Tensor, gate_up: Tensor, down: Tensor) -> Tensor:
    """Return the same in float64."""
    gate, up = (x.double() @ gate_up.double().T).chunk(2, -1)
    return (functional.silu(gate) * up) @ down.double().T


def dequantized(values: Tensor, factors: Tensor) -> Tensor:
    """Return a weight in float64, each block multiplied by its factor."""
    return values.double() * factors.double().repeat_interleave(BLOCK[0], 0).repeat_interleave(BLOCK[1], 1)


def main() -> None:
    """Compare the layer with float64."""
    torch.manual_seed(0)
    on_gpu = torch.cuda.is_available() and torch.cuda.get_device_capability() == (9, 0)
    device = "cuda" if on_gpu else "cpu"
    x = torch.randn(ROWS, WIDTH, device=device)
    gate_up = torch.randn(2 * HIDDEN, WIDTH, device=device) / WIDTH**0.5
    down = torch.randn(WIDTH, HIDDEN, device=device) / HIDDEN**0.5
    layer = Float8MLP(gate_up, down)
    with cutegen.matmul_settings(cpu_tensors="executor"):
        found = layer(x).double()
    of_values = dequantized(layer.gate_up, layer.of_gate_up), dequantized(layer.down, layer.of_down)
    for name, weights in (("the quantized weights", of_values), ("the weights before", (gate_up, down))):
        wanted = exact(x, *weights)
        error = ((found - wanted).norm() / wanted.norm()).item()
        print(f"{ROWS} rows, against {name} in float64: relative error {error:.1e}")
        assert error < 2.0**-3, "four tensors are rounded to 4 bits"


if __name__ == "__main__":
    main()
