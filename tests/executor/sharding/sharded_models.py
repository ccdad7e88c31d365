"""Small models of the catalogue's families, plans of them, and random strategies."""

import random
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial

from stagecut.models.families.bert import BertShape, bert
from stagecut.models.families.chain import Chain
from stagecut.models.families.gpt import GptShape, gpt
from stagecut.models.families.llama import LlamaShape, llama
from stagecut.models.families.mixtral import MixtralShape, mixtral
from stagecut.models.families.vgg import VggShape, vgg
from stagecut.models.families.vit import VitShape, vit
from stagecut.models.modules.bert import bert_modules
from stagecut.models.modules.gpt import gpt_modules
from stagecut.models.modules.llama import llama_modules
from stagecut.models.modules.mixtral import mixtral_modules
from stagecut.models.modules.module_chain import ModuleChain
from stagecut.models.modules.vgg import vgg_modules
from stagecut.models.modules.vit import vit_modules
from stagecut.planner.core.cluster import Cluster, DeviceType, Island, Link, Server
from stagecut.planner.core.job import Job, standard_optimizer
from stagecut.planner.core.layer_graphs.layer_operators import operators_of
from stagecut.planner.core.model import Layer, ModelProfile
from stagecut.planner.core.operators.operators import INPUT, OUTPUT, Operator
from stagecut.planner.core.operators.strategy import LayerStrategy, StageSharding, Strategy
from stagecut.planner.core.plan import Pipeline, Plan, Stage
from stagecut.planner.core.precision import Precision
from stagecut.planner.core.problem import Problem
from stagecut.planner.core.result import Status
from stagecut.planner.core.share import Share
from stagecut.planner.io.files.plan_file import PlanFile, provenance_of
from stagecut.planner.io.files.plan_statements import Certificate, Prediction, StagePrediction
from stagecut.planner.sharding.conversions import conversion
from stagecut.planner.sharding.layers import returned
from stagecut.planner.sharding.mesh import Mesh, MeshAxis
from stagecut.planner.sharding.placements import REPLICATE, Placements
from stagecut.planner.sharding.strategies import (
    input_gradient_placements,
    input_placements,
    output_gradient_placements,
    output_placements,
    strategies,
)

TOKENS = 8
HIDDEN_SIZE = 16
"""Of the models on texts."""
LINK = Link(bandwidth_bytes_per_s=1e6, latency_s=1e-6)


@dataclass(frozen=True)
class SmallModel:
    """A profile, and torch layers that match it."""

    counts: Callable[[], Chain]
    modules: Callable[[], ModuleChain]

    @property
    def profile(self) -> ModelProfile:
        return self.counts().in_precision(Precision.FP32, name=self.modules().name, sequence_length=TOKENS)


GPT = GptShape(blocks=1, hidden=HIDDEN_SIZE, heads=4, vocabulary=32, positions=TOKENS, dropout=0.0)
LLAMA = LlamaShape(blocks=1, hidden=HIDDEN_SIZE, heads=4, key_heads=2, width=24, vocabulary=32)
BERT = BertShape(blocks=1, hidden=HIDDEN_SIZE, heads=4, vocabulary=30, positions=TOKENS, dropout=0.0)
VIT = VitShape(blocks=1, hidden=8, heads=2, patch=112)
VGG = VggShape(repeats=(1, 1), channels=(8, 16), side=8, classes=6, hidden_layers=0)
MIXTRAL = MixtralShape(
    blocks=1, hidden=HIDDEN_SIZE, heads=4, key_heads=2, width=24, vocabulary=32, experts=4, experts_per_token=2
)
MODELS = {
    "mixtral": SmallModel(
        partial(mixtral, MIXTRAL, TOKENS), partial(mixtral_modules, "mixtral", MIXTRAL, tokens=TOKENS)
    ),
    "bert": SmallModel(partial(bert, BERT, TOKENS), partial(bert_modules, "bert", BERT, tokens=TOKENS, dropout=0.0)),
    "vit": SmallModel(partial(vit, VIT), partial(vit_modules, "vit", VIT, dropout=0.0)),
    "vgg": SmallModel(partial(vgg, VGG), partial(vgg_modules, "vgg", VGG, dropout=0.0)),
    "gpt": SmallModel(partial(gpt, GPT, TOKENS), partial(gpt_modules, "gpt", GPT, tokens=TOKENS, dropout=0.0)),
    "llama": SmallModel(partial(llama, LLAMA, TOKENS), partial(llama_modules, "llama", LLAMA, tokens=TOKENS)),
}


def mesh_of(sizes: tuple[int, ...]) -> Mesh:
    """A mesh with equal links."""
    return Mesh(axes=tuple(MeshAxis(size=size, link=LINK) for size in sizes))


def plan_file(plan: Plan, profile: ModelProfile) -> PlanFile:
    """A plan file for a cluster of a host for each device group of each pipeline."""
    kind = DeviceType(name="core", peak_flops_per_s=((Precision.FP32, 1.0),), memory_bytes=1.0)
    num_pipelines = len(plan.pipelines)
    servers = tuple(
        Server(
            name=f"group{index}",
            count=num_pipelines,
            islands=(Island(device_type="core", count=len(stage.devices), fabric=LINK),),
            nic=LINK,
        )
        for index, stage in enumerate(plan.stages)
    )
    plan = _renamed(plan)
    samples = len(plan.pipelines) * plan.num_samples
    optimizer = standard_optimizer("adamw", Precision.FP32)
    problem = Problem(
        model=profile,
        cluster=Cluster(name="ranks", device_types=(kind,), servers=servers),
        job=Job(global_batch=samples, optimizer=optimizer, precision=Precision.FP32),
    )
    nothing = StagePrediction(
        forward_s=0, backward_s=0, transfer_s=0, sync_s=0, update_s=0, memory_bytes=0, limit_bytes=1e12
    )
    return PlanFile(
        problem=problem,
        plan=plan,
        predicted=Prediction(iteration_s=1.0, stages=(nothing,) * len(plan.stages)),
        certificate=Certificate(status=Status.FEASIBLE, solver="by hand", objective_s=0.0),
        provenance=provenance_of(problem, {}, seed=0),
    )


def _renamed(plan: Plan) -> Plan:
    """The plan on the devices of that cluster."""
    num_pipelines = len(plan.pipelines)

    def stage(pipeline: int, index: int, own: Stage) -> Stage:
        host = f"group{index}-{pipeline}" if num_pipelines > 1 else f"group{index}"
        return replace(own, devices=tuple(f"{host}/{slot}" for slot in range(len(own.devices))))

    pipelines = tuple(
        Pipeline(stages=tuple(stage(number, index, own) for index, own in enumerate(pipeline.stages)))
        for number, pipeline in enumerate(plan.pipelines)
    )
    splits = (num_pipelines,) * len(plan.stages) if num_pipelines > 1 else ()
    return replace(plan, pipelines=pipelines, share=Share(num_pipelines=num_pipelines, host_splits=splits))


def sharded(plan: Plan, shardings: dict[int, StageSharding]) -> Plan:
    """The plan with some of its stages sharded."""

    def own(index: int, stage: Stage) -> Stage:
        return replace(stage, sharding=shardings.get(index))

    return replace(
        plan,
        pipelines=tuple(
            Pipeline(stages=tuple(own(index, stage) for index, stage in enumerate(pipeline.stages)))
            for pipeline in plan.pipelines
        ),
    )


def random_sharding(
    draw: random.Random, layers: tuple[Layer, ...], sizes: tuple[int, ...], *, samples: int
) -> StageSharding:
    """Any strategies for which there are conversions."""
    before: Placements = (REPLICATE,) * len(sizes)
    chosen = []
    for layer in layers:
        strategy, before = random_strategy(draw, operators_of(layer), sizes, samples=samples, before=before)
        chosen.append(strategy)
    return StageSharding(mesh=sizes, layers=tuple(chosen))


def random_strategy(
    draw: random.Random, operators: tuple[Operator, ...], sizes: tuple[int, ...], *, samples: int, before: Placements
) -> tuple[LayerStrategy, Placements]:
    """Strategies of a layer, and where it returns its output."""
    made = {INPUT: (before, before)}
    chosen = []
    for operator in operators:
        options = [
            strategy
            for strategy in strategies(operator, sizes, samples=samples)
            if fits(operator, strategy, made, mesh_of(sizes))
        ]
        # every way of dividing the loop alike, however many storages it has
        splits = draw.choice(sorted({option.splits for option in options}))
        strategy = draw.choice([option for option in options if option.splits == splits])
        chosen.append(strategy)
        for tensor in operator.outputs:
            made[tensor.name] = (
                output_placements(tensor, strategy.splits),
                output_gradient_placements(tensor, strategy.splits),
            )
    return LayerStrategy(operators=tuple(chosen)), returned(made[OUTPUT][0])


def fits(operator: Operator, strategy: Strategy, made: dict[str, tuple[Placements, Placements]], mesh: Mesh) -> bool:
    """Whether every input can be brought to the operator, and every gradient back."""
    if strategy.splits.count("vocabulary") > 1:
        return False  # those of the small models cannot be divided evenly
    return all(
        conversion(mesh, made[port.tensor][0], input_placements(port, strategy.splits), num_bytes=1.0) is not None
        and conversion(mesh, input_gradient_placements(port, strategy.splits), made[port.tensor][1], num_bytes=1.0)
        is not None
        for port in operator.inputs
    )
