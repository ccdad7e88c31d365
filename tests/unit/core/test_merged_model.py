"""Runs of layers as layers."""

from stagecut.models import build_cluster, build_model
from stagecut.planner.core.frameworks import Framework
from stagecut.planner.core.job import Job, standard_optimizer
from stagecut.planner.core.merged_model import merged
from stagecut.planner.core.placement import Placement
from stagecut.planner.core.precision import Precision
from stagecut.planner.core.problem import Problem
from stagecut.planner.cost.cost_model import CostModel

MODEL = build_model("gpt2-345m")
PROBLEM = Problem(
    model=MODEL,
    cluster=build_cluster("dgx-a100-16"),
    job=Job(
        global_batch=8,
        optimizer=standard_optimizer("adamw", Precision.FP16),
        framework=Framework.MEGATRON,
    ),
)


def test_a_model_with_all_boundaries_stays_itself():
    assert merged(MODEL, range(1, MODEL.num_layers)) is MODEL


def test_cuts_of_whole_blocks_leave_embedding_and_head_with_the_first_and_last_block():
    # embedding, 24 blocks of two layers, head: blocks begin at layers 1, 3 .. 47, and the first is no cut.
    assert PROBLEM.cuts == tuple(range(3, 49, 2))


def test_runs_cost_exactly_what_their_layers_cost():
    runs = Problem(model=merged(MODEL, PROBLEM.cuts), cluster=PROBLEM.cluster, job=PROBLEM.job)
    placement = Placement(server_class=0, island=0, replicas=2, tensor_parallel=2)
    for recompute in (False, True):
        where = {"micro_batch": 4, "recompute": recompute}
        # Runs 1 and 2 are the blocks of layers 3 .. 6.
        of_runs = CostModel(runs).stage(placement, start=1, stop=3, **where)
        of_layers = CostModel(PROBLEM).stage(placement, start=3, stop=7, **where)
        assert of_runs == of_layers
    assert runs.model.boundary_bytes()[1] == MODEL.boundary_bytes()[3]
