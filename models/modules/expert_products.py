"""Products of rows with the matrices of their experts."""

from collections.abc import Iterator
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional


def expert_products(matrices: Tensor, given: Tensor, experts: Tensor) -> Tensor:
    """Each row times the matrix of its expert, shape (rows, outputs).

    Nothing but its arguments is kept for the backward, so that rows that were gathered can be gathered again.

    Parameters
    ----------
    matrices
        Shape (experts, outputs, inputs).
    given
        Shape (rows, inputs).
    experts
        Index of a matrix for each row.
    """
    apply: Any = _ExpertProducts.apply
    made: Tensor = apply(matrices, given, experts)
    return made


class _ExpertProducts(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, matrices: Tensor, given: Tensor, experts: Tensor) -> Tensor:
        ctx.save_for_backward(matrices, given, experts)
        made = given.new_zeros(len(given), matrices.shape[1])
        for index, rows in _rows_of(experts, len(matrices)):
            made[rows] = functional.linear(given[rows], matrices[index]).to(made.dtype)
        return made

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor | None, ...]:
        (gradient,), (matrices, given, experts) = gradients, ctx.saved_tensors
        of_matrices, of_given = torch.zeros_like(matrices), torch.zeros_like(given)
        for index, rows in _rows_of(experts, len(matrices)):
            own = gradient[rows]
            of_given[rows] = own @ matrices[index]
            of_matrices[index] = own.T @ given[rows]
        return of_matrices, of_given, None


def _rows_of(experts: Tensor, num_experts: int) -> Iterator[tuple[int, Tensor]]:
    for index in range(num_experts):
        yield index, (experts == index).nonzero().squeeze(-1)
