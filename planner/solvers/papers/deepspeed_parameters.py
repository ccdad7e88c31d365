"""Stages with equally many parameters: DeepSpeed's pipelines at their default.

DeepSpeed (Microsoft; `PipelineModule(partition_method="parameters")`, the default) cuts a list of layers into p stages
by the number w_l of trainable parameters of each,

    min over cuts of max over stages of  sum of w_l over the layers of the stage,

and runs 1F1B on p x d devices, with d-fold data parallelism; times and memory play no part. A limit on that sum
suffices if stages that are filled up to it one after another take all layers; the smallest such limit is searched for.

Approximated here: the search is over the sums of all runs of layers, so that the largest stage is exactly the least
possible. (The published code has had two forms: first this one, ending at a limit within a tolerance, later a dynamic
program on the spread between the largest and the smallest stage.) Every stage keeps a layer. A weight that two layers
share counts in both, as in DeepSpeed. There, p, d and the micro-batch size are set by hand: here all are tried over all
devices, without tensor parallelism, and the simulator picks. ZeRO-1 and recomputation are the job's choice.
"""

import bisect
import itertools

import numpy as np

from stagecut.planner.core.model import ModelProfile
from stagecut.planner.core.numerics.arrays import Floats
from stagecut.planner.core.numerics.tolerances import EQUAL_WEIGHTS
from stagecut.planner.core.plan import Plan
from stagecut.planner.core.problem import Problem
from stagecut.planner.core.result import OwnObjective, Result
from stagecut.planner.solvers.papers.uniform.intervals import held_weight_bytes
from stagecut.planner.solvers.papers.uniform.variants import uniform_variants
from stagecut.planner.solvers.search.refusals import require_single_devices
from stagecut.planner.solvers.search.search import Search

NAME = "deepspeed-parameters"
OBJECTIVE = "parameters of the largest stage"


def solve(problem: Problem, search: Search) -> Result:
    """The fastest plan with balanced parameters; proves nothing.

    Raises
    ------
    UnsupportedError
        If the job does not allow 1F1B without tensor parallelism, or the cluster's servers differ in size.
    """
    require_single_devices(problem, NAME)
    params = layer_params(problem.model)
    plans = (
        uniform.plans_on_all_devices(
            variant, lambda p: lightest_stops(params, p), most_stages=len(params), degrees=(1,)
        )
        for variant, uniform in uniform_variants(search, NAME)
        if not search.out_of_budget
    )

    def largest_stage(plan: Plan) -> OwnObjective:
        most = max(float(params[stage.start : stage.stop].sum()) for stage in plan.stages)
        return OwnObjective(name=OBJECTIVE, value=most)

    search.offer_by_bound([*itertools.chain.from_iterable(plans)], largest_stage)
    return search.result(NAME, proves=False)


def layer_params(model: ModelProfile) -> Floats:
    """Parameters of every layer, those it shares with another one included, shape (L,)."""
    return held_weight_bytes(model) / model.precision.num_bytes


def lightest_stops(weights: Floats, num_stages: int) -> list[int]:
    """Stops of non-empty stages whose heaviest is as light as possible; layers count equally if none has weight.

    `weights` has one per layer, not negative, shape (L,); there are at most L stages.
    """
    sums = np.concatenate(([0.0], np.cumsum(weights if weights.any() else np.ones(len(weights)))))
    limits = np.unique((sums[None, :] - sums[:, None])[np.triu_indices(len(sums), k=1)])
    # A limit suffices if a smaller one does.
    least = bisect.bisect_left(limits, 1, key=lambda limit: _filled(sums, num_stages, limit) is not None)
    stops = _filled(sums, num_stages, limits[least])
    assert stops is not None
    return stops


def _filled(sums: Floats, num_stages: int, limit: float) -> list[int] | None:
    """Stops of stages filled up to the limit one after another; None if the limit is too small."""
    num_layers, stops, start = len(sums) - 1, list[int](), 0
    for left in range(num_stages - 1, -1, -1):
        stop = int(np.searchsorted(sums, sums[start] + limit + EQUAL_WEIGHTS * sums[-1], side="right")) - 1
        stop = min(stop, num_layers - left)
        if stop == start:
            return None
        stops.append(stop)
        start = stop
    return stops if start == num_layers else None
