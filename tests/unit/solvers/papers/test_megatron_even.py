"""Equal blocks on equal device groups."""

from dataclasses import replace

import pytest
from hypothesis import assume, given, reject, settings

from stagecut.planner.core.cluster import Cluster, Island, Server
from stagecut.planner.core.messages.errors import UnsupportedError
from stagecut.planner.core.model import ModelProfile
from stagecut.planner.core.problem import Problem
from stagecut.planner.core.schedule import Schedule
from stagecut.planner.cost.cost_model import CostModel
from stagecut.planner.cost.legality import faults
from stagecut.planner.solvers.papers.megatron_even import block_starts
from stagecut.planner.solvers.registry import run
from stagecut.planner.solvers.search.options import SolveOptions
from tests.catalogue import INTERLEAVED, chain, job, kinds, layer, one_server
from tests.property.strategies import problems

OPTIONS = SolveOptions(time_limit_s=None)


def _solved(problem):
    return run(problem, "megatron-even", OPTIONS)


def _stages(problem):
    stages = _solved(problem).plan.stages
    return [(stage.stop - stage.start, stage.replicas, stage.tensor_parallel) for stage in stages]


def _transformer(num_blocks, **bytes_):
    """Embedding, blocks of two parts, head; F + B of 1 s each."""
    kinds_ = ["embedding", *["attention", "feed-forward"] * num_blocks, "head"]
    layers = (replace(layer(f"{index}-{kind}", {"gpu": 1.0}, **bytes_), kind=kind) for index, kind in enumerate(kinds_))
    return ModelProfile(name="transformer", layers=tuple(layers))


def test_blocks_begin_at_attention_parts():
    """The embedding (0) goes with the first block, the head (7) with the last: blocks at 0, 3 and 5."""
    assert block_starts(_transformer(3)) == (0, 3, 5)


def test_every_layer_is_a_block_without_attention():
    assert block_starts(chain(4, {"gpu": 1.0})) == (0, 1, 2, 3)


def test_embedding_and_head_are_no_blocks_of_their_own():
    layers = tuple(
        replace(layer(kind, {"gpu": 1.0}), kind=kind) for kind in ("embedding", "convolution", "dense", "head")
    )
    assert block_starts(ModelProfile(name="other", layers=layers)) == (0, 2)


def test_stages_have_equal_blocks():
    """4 blocks on 2 devices: embedding and two blocks, two blocks and head."""
    problem = Problem(model=_transformer(4), cluster=one_server("gpu", 2), job=job(4, tensor_parallel=(1,)))
    assert _stages(problem) == [(5, 1, 1), (5, 1, 1)]


def test_one_block_more_where_the_number_of_stages_does_not_divide():
    """3 blocks on 2 devices: one and two."""
    problem = Problem(model=_transformer(3), cluster=one_server("gpu", 2), job=job(4, tensor_parallel=(1,)))
    assert _stages(problem) == [(3, 1, 1), (5, 1, 1)]


def test_all_devices_are_used_by_groups_of_one_size():
    """One micro-batch of 2 samples, 2 layers of 1 s a sample, four devices: p x d = 4 with d at most 2.

    p = 2, d = 2: one sample on each device, 1 + 1 = 2 s. p = 4 needs four layers.
    """
    problem = Problem(model=chain(2, {"gpu": 1.0}), cluster=one_server("gpu", 4), job=job(1, micro_batch=2))
    assert _stages(problem) == [(1, 2, 1), (1, 2, 1)]
    assert _solved(problem).objective_s == 2.0


def test_tensor_parallelism_stays_inside_a_server():
    """Two servers of two devices that share layers at no cost: t = 2, p = 2 beats t = 1, p = 4 with one micro-batch.

    t = 4 would lie across both.
    """
    server = Server(name="host", count=2, islands=(Island(device_type="gpu", count=2),))
    cluster = Cluster(name="pairs", device_types=kinds(gpu=float("inf")), servers=(server,))
    problem = Problem(
        model=chain(4, {"gpu": 2.0}, tensor_parallel_bytes=0.0), cluster=cluster, job=job(1, tensor_parallel=(1, 2, 4))
    )
    assert _stages(problem) == [(2, 1, 2), (2, 1, 2)]


def test_data_parallel_pipelines_are_tried():
    """Gradients are nothing: 4 pipelines of one device run 2 micro-batches of 4 s each, 8 s; one of 4 stages 11 s."""
    problem = Problem(model=chain(4, {"gpu": 1.0}), cluster=one_server("gpu", 4), job=job(8, pipelines=None))
    result = _solved(problem)
    assert (len(result.plan.pipelines), result.objective_s) == (4, 8.0)


def test_interleaved_chunks_have_equal_blocks():
    assert _solved(INTERLEAVED.problem).objective_s == INTERLEAVED.optimum_s


def test_whole_servers_join_for_wide_groups():
    """One layer on two servers of two devices, 4 samples: all four devices are replicas."""
    server = Server(name="host", count=2, islands=(Island(device_type="gpu", count=2),))
    cluster = Cluster(name="pairs", device_types=kinds(gpu=float("inf")), servers=(server,))
    problem = Problem(model=chain(1, {"gpu": 1.0}), cluster=cluster, job=job(1, micro_batch=4))
    assert _stages(problem) == [(1, 4, 1)]


@settings(max_examples=40)
@given(problems(max_layers=6, interleaved=True))
def test_plans_are_legal_and_uniform(problem):
    known = tuple(each for each in problem.job.schedules if each in {Schedule.ONE_F_ONE_B, Schedule.INTERLEAVED})
    problem = replace(problem, job=replace(problem.job, schedules=known or (Schedule.ONE_F_ONE_B,)))
    try:
        plan = _solved(problem).plan
    except UnsupportedError:
        reject()
    assume(plan is not None)
    assert faults(CostModel(problem), plan) == ()
    assert len({(stage.replicas, stage.tensor_parallel) for stage in plan.stages}) == 1
    used = {device for pipeline in plan.pipelines for stage in pipeline.stages for device in stage.devices}
    assert len(used) == problem.cluster.num_devices


def test_schedules_of_others_are_refused():
    problem = Problem(
        model=chain(2, {"gpu": 1.0}), cluster=one_server("gpu", 2), job=job(2, schedule=Schedule.EAGER_ONE_F_ONE_B)
    )
    with pytest.raises(UnsupportedError, match="only schedules 1f1b and interleaved, but the job allows eager-1f1b"):
        _solved(problem)
