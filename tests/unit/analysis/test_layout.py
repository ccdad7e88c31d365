"""Layouts made by hand: where their stages go, whether they fit, and what would help."""

import math

import pytest

from stagecut.planner.analysis.layout import Layout, plans_of, play_layout, stages_short
from stagecut.planner.analysis.layout_changes import fitting_changes
from stagecut.planner.core.cluster import Cluster, Island, Server
from stagecut.planner.core.job import Optimizer, Recompute
from stagecut.planner.core.messages.errors import BadInputError
from stagecut.planner.core.problem import Problem
from stagecut.planner.core.schedule import Schedule
from stagecut.planner.solvers.registry import run
from stagecut.planner.solvers.search.options import SolveOptions
from tests.catalogue import WEIGHTS_ONLY, chain, job, kinds

SHARDED = Optimizer(name="state", weight_bytes=1.0, gradient_bytes=0.0, state_bytes=1.0)


def problem(memory_bytes=math.inf, *, hosts=2, num_layers=4, batch=4, bytes_=None, **choices):
    """Hosts of two devices; a layer takes 1 s and has 2 parameters, kept in a byte each unless said otherwise."""
    server = Server(name="host", count=hosts, islands=(Island(device_type="gpu", count=2),))
    cluster = Cluster(name="pairs", device_types=kinds(gpu=memory_bytes), servers=(server,))
    own = {"params_bytes": 4.0} | (bytes_ or {})
    choices = {"optimizer": WEIGHTS_ONLY} | choices
    return Problem(model=chain(num_layers, {"gpu": 1.0}, **own), cluster=cluster, job=job(batch, **choices))


def stages(plan):
    return [(stage.start, stage.stop, stage.devices) for stage in plan.stages]


def test_layers_are_divided_equally_over_the_next_devices():
    (plan,) = plans_of(problem(num_layers=5), Layout(num_stages=3))
    assert stages(plan) == [(0, 1, ("host-0/0",)), (1, 3, ("host-0/1",)), (3, 5, ("host-1/0",))]


def test_cuts_and_group_sizes_are_taken_as_given():
    layout = Layout(num_stages=2, first_layers=(0, 3), replicas=(1, 2))
    (plan,) = plans_of(problem(micro_batch=2, replicas=(1, 2)), layout)
    assert stages(plan) == [(0, 3, ("host-0/0",)), (3, 4, ("host-1/0", "host-1/1"))]


def test_time_is_that_of_the_simulator():
    """Two stages of 2 s, 4 micro-batches, no transfers: (4 + 2 - 1) x 2 s."""
    assert play_layout(problem(), Layout(num_stages=2)).timeline.iteration_s == pytest.approx(10.0)


def test_the_even_split_is_a_layout():
    """The solver `even` puts equal layer counts on all four devices."""
    even = run(problem(num_layers=6), "even", SolveOptions())
    played = play_layout(problem(num_layers=6), Layout(num_stages=4))
    assert played.plan == even.plan
    assert played.timeline.iteration_s == even.objective_s


def test_pipelines_get_the_division_of_the_cluster_that_is_faster():
    """Two pipelines on a host each, or on a device of every host; without transfers both take as long."""
    plans = plans_of(problem(pipelines=(2,)), Layout(num_stages=2))
    assert [stages(plan)[1][2] for plan in plans] == [("host-0/1",), ("host-1/0",)]


def test_a_layout_that_does_not_fit_is_played_and_its_short_stages_told():
    """Stages of 1, 1 and 2 layers on devices with room for one: the last lacks the 2 bytes of a layer.

    It recomputes, although that does not suffice: 1 + 2 s for each of 4 micro-batches, after 0.5 + 0.5 s of forwards
    and before as much of backwards.
    """
    played = play_layout(problem(2.0), Layout(num_stages=3))
    assert stages_short(played.costs) == (2,)
    assert played.costs.memory_bytes.tolist() == [2.0, 2.0, 4.0]
    assert played.timeline.iteration_s == pytest.approx(1 + 4 * 3 + 1)


def test_under_auto_the_stages_recompute_that_would_not_fit_otherwise():
    """Saved bytes of 1 a sample and layer: 2 stages of 2 layers hold 2 x 2 and 1 x 2 of them, and 4 of weights."""
    layout, bytes_ = Layout(num_stages=2), {"saved_bytes": 1.0}
    played = play_layout(problem(7.0, bytes_=bytes_), layout)
    assert [stage.recompute for stage in played.plan.stages] == [True, False]
    assert stages_short(played.costs) == ()
    never = play_layout(problem(7.0, bytes_=bytes_, recompute=Recompute.NEVER), layout)
    assert stages_short(never.costs) == (0,)
    assert never.costs.memory_bytes.tolist() == [8.0, 6.0]


def test_stages_that_share_devices_lack_memory_once():
    layout = Layout(num_stages=4)
    shared = problem(3.0, schedule=Schedule.INTERLEAVED)
    assert stages_short(play_layout(shared, layout).costs) == (0, 1)


@pytest.mark.parametrize(
    ("layout", "message"),
    [
        (Layout(num_stages=5), "stages must be at most the 4 layers"),
        (Layout(num_stages=2, first_layers=(0, 4)), "cuts must be one first layer per stage"),
        (Layout(num_stages=2, first_layers=(1, 2)), "cuts must be one first layer per stage"),
        (Layout(num_stages=3, first_layers=(0, 2)), "cuts must be one first layer per stage"),
        (Layout(num_stages=2, replicas=(1, 1, 1)), "one for each of the 2 device groups"),
        (Layout(num_stages=2, replicas=(2,)), "replicas must be divisors of the micro-batch 1, got 2"),
        (Layout(num_stages=2, tensor_parallel=(2,)), "no layer of model 'chain' can be shared"),
        (Layout(num_stages=2, servers=("hosts",)), "servers must be some of host, each once, got 'hosts'"),
        (Layout(num_stages=4, first_layers=(0, 1, 2, 3), servers=("host", "host")), "each once"),
    ],
)
def test_contradictions_are_refused(layout, message):
    with pytest.raises(BadInputError, match=message):
        plans_of(problem(), layout)


def test_schedules_refuse_what_they_cannot_run():
    with pytest.raises(BadInputError, match="must be a multiple of the 2 chunks, got 3"):
        plans_of(problem(schedule=Schedule.INTERLEAVED), Layout(num_stages=3))
    with pytest.raises(BadInputError, match="multiple of the 2 device groups, got 3"):
        plans_of(problem(batch=3, schedule=Schedule.INTERLEAVED), Layout(num_stages=4))


def test_changes_that_fit_are_told_with_their_times():
    """8 bytes of weights and 4 for each sample in flight, on one device of 12 bytes: only micro-batches of 1 fit.

    16 of them take 4 s each. With recomputation the one layer at work holds 4 samples of 1 byte, and 4 micro-batches of
    4 samples take 1.5 x 16 s. More stages do not help: the first of 4 has 2 bytes and 4 x 4 samples in flight.
    """
    bytes_ = {"saved_bytes": 1.0}
    short = problem(12.0, bytes_=bytes_, micro_batch=4, recompute=Recompute.NEVER, replicas=(1,))
    layout = Layout(num_stages=1)
    assert stages_short(play_layout(short, layout).costs) == (0,)
    found = [(change.options, change.iteration_s) for change in fitting_changes(short, layout)]
    assert found == [("--micro-batch 1", pytest.approx(64.0)), ("--recompute auto", pytest.approx(96.0))]


def test_zero1_helps_where_there_are_copies():
    """A copy on each host with 8 + 8 bytes; sharded, 8 + 4. More stages help too."""
    short = problem(12.0, optimizer=SHARDED, pipelines=(2,), recompute=Recompute.NEVER)
    assert [change.options for change in fitting_changes(short, Layout(num_stages=1))] == ["--stages 2", "--zero1"]
