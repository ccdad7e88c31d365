"""Plans of known models on known clusters for training frameworks, and which framework refuses which, and why."""

from dataclasses import dataclass, field
from itertools import accumulate, pairwise

import pytest

from stagecut.models import build_cluster, build_model
from stagecut.planner.core.frameworks import RULES, Framework
from stagecut.planner.core.job import Job, standard_optimizer
from stagecut.planner.core.plan import Pipeline, Plan, Stage
from stagecut.planner.core.precision import Precision
from stagecut.planner.core.problem import Problem
from stagecut.planner.core.schedule import Schedule, warmup_depths
from stagecut.planner.core.share import WHOLE, Share
from stagecut.planner.io.writers.deepspeed import deepspeed_files, deepspeed_tree
from stagecut.planner.io.writers.megatron import megatron_arguments, megatron_files
from stagecut.planner.io.writers.torchtitan import torchtitan_files, torchtitan_toml
from stagecut.planner.simulator.action_lists import plan_actions

ALIKE = tuple(framework for framework in Framework if RULES[framework].is_alike)
WRITERS = {
    Framework.MEGATRON: megatron_arguments,
    Framework.TORCHTITAN: torchtitan_toml,
    Framework.DEEPSPEED: deepspeed_tree,
}
"""What writes a plan in one piece, and refuses it where the framework cannot run it."""
TIED = "cannot share the weights"
COPIES = "copies of whole weights exclude pipelines"


@dataclass(frozen=True, kw_only=True)
class Case:
    """A plan by its degrees; devices are taken in the order of the cluster."""

    model: str
    cluster: str
    blocks: tuple[int, ...]
    """Transformer layers of each stage; the embedding is in front, the head at the end."""
    apart: str = ""
    """Whether the `embedding` or the `head` is a stage of its own besides."""
    tp: int = 1
    replicas: int = 1
    pipelines: int = 1
    whole_servers: bool = False
    """Devices of one pipeline after those of the other, in place of those of one stage after those of the other."""
    islands: bool = False
    """Devices by type: the first half of every server, then the second halves."""
    schedule: Schedule = Schedule.ONE_F_ONE_B
    chunks: int = 1
    zero1: bool = False
    recompute: bool = False
    num_microbatches: int = 16
    refused: dict = field(default_factory=dict)
    """What the message says, by framework."""


CASES = {
    "llama on alike servers": Case(model="llama3-8b", cluster="dgx-a100-16", blocks=(8, 8, 8, 8), tp=4),
    "llama on unlike servers": Case(model="llama3-8b", cluster="a100-v100-32", blocks=(11, 11, 5, 5), tp=8),
    "llama with replicas": Case(
        model="llama3-8b",
        cluster="a100-v100-32",
        blocks=(20, 12),
        tp=8,
        replicas=2,
        refused={"torchtitan": "2 " + COPIES},
    ),
    "llama with replicas and ZeRO-1": Case(
        model="llama3-8b", cluster="a100-v100-32", blocks=(20, 12), tp=4, replicas=4, zero1=True
    ),
    "llama interleaved": Case(
        model="llama3-8b",
        cluster="h100-8",
        blocks=(4,) * 8,
        tp=2,
        schedule=Schedule.INTERLEAVED,
        chunks=2,
        refused={"deepspeed": "it supports the schedules 1f1b, not interleaved"},
    ),
    "llama with its pipelines on whole servers": Case(
        model="llama3-8b",
        cluster="dgx-a100-16",
        blocks=(16, 16),
        tp=4,
        pipelines=2,
        whole_servers=True,
        zero1=True,
        refused={"torchtitan": "host dgx-0 would need 0, 1, 2, 3, 8, 9, 10, 11, whatever the order"},
    ),
    "llama with pipelines inside of servers": Case(
        model="llama3-8b", cluster="dgx-a100-16", blocks=(16, 16), tp=2, pipelines=4, zero1=True
    ),
    "llama recomputed": Case(model="llama3-8b", cluster="h100-8", blocks=(5, 9, 9, 9), tp=2, recompute=True),
    "llama all forwards first": Case(
        model="llama3-8b",
        cluster="three-generations-64",
        blocks=(14, 10, 5, 3),
        tp=8,
        schedule=Schedule.GPIPE,
        refused={"megatron": "not gpipe", "deepspeed": "not gpipe"},
    ),
    "llama eager": Case(
        model="llama3-8b",
        cluster="h100-8",
        blocks=(8, 8, 8, 8),
        tp=2,
        schedule=Schedule.EAGER_ONE_F_ONE_B,
        refused={"megatron": "not eager-1f1b", "deepspeed": "not eager-1f1b"},
    ),
    "llama with its head apart": Case(
        model="llama3-8b",
        cluster="h100-8",
        blocks=(10, 11, 11),
        apart="head",
        tp=2,
        refused={"megatron": "device group 3 has no transformer layer"},
    ),
    "llama with its embedding apart": Case(
        model="llama3-8b",
        cluster="h100-8",
        blocks=(10, 11, 11),
        apart="embedding",
        tp=2,
        refused={"megatron": "device group 0 has no transformer layer"},
    ),
    "llama with few micro-batches": Case(
        model="llama3-8b",
        cluster="h100-8",
        blocks=(4,) * 8,
        num_microbatches=4,
        refused={"torchtitan": "1f1b needs as many micro-batches as stages, 8, not 4"},
    ),
    "mixtral on alike devices": Case(model="mixtral-8x7b", cluster="h100-8", blocks=(8, 8, 8, 8), tp=2),
    "mixtral on servers with unlike islands": Case(
        model="mixtral-8x7b",
        cluster="mixed-server-8",
        blocks=(26, 6),
        tp=2,
        replicas=2,
        islands=True,
        zero1=True,
        refused={"torchtitan": "host mixed-0 would need 0, 1, 4, 5"},
    ),
    "gpt2-xl on many servers": Case(
        model="gpt2-xl",
        cluster="commodity-32",
        blocks=(6,) * 8,
        replicas=4,
        zero1=True,
        refused={"torchtitan": TIED},
    ),
    "gpt2-xl with heads that do not divide": Case(
        model="gpt2-xl",
        cluster="h100-8",
        blocks=(12,) * 4,
        tp=2,
        refused=dict.fromkeys(("megatron", "torchtitan", "deepspeed"), "25 heads cannot be divided evenly"),
    ),
    "bert-large on unlike servers": Case(
        model="bert-large", cluster="hetpipe-16", blocks=(7, 9, 5, 3), replicas=4, refused={"torchtitan": TIED}
    ),
    "bert-large on one server": Case(
        model="bert-large", cluster="h100-8", blocks=(12, 12), replicas=4, zero1=True, refused={"torchtitan": TIED}
    ),
    "bert-large on one stage": Case(model="bert-large", cluster="h100-8", blocks=(24,), replicas=8),
}


def built(case):
    """The problem and the plan of a case."""
    model = build_model(case.model, precision=Precision.BF16)
    cluster = build_cluster(case.cluster)
    cuts = _cuts(case, model.num_layers)
    micro_batch = case.replicas
    job = Job(
        global_batch=micro_batch * case.pipelines * case.num_microbatches,
        optimizer=standard_optimizer("adamw", Precision.BF16),
        precision=Precision.BF16,
        micro_batches=(micro_batch,),
        schedules=(case.schedule,),
        zero1=case.zero1,
    )
    depths = warmup_depths(case.schedule, len(cuts) - 1, case.num_microbatches, chunks=case.chunks)
    pipelines = tuple(
        Pipeline(
            stages=tuple(
                Stage(
                    start=start,
                    stop=stop,
                    devices=_devices(case, cluster, pipeline, index),
                    replicas=case.replicas,
                    tensor_parallel=case.tp,
                    recompute=case.recompute,
                    warmup_depth=depths[index],
                    forward_micro_batch=micro_batch,
                    backward_micro_batch=micro_batch,
                )
                for index, (start, stop) in enumerate(pairwise(cuts))
            )
        )
        for pipeline in range(case.pipelines)
    )
    plan = Plan(
        schedule=case.schedule,
        micro_batch=micro_batch,
        num_microbatches=case.num_microbatches,
        pipelines=pipelines,
        chunks=case.chunks,
        share=_share(case, cluster),
    )
    return Problem(model=model, cluster=cluster, job=job), plan


def exported(case, framework):
    """The files for a framework, by name."""
    problem, plan = built(case)
    if framework == "megatron":
        return megatron_files(problem, plan)
    if framework == "deepspeed":
        return deepspeed_files(problem, plan)
    names = [
        [f"{action.stage}{action.op}{action.lo // plan.micro_batch}" for action in actions]
        for actions in plan_actions(plan)
    ]
    return torchtitan_files(problem, plan, actions=names)


def accepted(framework):
    """Parameters of a test that runs over every export for a framework."""
    found = [pytest.param(case, id=name) for name, case in CASES.items() if framework not in case.refused]
    return pytest.mark.parametrize("case", found)


def chains(plan):
    """Devices that work on the same samples at the same place of each stage, one after the other."""
    groups = [
        [device for pipeline in plan.pipelines for device in pipeline.stages[group].devices]
        for group in range(plan.num_groups)
    ]
    return set(zip(*groups, strict=True))


def _share(case, cluster):
    if case.pipelines == 1:
        return WHOLE
    split = case.pipelines if case.whole_servers else 1
    return Share(num_pipelines=case.pipelines, host_splits=(split,) * len(cluster.servers))


def _cuts(case, num_layers):
    """Blocks are two layers each, attention and feed-forward."""
    inner = [1 + 2 * blocks for blocks in accumulate(case.blocks)]
    first = [1] if case.apart == "embedding" else []
    last = [num_layers - 1] if case.apart == "head" else []
    return [0, *first, *inner[:-1], *last, num_layers]


def _devices(case, cluster, pipeline, index):
    names = [device.name for device in cluster.devices()]
    if case.islands:
        halves = [names[start : start + 2] for start in range(0, len(names), 2)]
        names = [name for half in (*halves[::2], *halves[1::2]) for name in half]
    groups = (len(case.blocks) + bool(case.apart)) // case.chunks
    group, size = index % groups, case.replicas * case.tp
    place = pipeline * groups + group if case.whole_servers else group * case.pipelines + pipeline
    return tuple(names[place * size : (place + 1) * size])
