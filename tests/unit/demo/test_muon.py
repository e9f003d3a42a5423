"""The batched optimizer makes torch.optim.Muon's steps, and treats every matrix of a stack as one by itself."""

from __future__ import annotations

import torch

from demo.muon import BatchedMuon, orthogonalized

SHAPES = ((24, 40), (24, 40), (40, 24), (32, 32), (64, 8))


def steps(make, parameters, gradients):
    optimizer = make(parameters)
    for of_step in gradients:
        for parameter, gradient in zip(parameters, of_step, strict=True):
            parameter.grad = gradient.clone()
        optimizer.step()


def test_steps_are_those_of_torch():
    start = [torch.randn(shape) for shape in SHAPES]
    gradients = [[torch.randn(shape) for shape in SHAPES] for _ in range(4)]
    ours = [torch.nn.Parameter(value.clone()) for value in start]
    theirs = [torch.nn.Parameter(value.clone()) for value in start]
    steps(lambda p: BatchedMuon(p, 0.02, 0.1), ours, gradients)
    steps(
        lambda p: torch.optim.Muon(p, 0.02, weight_decay=0.1, momentum=0.95, adjust_lr_fn="match_rms_adamw"),
        theirs,
        gradients,
    )
    for mine, other, before in zip(ours, theirs, start, strict=True):
        moved = (other - before).norm()
        assert (mine - other).norm() < 0.02 * moved  # both orthogonalize in bfloat16


def test_a_stack_of_matrices_is_each_of_them():
    stack, gradients = torch.randn(3, 16, 24), [torch.randn(3, 16, 24) for _ in range(3)]
    together = torch.nn.Parameter(stack.clone())
    alone = [torch.nn.Parameter(matrix.clone()) for matrix in stack]
    steps(lambda p: BatchedMuon(p, 0.02, 0.1), [together], [[gradient] for gradient in gradients])
    steps(lambda p: BatchedMuon(p, 0.02, 0.1), alone, [list(gradient) for gradient in gradients])
    torch.testing.assert_close(together.detach(), torch.stack([one.detach() for one in alone]))


def test_singular_values_come_near_one():
    for shape in SHAPES:
        values = torch.linalg.svdvals(orthogonalized(torch.randn(shape)).float())
        assert values.min() > 0.5
        assert values.max() < 1.4


def test_a_parameter_without_gradient_stays_and_may_learn_later():
    early, late = torch.nn.Parameter(torch.ones(4, 4)), torch.nn.Parameter(torch.ones(4, 4))
    optimizer = BatchedMuon([early, late], 0.1, 0.1)
    early.grad = torch.randn(4, 4)
    optimizer.step()
    assert (late == 1).all()
    late.grad = torch.randn(4, 4)
    optimizer.step()
    assert (late != 1).any()
