"""Alpa: stages on submeshes, by its inter-operator program."""

from functools import partial

from benchmarks.papers.paper import Paper, own_objectives_table, times_table
from benchmarks.problems.registry import ONLY_1F1B
from benchmarks.problems.specs import Spec

SOLVERS = ("megatron-even", "alpa", "milp")
SPECS = tuple(
    Spec(model=model, cluster=cluster, global_batch=batch, schedules=ONLY_1F1B, solvers=SOLVERS, time_limit_s=60)
    for model, cluster, batch in (
        ("gpt2-345m", "dgx-a100-16", 128),
        ("gpt2-1.3b", "dgx-a100-16", 128),
        ("gpt2-xl", "commodity-32", 128),
        ("llama3-8b", "dgx-a100-16", 64),
    )
)

PAPER = Paper(
    key="alpa",
    source="Zheng et al., Alpa, OSDI 2022",
    specs=SPECS,
    tables=(
        partial(times_table, solvers=SOLVERS, over="milp"),
        partial(own_objectives_table, solver="alpa"),
    ),
    comparable=(
        "Comparable: its choice of stages and sub-meshes. Not comparable: inside a stage Alpa shards every operator "
        "by an integer program; here a stage has one degree of tensor parallelism and one number of replicas."
    ),
)
