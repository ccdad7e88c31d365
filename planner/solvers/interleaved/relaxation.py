"""Bounds on the rows of interleaved plans from weights on linear forms.

Take non-negative weights u_i of the rows with sum 1 and w_d of the memory use of each device group. Then

    sum_i u_i row_i + sum_d w_d (use_d - 1)

is a lower bound on the largest row of every plan that fits, and linear in the costs of the stages. Its
least value over all cuts is a shortest path over (stage, boundary); each stage chooses its recompute
mode for itself there, which relaxes the program further.

Weights are found by cutting planes: a linear program finds the best ones for the cuts met so far, and
the least cut under them is added. The bound holds for any weights.
"""

from dataclasses import dataclass

import numpy as np

from stagecut.planner.core.numerics.arrays import Floats
from stagecut.planner.core.numerics.tolerances import MEMORY_ROUNDING
from stagecut.planner.solvers.interleaved.costs import OF_LAYERS, ChunkCosts, Cost
from stagecut.planner.solvers.interleaved.critical_paths import CriticalPaths
from stagecut.planner.solvers.interleaved.linear_rows import average_weights
from stagecut.planner.solvers.search.highs import LinearProgram, solve_linear
from stagecut.planner.solvers.search.options import StopCheck

# Half or twice each of these changed neither plan nor bound for gpt-mini on mixed-server-8.
MAX_ROUNDS, FEWEST_ROUNDS, ROUND_COEFFICIENTS = 24, 6, 2_000_000
"""Rounds of cutting planes; fewer where they would handle more coefficients of rows in all."""
PRECISION = 1e-4
"""Relative difference to the linear program's value at which the weights are good enough. Half and twice this, and of
`MOST_WEIGHT`, changed no plan on gpt-mini and bert-large on mixed-server-8 and vit-large on h100-8, and bounds by
0.02 % at most."""
MOST_WEIGHT = 1e3
"""Upper limit on the weight of a memory use, in units of the iteration time."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Relaxation:
    """Weights, and what they prove."""

    form: Floats
    """The weighted sum of all rows and memory uses, shape (S, costs)."""
    constant_s: float
    """Minus the sum of the weights of memory."""
    of_rows: Floats
    """The weights of the rows, with sum 1, shape (rows,)."""
    found: Floats
    """Further rows that critical paths gave; their weights are the last ones, shape (n, S, costs)."""
    bound_s: float
    """Infinite where no plan fits in memory."""


def least_values(chunks: ChunkCosts, forms: Floats) -> Floats:
    """Least value of each form over the stages to come, shape (S + 1, L + 1, forms).

    Entry (s, j) is for stages s .. S - 1 on layers j .. L - 1; infinite where these are too few or left over.
    Backwards over the stages, with P the prefix sums of a stage's own costs,

        value(s, j) = min over modes and stops i > j of  P(i) - P(j) + transfer(s, i) + value(s + 1, i),

    where the minimum over i is a running minimum from the right: O(S L forms) in all.

    Parameters
    ----------
    forms
        Shape (forms, S, costs).
    """
    num_stages, num_layers = forms.shape[1], chunks.num_layers
    values = np.full((num_stages + 1, num_layers + 1, len(forms)), np.inf)
    values[num_stages, num_layers] = 0.0
    for stage in range(num_stages - 1, -1, -1):
        # P(j) does not depend on the stop i, so one running minimum over i serves every start j.
        behind = values[stage + 1] + np.outer(chunks.transfer_s[stage], forms[:, stage, Cost.TRANSFER])
        for prefix in chunks.prefix:
            so_far = prefix.T @ forms[:, stage, :OF_LAYERS].T
            least = np.minimum.accumulate((so_far + behind)[:0:-1], axis=0)[::-1]
            values[stage, :-1] = np.minimum(values[stage, :-1], least - so_far[:-1])
        values[stage] += forms[:, stage, :OF_LAYERS] @ chunks.offset
    return values


def relax(
    chunks: ChunkCosts,
    rows: Floats,
    *,
    scale_s: float,
    enough_s: float,
    time_limit_s: float,
    stop: StopCheck,
    paths: CriticalPaths | None = None,
) -> Relaxation:
    """Good weights on rows of shape (rows, S, costs), by cutting planes from averages over the device groups.

    With `paths`, the critical path of every cut on the way is one more row, if it is the largest one there.
    The linear program has `scale_s`, an iteration time near the bound, as its unit; a bound of `enough_s` ends it all.
    """
    program = _Weights(chunks, rows, scale_s, paths)
    candidates = program.averages
    best, best_s = candidates[0], -np.inf
    for _ in range(max(FEWEST_ROUNDS, min(MAX_ROUNDS, ROUND_COEFFICIENTS // rows[..., 0].size))):
        for weights in candidates:
            value_s = program.price(weights)
            if value_s > best_s:
                best, best_s = weights, value_s
        if stop() or best_s >= enough_s:
            break
        found = program.best_weights(time_limit_s, stop)
        if found is None or found[1] - best_s <= PRECISION * abs(found[1]):
            break
        candidates = [found[0], (found[0] + program.padded(best)) / 2]
    best = program.padded(best)
    form, constant_s = program.weighted(best)
    return Relaxation(
        form=form,
        constant_s=constant_s,
        of_rows=best[~program.is_memory],
        found=program.found,
        bound_s=np.inf if program.shows_no_fit(best) else max(0.0, best_s),
    )


class _Weights:
    """The linear program: max t subject to t <= weighted sum at every cut met so far.

    Weights are one array, those of the rows first, which sum to one, then those of memory in seconds.
    """

    def __init__(self, chunks: ChunkCosts, rows: Floats, scale_s: float, paths: CriticalPaths | None) -> None:
        memory = chunks.memory_forms() if np.isfinite(chunks.limit_bytes) else rows[:0]
        self._chunks, self._scale_s, self._paths = chunks, scale_s, paths
        self._forms = np.concatenate((rows, memory))
        self.is_memory = np.arange(len(self._forms)) >= len(rows)
        self._first_found = len(self._forms)
        self._costs = np.empty((0, *rows.shape[1:]))
        self._cuts = np.empty((0, len(self._forms)))

    @property
    def found(self) -> Floats:
        """The rows of critical paths, shape (n, S, costs)."""
        return self._forms[self._first_found :]

    def padded(self, weights: Floats) -> Floats:
        """With zeros for the rows found since."""
        return np.pad(weights, (0, len(self._forms) - len(weights)))

    @property
    def averages(self) -> list[Floats]:
        """The weights to begin with."""
        averages = average_weights(self._chunks.shape, int(np.count_nonzero(~self.is_memory)))
        return [np.concatenate((weights, np.zeros(np.count_nonzero(self.is_memory)))) for weights in averages]

    def weighted(self, weights: Floats) -> tuple[Floats, float]:
        """The weighted sum, shape (S, costs), and its constant."""
        return np.tensordot(weights, self._forms, axes=1), -float(weights[self.is_memory].sum())

    def price(self, weights: Floats) -> float:
        """The bound that weights give; the cut where it is attained is one more to respect."""
        form, constant_s = self.weighted(self.padded(weights))
        values = least_values(self._chunks, form[None])[..., 0]
        costs = _least_cut(self._chunks, form, values)
        self._costs = np.concatenate((self._costs, costs[None]))
        own = np.tensordot(self._forms, costs, axes=2) - self.is_memory
        self._cuts = np.concatenate((self._cuts, own[None]))
        if self._paths is not None and np.isfinite(costs).all():
            row = self._paths.row(costs)
            if np.sum(row * costs) > own[~self.is_memory].max() * (1 + PRECISION):
                self._forms, self.is_memory = np.concatenate((self._forms, row[None])), np.append(self.is_memory, False)
                self._cuts = np.column_stack((self._cuts, np.tensordot(self._costs, row, axes=2)))
        return float(values[0, 0]) + constant_s

    def shows_no_fit(self, weights: Floats) -> bool:
        """Whether even the least use of memory, by the weights, is above what there is."""
        form, constant_s = self.weighted(np.where(self.is_memory, weights, 0.0))
        return float(least_values(self._chunks, form[None])[0, 0, 0]) > -constant_s * (1 + MEMORY_ROUNDING)

    def best_weights(self, time_limit_s: float, stop: StopCheck) -> tuple[Floats, float] | None:
        """The weights with the largest bound over the cuts so far, and that bound; None if HiGHS found none."""
        scale = np.where(self.is_memory, self._scale_s, 1.0)
        matrix = np.column_stack((-self._cuts * scale / self._scale_s, np.ones(len(self._cuts))))
        matrix = np.vstack((matrix, np.append(~self.is_memory, 0.0)))
        row, column = np.nonzero(matrix)
        limits = np.append(np.where(self.is_memory, MOST_WEIGHT, 1.0), MOST_WEIGHT)
        program = LinearProgram(
            cost=-np.eye(len(limits))[-1],
            lower=np.zeros(len(limits)),
            upper=limits,
            row_lower=np.append(np.full(len(self._cuts), -np.inf), 1.0),
            row_upper=np.append(np.zeros(len(self._cuts)), 1.0),
            entry_row=row,
            entry_column=column,
            entry_value=matrix[row, column],
        )
        answer = solve_linear(program, time_limit_s=time_limit_s, stop=stop)
        weights = np.maximum(0.0, answer.columns[:-1])
        total = float(weights[~self.is_memory].sum())
        if not 0.5 < total < 2:
            return None
        return weights * np.where(self.is_memory, self._scale_s, 1 / total), -answer.objective * self._scale_s


def _least_cut(chunks: ChunkCosts, form: Floats, values: Floats) -> Floats:
    """Costs of the stages of the cut of the least value, shape (S, costs)."""
    start, costs = 0, np.zeros(form.shape)
    for stage in range(len(form)):
        stop = np.arange(start + 1, chunks.num_layers + 1)
        options = np.array(
            [
                chunks.of(stage, np.full(len(stop), start), stop, np.full(len(stop), mode))
                for mode in range(len(chunks.recompute))
            ]
        )
        through = options @ form[stage] + values[stage + 1, stop]
        mode, index = np.unravel_index(int(through.argmin()), through.shape)
        start, costs[stage] = int(stop[index]), options[mode, index]
    return costs
