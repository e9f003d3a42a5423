"""Muon for many small matrices: those of one shape are orthogonalized together.

torch.optim.Muon takes one matrix after another, and only what has two dimensions: with the demo model a GPU then waits
for thousands of small kernels to be started, and the experts (one tensor for all of them) have to do without.
The rule is the same (K. Jordan and others, "Muon: An optimizer for hidden layers in neural networks", 2024; learning
rates as AdamW's, by J. Liu and others, "Muon is scalable for LLM training", 2025), and so are the updates.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterable

import torch

# Quintic Newton-Schulz iteration: steep at zero, so that few steps suffice; singular values end between 0.7 and 1.2.
_COEFFICIENTS = (3.4445, -4.7750, 2.0315)
_STEPS = 5
_EPS = 1e-7


class BatchedMuon(torch.optim.Optimizer):
    """Parameters are matrices [a, b], or stacks of matrices [n, a, b] of which each counts by itself."""

    def __init__(
        self, params: Iterable[torch.nn.Parameter], lr: float, weight_decay: float, momentum: float = 0.95
    ) -> None:
        super().__init__(params, {"lr": lr, "weight_decay": weight_decay, "momentum": momentum})

    @torch.no_grad()
    def step(self, closure: None = None) -> None:
        for group in self.param_groups:
            by_shape: dict[torch.Size, list[torch.nn.Parameter]] = defaultdict(list)
            for parameter in group["params"]:
                if parameter.grad is not None:
                    by_shape[parameter.shape].append(parameter)
            for shape, members in by_shape.items():
                gradients = [member.grad for member in members]
                momenta = [self._momentum(member) for member in members]
                torch._foreach_lerp_(momenta, gradients, 1 - group["momentum"])
                ahead = torch._foreach_lerp(gradients, momenta, group["momentum"])
                update = orthogonalized(torch.stack(list(ahead)))
                # Then an update's root mean square is 0.2 of the rate, about as AdamW's is.
                rate = group["lr"] * 0.2 * math.sqrt(max(shape[-2:]))
                torch._foreach_mul_(members, 1 - group["lr"] * group["weight_decay"])
                torch._foreach_add_(members, list(update.to(members[0].dtype).unbind()), alpha=-rate)

    def _momentum(self, parameter: torch.nn.Parameter) -> torch.Tensor:
        state = self.state[parameter]
        if "momentum" not in state:
            state["momentum"] = torch.zeros_like(parameter)
        return state["momentum"]


def orthogonalized(matrices: torch.Tensor) -> torch.Tensor:
    """[..., a, b] -> bfloat16 [..., a, b]: all singular values near one, singular vectors as before."""
    first, second, third = _COEFFICIENTS
    a, b = matrices.shape[-2:]
    x = matrices.bfloat16().reshape(-1, a, b)
    if a > b:
        x = x.mT
    x = x / x.norm(dim=(-2, -1), keepdim=True).clamp(min=_EPS)
    for _ in range(_STEPS):
        gram = x @ x.mT
        x = torch.baddbmm(x, torch.baddbmm(gram, gram, gram, beta=second, alpha=third), x, beta=first)
    return (x.mT if a > b else x).reshape(matrices.shape)
