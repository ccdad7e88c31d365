"""Partition, mapping and sublot sizes in one search, beside the best plans with equal micro-batches.

    python -m benchmarks.unequal

with the options of `benchmarks/harness/driver.py`; `--docs` puts the table into docs/sublots.md. The model is gpt2-xl
with tables of times as measurements have them: up to a size of its own, 1 to 8 samples, a layer hardly gets slower,
and every time is off by some 3 %.
"""

from collections.abc import Sequence
from dataclasses import replace
from functools import partial

import numpy as np

from benchmarks.harness.driver import Driver, Jobs, Parts, Request, Tables
from benchmarks.harness.measuring import Tree
from benchmarks.report.pages import ROOT, markdown, ratio, times
from stagecut.models.catalogue import build_model
from stagecut.models.cluster_catalogue import build_cluster
from stagecut.planner.core.cluster import Cluster
from stagecut.planner.core.job import Job, standard_optimizer
from stagecut.planner.core.model import Layer, ModelProfile, TimeTable
from stagecut.planner.core.problem import Problem
from stagecut.planner.core.schedule import Schedule
from stagecut.planner.core.sublot_sizes import powers_of_two
from stagecut.planner.core.units import format_seconds
from stagecut.planner.cost.layer_times import layer_times
from stagecut.planner.solvers.registry import run
from stagecut.planner.solvers.search.options import SolveOptions

PAGE = ROOT / "docs" / "sublots.md"
MEASURED = (1, 2, 4, 8, 16, 32)
"""Samples of the tables."""
LARGEST = 8
"""Samples up to which a layer may hardly get slower."""
NOISE = 0.03
TIME_LIMIT_S = 60.0
GAP = 0.01
INSTANCES = tuple(
    (cluster, batch, seed) for cluster in ("dgx-a100-16", "hetpipe-16") for batch in (64, 128) for seed in (1, 2)
)


def jobs(instances: Sequence[tuple[str, int, int]] = INSTANCES, *, model: str = "gpt2-xl") -> Jobs:
    """One part for each cluster, batch and draw of the tables."""
    return {
        f"{cluster}, batch {batch}, tables {seed}": partial(measure, model, cluster, batch, seed)
        for cluster, batch, seed in instances
    }


def measure(model: str, cluster: str, batch: int, seed: int, _: Request) -> Tree:
    """Plans under a flush, with equal and with unequal micro-batches, in one pipeline of single devices."""
    servers = build_cluster(cluster)
    measured = with_tables(build_model(model), servers, np.random.default_rng(seed))
    job = Job(
        global_batch=batch,
        optimizer=standard_optimizer("adamw", measured.precision),
        precision=measured.precision,
        micro_batches=powers_of_two(batch),
        schedules=(Schedule.GPIPE,),
        pipelines=(1,),
        replicas=(1,),
        tensor_parallel=(1,),
    )
    answers = {}
    for name, unequal in (("equal", False), ("unequal", True)):
        problem = Problem(model=measured, cluster=servers, job=replace(job, unequal=unequal))
        result = run(problem, "milp", SolveOptions(gap=GAP, time_limit_s=TIME_LIMIT_S))
        num_stages = len(result.plan.stages) if result.plan is not None else 0
        answers[name] = {
            "objective_s": result.objective_s,
            "gap": result.gap,
            "seconds": result.seconds,
            "num_stages": num_stages,
        }
    return answers


def with_tables(model: ModelProfile, cluster: Cluster, draws: np.random.Generator) -> ModelProfile:
    """The model with a table of times for every layer and kind of device, made from the estimates for one sample."""
    samples = np.array(MEASURED, dtype=float)
    one = {kind.name: layer_times(model, kind, 1.0) for kind in cluster.device_types}

    def table(kind: str, index: int, flat: float) -> TimeTable:
        grown = 0.3 * flat + 0.8 * np.maximum(samples, 0.8 * flat)
        forward_s, backward_s = (
            np.maximum.accumulate(seconds[index] * grown * (1 + NOISE * draws.standard_normal(len(samples))))
            for seconds in one[kind]
        )
        return TimeTable(
            device_type=kind,
            samples=MEASURED,
            forward_s=tuple(forward_s.tolist()),
            backward_s=tuple(backward_s.tolist()),
        )

    def timed(index: int, layer: Layer) -> Layer:
        flat = float(2 ** draws.integers(0, LARGEST.bit_length()))
        return replace(layer, times=tuple(table(kind, index, flat) for kind in one))

    return replace(model, layers=tuple(timed(index, layer) for index, layer in enumerate(model.layers)))


def tables(parts: Parts) -> Tables:
    """Iteration times, gap and seconds."""
    head = ("gpt2-xl on", "equal", "unequal", "equal / unequal", "gap", "stages", "seconds")
    rows = [
        [
            name,
            format_seconds(part["equal"]["objective_s"]),
            format_seconds(part["unequal"]["objective_s"]),
            times(ratio(part["equal"]["objective_s"], part["unequal"]["objective_s"])),
            f"{100 * part['unequal']['gap']:.2f} %",
            str(part["unequal"]["num_stages"]),
            f"{part['unequal']['seconds']:.1f}",
        ]
        for name, part in parts.items()
    ]
    return {PAGE: {"unequal": markdown(head, rows)}}


DRIVER = Driver(
    name="unequal", jobs=jobs(), quick_jobs=jobs((("mixed-server-8", 8, 1),), model="gpt-mini"), tables=tables
)

if __name__ == "__main__":
    DRIVER.main()
