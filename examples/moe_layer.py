"""A mixture of experts as two grouped products, against a loop over the experts in float64, with gradients.

No step reads the number of rows of an expert on the host: the ends go from the router's counts to the kernels on the
device. On a machine with a GPU, add device="cuda", and the same code runs there. Needs torch.
"""

import torch
from torch import Tensor, nn
from torch.nn import functional

import cutegen

TOKENS, WIDTH, HIDDEN, EXPERTS, CHOSEN = 96, 64, 48, 8, 2


class Experts(nn.Module):
    """Each token goes through the `CHOSEN` experts with the largest weights: down(silu(gate(x)) * up(x))."""

    def __init__(self, dtype: torch.dtype = torch.bfloat16) -> None:
        super().__init__()
        self.router = nn.Linear(WIDTH, EXPERTS, bias=False)
        self.gate_up = nn.Parameter(torch.randn(EXPERTS, 2 * HIDDEN, WIDTH).to(dtype) / WIDTH**0.5)
        self.down = nn.Parameter(torch.randn(EXPERTS, WIDTH, HIDDEN).to(dtype) / HIDDEN**0.5)

    def routed(self, x: Tensor) -> tuple[Tensor, Tensor]:
        """Return the weights and the numbers of each token's experts, (T, CHOSEN)."""
        weights, experts = self.router(x.float()).softmax(-1).topk(CHOSEN)
        return weights / weights.sum(-1, keepdim=True), experts

    def forward(self, x: Tensor) -> Tensor:
        """(T, WIDTH) -> (T, WIDTH)."""
        weights, experts = self.routed(x)
        order = experts.flatten().argsort(stable=True)  # rows of one expert follow one another
        ends = functional.one_hot(experts.flatten(), EXPERTS).sum(0).cumsum(0).to(torch.int32)
        rows = x[order // CHOSEN]
        rows = cutegen.grouped_mm(rows, self.gate_up.mT, offs=ends, activation="swiglu", pairs="halves", first="gate")
        rows = cutegen.grouped_mm(rows, self.down.mT, offs=ends)
        weighted = rows.float() * weights.flatten()[order, None]
        return torch.zeros(x.shape, device=x.device).index_add(0, order // CHOSEN, weighted)

    def looped(self, x: Tensor) -> Tensor:
        """The same in float64, one expert after the other, with the router as it is."""
        weights, experts = self.routed(x)
        out = torch.zeros(x.shape, dtype=torch.float64, device=x.device)
        for expert in range(EXPERTS):
            token, place = (experts == expert).nonzero(as_tuple=True)
            gate, up = (x[token].double() @ self.gate_up[expert].double().T).chunk(2, -1)
            rows = (functional.silu(gate) * up) @ self.down[expert].double().T
            out = out.index_add(0, token, rows * weights[token, place, None].double())
        return out


def main() -> None:
    """Compare results and gradients of both."""
    torch.manual_seed(0)
    layer, x = Experts(), torch.randn(TOKENS, WIDTH, dtype=torch.bfloat16)
    target = torch.randn(TOKENS, WIDTH)
    gradients = []
    for run in (layer, layer.looped):
        layer.zero_grad()
        found = run(x)
        (found * target).sum().backward()
        gradients.append({name: weight.grad.double().clone() for name, weight in layer.named_parameters()})
        if run is layer:
            mine = found
    with torch.no_grad():
        error = ((mine - found).norm() / found.norm()).item()
    print(f"{TOKENS} tokens, {EXPERTS} experts, {CHOSEN} for each: relative error {error:.1e}")
    for name in gradients[0]:
        one, other = (each[name] for each in gradients)
        print(f"gradient of {name}: relative error {((one - other).norm() / other.norm()).item():.1e}")
    assert error < 2.0**-6, "bf16 has 8 bits"


if __name__ == "__main__":
    main()
