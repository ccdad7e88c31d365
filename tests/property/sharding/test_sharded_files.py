"""Plans of a catalogue model whose devices divide every operator in its own way, written to text and read back."""

from functools import cache
from math import prod

from hypothesis import assume, given, settings
from hypothesis import strategies as st

from stagecut.models import build_model
from stagecut.planner.core.cluster import Cluster, DeviceType, Island, Server
from stagecut.planner.core.job import Job, standard_optimizer
from stagecut.planner.core.layer_graphs.layer_operators import operators_of
from stagecut.planner.core.layer_graphs.sharding_faults import partial_faults
from stagecut.planner.core.operators.parallelism import Parallelism
from stagecut.planner.core.operators.strategy import PARTIAL_SUMS, LayerStrategy, StageSharding
from stagecut.planner.core.plan import Pipeline, Plan, Stage
from stagecut.planner.core.precision import Precision
from stagecut.planner.core.problem import Problem
from stagecut.planner.core.result import Status
from stagecut.planner.core.schedule import Schedule
from stagecut.planner.cost.cost_model import CostModel
from stagecut.planner.cost.legality import faults
from stagecut.planner.cost.memory_parts import memory_parts
from stagecut.planner.io.documents.canonical import format_json
from stagecut.planner.io.documents.tree import parse_document
from stagecut.planner.io.files.plan_file import PlanFile, plan_file_of, provenance_of, to_tree
from stagecut.planner.io.files.plan_statements import Certificate, Prediction, StagePrediction
from stagecut.planner.sharding.strategies import strategies

GPU = DeviceType(name="gpu", peak_flops_per_s=((Precision.FP16, 1e12),), memory_bytes=1e12)
SERVER = Server(name="node", islands=(Island(device_type="gpu", count=8),))
PROBLEM = Problem(
    model=build_model("llama-mini", precision=Precision.FP16),
    cluster=Cluster(name="one", device_types=(GPU,), servers=(SERVER,)),
    job=Job(
        global_batch=8,
        optimizer=standard_optimizer("adamw", Precision.FP16),
        micro_batches=(4,),
        sharding=tuple(Parallelism),
    ),
)
TIMES = dict.fromkeys(("forward_s", "backward_s", "transfer_s", "sync_s", "update_s", "memory_bytes"), 1.0)


@cache
def legal(operator, mesh, samples):
    return strategies(operator, mesh, samples=samples)


@st.composite
def layer_strategies(draw, layer, mesh, samples):
    """Legal strategies for a layer; where an operator's inputs are no partial sums, it does without."""
    operators, chosen = operators_of(layer), []
    for number, operator in enumerate(operators):
        own = draw(st.sampled_from(legal(operator, mesh, samples)))
        if any(name == operator.name for name, _ in partial_faults(operators[: number + 1], [*chosen, own])):
            plain = [each for each in legal(operator, mesh, samples) if PARTIAL_SUMS not in each.splits]
            own = draw(st.sampled_from(plain))
        chosen.append(own)
    return LayerStrategy(operators=tuple(chosen))


@st.composite
def plans(draw):
    mesh = draw(st.sampled_from(((), (2,), (4,), (2, 2), (2, 4), (2, 2, 2))))
    size, replicas = prod(mesh), draw(st.sampled_from((1, 2)))
    assume(size * replicas <= 8)
    model = PROBLEM.model.layers
    first, attention, feed_forward, last = (
        draw(layer_strategies(layer, mesh, 4 // replicas)) for layer in (*model[:3], model[-1])
    )
    layers = (first, *(attention, feed_forward) * 4, last)
    stage = Stage(
        start=0,
        stop=10,
        devices=tuple(f"node/{slot}" for slot in range(size * replicas)),
        replicas=replicas,
        tensor_parallel=size,
        sharding=StageSharding(mesh=mesh, layers=layers),
        warmup_depth=1,
        forward_micro_batch=4,
        backward_micro_batch=4,
    )
    return Plan(
        schedule=Schedule.ONE_F_ONE_B, micro_batch=4, num_microbatches=2, pipelines=(Pipeline(stages=(stage,)),)
    )


@settings(max_examples=15)
@given(plans())
def test_any_legal_sharding_is_written_read_and_costed(plan):
    """The parts of its memory are the whole."""
    plan_file = PlanFile(
        problem=PROBLEM,
        plan=plan,
        predicted=Prediction(iteration_s=1.0, stages=(StagePrediction(limit_bytes=1e12, **TIMES),)),
        certificate=Certificate(status=Status.FEASIBLE, solver="greedy", objective_s=1.0),
        provenance=provenance_of(PROBLEM, {"gap": 1e-4}, seed=0),
    )
    assert plan_file_of(parse_document(format_json(to_tree(plan_file)), file="f")) == plan_file
    costs = CostModel(PROBLEM)
    assert faults(costs, plan) == ()
    found = costs.plan(plan)
    (parts,) = memory_parts(costs, plan, found)
    assert abs(parts.total_bytes - found.memory_bytes[0]) <= 1e-9 * found.memory_bytes[0]
    assert min(parts.weights_bytes, parts.gradients_bytes, parts.optimizer_bytes) >= 0
