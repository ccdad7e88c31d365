"""What devices that divide a product evenly have to communicate at least, whatever the strategy."""

from collections.abc import Iterable
from math import sqrt

from stagecut.planner.core.operators.operators import Operator


def least_words(rows: float, columns: float, inner: float, *, num_devices: int) -> float:
    """Least numbers that some device sends or receives for a product, of matrices of which there is one copy.

    With m >= n >= k the three sizes in falling order and P devices, each of which computes its P-th part and holds a
    P-th part of the two factors and of the product (Al Daas et al., arXiv 2205.13407):

        D - (m n + m k + n k) / P,   D = n k + (m n + m k) / P             where P <= m / n,
                                     D = m n / P + 2 sqrt(m n k^2 / P)     where m / n <= P <= m n / k^2,
                                     D = 3 (m n k / P)^(2/3)               beyond.
    """
    m, n, k = sorted((rows, columns, inner), reverse=True)
    owned = (m * n + m * k + n * k) / num_devices
    if num_devices <= m / n:
        touched = n * k + (m * n + m * k) / num_devices
    elif num_devices <= m * n / k**2:
        touched = m * n / num_devices + 2 * sqrt(m * n * k**2 / num_devices)
    else:
        touched = 3 * (m * n * k / num_devices) ** (2 / 3)
    return max(0.0, touched - owned)


def least_iteration_bytes(
    operators: Iterable[Operator], *, global_batch: int, num_devices: int, element_bytes: float
) -> float:
    """Least bytes that some device sends per iteration for the linear operators of a model, if it computes a P-th part.

    Forward Y = X W and the gradients dX = dY W', dW = X' dY of an operator run over the same loop. A device that
    computes the same part of all three receives what it lacks of X, W and dY and passes on its summands of Y, dX and
    dW, each at least once per iteration however many micro-batches there are: twice the bound for a product of the
    whole global batch. Bounds of operators add up. Other operators count nothing, and strategies in which devices
    compute the same may be below.
    """
    products = (_sizes(operator, element_bytes) for operator in operators if operator.kind == "linear")
    words = (
        least_words(global_batch * rows, columns, inner, num_devices=num_devices) for rows, columns, inner in products
    )
    return 2 * element_bytes * sum(words)


def _sizes(operator: Operator, element_bytes: float) -> tuple[float, float, float]:
    """Rows per sample, columns and inner size of a linear operator, from its matrix, its FLOPs and what it makes."""
    matrix = max(weight.num_bytes for weight in operator.weights) / element_bytes
    rows = operator.forward_flops / (2 * matrix)
    columns = sum(tensor.num_bytes for tensor in operator.outputs) / element_bytes / rows
    return rows, columns, matrix / columns
