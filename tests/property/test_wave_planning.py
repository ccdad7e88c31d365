"""Plans of virtual workers against the enumeration of all of them, with rates from the simulator."""

from hypothesis import given, settings
from hypothesis import strategies as st

from stagecut.planner.core.job import AUTO, Job, Optimizer, Recompute, WaveChoices
from stagecut.planner.core.precision import Precision
from stagecut.planner.core.problem import Problem
from stagecut.planner.core.result import Status
from stagecut.planner.core.waves import Carrier, LocalStep, ShardPlacement
from stagecut.planner.cost.waves.wave_costs import WaveCostModel
from stagecut.planner.cost.waves.wave_legality import wave_faults
from stagecut.planner.solvers.search.options import SolveOptions
from stagecut.planner.workers.solving import solve_waves
from tests.property.strategies import TYPE_NAMES, clusters, models
from tests.wave_oracle import best_by_enumeration

GAP = 1e-3
SLACK = 1e-6
"""Of throughputs: where no state returns, the simulator takes a mean over many waves."""


@st.composite
def wave_problems(draw, *, max_devices=3, max_layers=3, tables=True, local_steps=tuple(LocalStep)):
    """Tiny problems of every kind of wave; N_m is open only where pipelines have two stages at most."""
    local_step = draw(st.sampled_from(local_steps))
    num_devices = draw(st.integers(1, max_devices))
    choices = WaveChoices(
        clock_distance=draw(st.integers(0, 2)),
        in_flight=draw(st.sampled_from((AUTO, AUTO, 1, 2, 3) if num_devices < 3 else (1, 2, 3))),
        num_workers=draw(st.sampled_from((AUTO, AUTO, 1, 2))),
        shards=draw(st.sampled_from(ShardPlacement)),
        carrier=draw(st.sampled_from(Carrier)),
        local_step=local_step,
    )
    return Problem(
        model=draw(models(max_layers=max_layers, measured=TYPE_NAMES)),
        cluster=draw(clusters(max_devices=num_devices, tables=tables)),
        job=Job(
            global_batch=draw(st.sampled_from((2, 4, 8, 12))),
            optimizer=Optimizer(name="small", weight_bytes=1.0, gradient_bytes=1.0, state_bytes=2.0),
            precision=Precision.FP16,
            micro_batches=(2,),
            replicas=(1,),
            tensor_parallel=(1,),
            pipelines=(1,),
            recompute=draw(st.sampled_from(Recompute)),
            waves=choices,
        ),
    )


def solved(problem, **options):
    """Without a time limit, so that the answer is always the same."""
    return solve_waves(problem, SolveOptions(gap=GAP, time_limit_s=None, **options))


@settings(max_examples=20)
@given(wave_problems())
def test_no_plan_of_all_exceeds_the_bound_and_none_is_missed(problem):
    result = solved(problem)
    best, plan = best_by_enumeration(problem)
    assert (result.status is Status.INFEASIBLE) == (plan is None), result
    if plan is None:
        assert result.reason
        return
    assert wave_faults(WaveCostModel(problem), result.plan, problem.job.waves) == ()
    # The order of workers, which the enumeration leaves out, decides who is served first.
    assert result.samples_per_s >= best * (1 - GAP - SLACK), plan
    if best < float("inf"):
        assert best <= result.bound_samples_per_s * (1 + SLACK), plan
