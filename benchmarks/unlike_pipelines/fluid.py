"""The fluid bound: no set of synchronous pipelines of any shapes over the same devices is faster.

**What it covers.** Any number of pipelines that share the N samples of an iteration in any way. Each is a chain of
stages; a stage has layers [a, b) and r replicas of t devices of one island each, and every device has one stage. A
pipeline has a micro-batch size of its own among the job's, any schedule of whole micro-batches, and costs as in
docs/cost_model.md. Gradients are summed over all holders of a layer; then each holder makes its optimizer step. Alike
pipelines are among these.

**What holds for the t devices of a replica.** Let its pipeline take a share f of the samples, let the replica compute n
of them, u at a time, in F + B seconds a time, and let W be the sum of F + B of the stages before it, of which the
forwards are at least a part phi. In an iteration of T seconds

    W + n (F + B) / u          <= T    the first micro-batch comes, the replica works, the last gradient goes home
    phi W + n (F + B) / u + g  <= T    the first micro-batch comes, the replica works, then g: gradients summed, step

(rows *busy* and *sync* of docs/bounds.md: their derivations use only that a stage does one thing at a time). Hence
n <= u / (F + B) min(T - W, T - phi W - g), and the stage has at least f N t / (largest n) devices.

- u divides a micro-batch size. The t devices have all links of the cluster to themselves. The stage fits in memory
  with one micro-batch in flight, and recomputes only where it does not fit without.
- A layer with several holders costs each of them an all-reduce: all its gradients have to arrive at least once,
  2 (h - 1) / h >= 1 times with h holders, no faster than the best link of the host. There is only one holder if a
  single replica computes all N samples; g is the optimizer step alone then, and the stage has t devices.

**The linear program.** A pipeline with share f is a path of such stages through all layers, and has at least f c_k
devices of island k, where c_k adds up the above. Shares add up to 1, and there are n_k devices:

    T is possible only if   min over shares of max over k of (sum of shares x c_k) / n_k  <=  1.

By duality T is impossible if for some prices lambda_k >= 0 that add up to 1 the shortest path by sum of lambda_k c_k /
n_k is longer than 1. Its graph has a node for each boundary between layers and each W, which is rounded down to a
multiple of T / STEPS and so only shortens paths. Prices come from a linear program over the paths found so far;
whatever they are, the shortest path is the proof. The bound is the largest T that was proven impossible.
"""

from collections.abc import Sequence

import numpy as np

from benchmarks.unlike_pipelines.stage_options import StageOption, num_devices, stage_options
from stagecut.planner.core.numerics.arrays import Floats, Ints
from stagecut.planner.core.numerics.tolerances import PATH_SUM
from stagecut.planner.core.problem import Problem
from stagecut.planner.solvers.search.highs import LinearProgram, solve_linear

STEPS = 96
PRECISION = 1e-3
"""Relative width of the interval in which the search for T ends."""
MAX_PATHS = 40
"""Shortest paths for one T; it counts as possible if they have not shown the contrary."""


def fluid_bound_s(problem: Problem, *, at_most_s: float) -> float:
    """Seconds that any iteration takes, up to `at_most_s`; see the module.

    Raises
    ------
    ValueError
        If the job allows what the derivation does not cover: halved or unequal micro-batches, ZeRO-1.
    """
    job = problem.job
    if job.slice != 0 or job.unequal or job.zero1:
        raise ValueError("the fluid bound holds for whole, equal micro-batches without ZeRO-1")
    program = FluidProgram(list(stage_options(problem)), num_devices(problem.cluster), num_samples=job.global_batch)
    if program.is_impossible(at_most_s):
        return at_most_s
    impossible_s, possible_s = 0.0, at_most_s
    while possible_s - impossible_s > PRECISION * at_most_s:
        middle_s = (impossible_s + possible_s) / 2
        if program.is_impossible(middle_s):
            impossible_s = middle_s
        else:
            possible_s = middle_s
    return impossible_s


class FluidProgram:
    """Whether an iteration time is impossible.

    Arrays over O options, and over first layer and end of a stage: shape (O, L + 1, L + 1).
    """

    def __init__(self, options: Sequence[StageOption], devices: Ints, *, num_samples: int) -> None:
        self.island = np.array([option.island for option in options])
        self.group = np.array([option.devices for option in options], dtype=float)
        self.pass_s = np.array([option.pass_s for option in options])
        self.work_s = num_samples * self.pass_s / np.array([[[option.samples]] for option in options])
        """Of a replica that computes all samples."""
        self.update_s = np.array([option.update_s for option in options])
        self.own_s = self.update_s + np.array([option.sync_s for option in options])
        self.forward_share = min(_forward_share(option) for option in options)
        self.devices = devices
        self.num_layers = self.pass_s.shape[1] - 1
        self.prices = np.full(len(devices), 1 / len(devices))

    def is_impossible(self, seconds: float) -> bool:
        """Whether prices were found that prove it."""
        paths: list[Floats] = []
        for _ in range(MAX_PATHS):
            length, counts = self.shortest_path(seconds, self.prices)
            if length * (1 - PATH_SUM) > 1:
                return True
            paths.append(counts / self.devices)
            self.prices, longest = best_prices(np.array(paths))
            if longest <= 1:
                return False
        return False

    def shortest_path(self, seconds: float, prices: Floats) -> tuple[float, Floats]:
        """Length of the shortest path, and its devices of each island, shape (K,); infinite if there is no path."""
        start = (np.arange(STEPS) * (seconds / STEPS)).astype(float)
        lengths = np.full((self.num_layers + 1, STEPS + 1), np.inf)
        lengths[-1] = 0.0
        choices = np.zeros((self.num_layers, STEPS), dtype=int)
        price = (prices / self.devices)[self.island]
        for first in reversed(range(self.num_layers)):
            own = price[:, None, None] * self._devices(first, seconds, start)
            steps = self._steps(first, seconds)[:, :, None] + np.arange(STEPS)
            ends = np.arange(first + 1, self.num_layers + 1)[:, None]
            totals = (own + lengths[ends, np.minimum(steps, STEPS)]).reshape(-1, STEPS)
            choices[first] = totals.argmin(axis=0)
            lengths[first, :STEPS] = totals.min(axis=0)
        return float(lengths[0, 0]), self._counts(seconds, choices)

    def _devices(self, first: int, seconds: float, start_s: Floats) -> Floats:
        """Devices of a stage that begins with a layer, by option, end and W, for a share of 1; huge if impossible."""
        work_s = self.work_s[:, first, first + 1 :, None]
        before_s, phi = seconds - start_s, self.forward_share
        left_s = np.minimum(before_s, seconds - phi * start_s - self.own_s[:, first, first + 1 :, None])
        alone_s = np.minimum(before_s, seconds - phi * start_s - self.update_s[:, first, first + 1 :, None])
        with np.errstate(divide="ignore", invalid="ignore"):
            replicas = np.where((left_s > 0) & np.isfinite(work_s), work_s / left_s, HUGE)
        replicas = np.where(work_s <= alone_s, np.minimum(replicas, 1.0), replicas)
        return self.group[:, None, None] * replicas

    def _steps(self, first: int, seconds: float) -> Ints:
        """Steps by which a stage increases W, by option and end."""
        steps = np.minimum(self.pass_s[:, first, first + 1 :] * (STEPS / seconds), STEPS)
        return np.floor(steps).astype(int)

    def _counts(self, seconds: float, choices: Ints) -> Floats:
        """Devices of each island on the chosen path, for a share of 1."""
        counts, first, step = np.zeros(len(self.devices)), 0, 0
        while first < self.num_layers and step < STEPS:
            option, end = divmod(int(choices[first, step]), self.num_layers - first)
            start_s = np.array([step * seconds / STEPS])
            counts[self.island[option]] += self._devices(first, seconds, start_s)[option, end, 0]
            first, step = first + 1 + end, step + int(self._steps(first, seconds)[option, end])
        return counts


HUGE = 1e9
"""Devices of a stage that is impossible: more than any cluster has."""


def best_prices(paths: Floats) -> tuple[Floats, float]:
    """Prices that make the shortest of some paths longest, and its length; paths have shape (n, K).

    Maximise v over lambda >= 0 and v, subject to sum of lambda = 1 and v - lambda c <= 0 for each path c.
    """
    num_paths, num_islands = paths.shape
    rows, columns = np.indices((num_paths, num_islands))
    answer = solve_linear(
        LinearProgram(
            cost=np.append(np.zeros(num_islands), -1.0),
            lower=np.append(np.zeros(num_islands), -np.inf),
            upper=np.full(num_islands + 1, np.inf),
            row_lower=np.append(np.full(num_paths, -np.inf), 1.0),
            row_upper=np.append(np.zeros(num_paths), 1.0),
            entry_row=np.concatenate((rows.ravel(), np.arange(num_paths), np.full(num_islands, num_paths))),
            entry_column=np.concatenate((columns.ravel(), np.full(num_paths, num_islands), np.arange(num_islands))),
            entry_value=np.concatenate((-paths.ravel(), np.ones(num_paths), np.ones(num_islands))),
        ),
        time_limit_s=10.0,
        stop=lambda: False,
    )
    prices = np.maximum(answer.columns[:num_islands], 0.0)
    prices /= prices.sum()
    return prices, float((paths @ prices).min())


def _forward_share(option: StageOption) -> float:
    """The least part that forwards have of F + B, over all stages."""
    does_work = np.isfinite(option.pass_s) & (option.pass_s > 0)
    return float(np.min(option.forward_s[does_work] / option.pass_s[does_work], initial=1.0))
