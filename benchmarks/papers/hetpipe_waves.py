"""HetPipe through waves: its allocations beside the best one, on the paper's sixteen GPUs.

    python -m benchmarks.papers.hetpipe_waves

with the options of `benchmarks/harness/driver.py`; `--docs` puts the tables into docs/papers/hetpipe.md.
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial

from benchmarks.harness.driver import Driver, Jobs, Parts, Request, Tables
from benchmarks.harness.measuring import Tree
from benchmarks.report.pages import ROOT, markdown, percent, whole_seconds
from stagecut.models import build_cluster, build_model
from stagecut.planner.core.cluster import Cluster
from stagecut.planner.core.job import Job, Recompute, WaveChoices, standard_optimizer
from stagecut.planner.core.precision import Precision
from stagecut.planner.core.problem import Problem
from stagecut.planner.core.virtual_workers.wave_plan import WavePlan
from stagecut.planner.core.virtual_workers.wave_result import WaveResult
from stagecut.planner.core.waves import Allocation, Carrier, LocalStep, ShardPlacement
from stagecut.planner.cost.waves.wave_costs import WaveCostModel
from stagecut.planner.simulator.waves.steady import steady_state
from stagecut.planner.solvers import registry
from stagecut.planner.solvers.search.options import SolveOptions
from stagecut.planner.workers.data_parallel import data_parallel_plan
from stagecut.planner.workers.rows.owners import owners_of
from stagecut.planner.workers.solving import solve_waves

PAGE = ROOT / "docs" / "papers" / "hetpipe.md"
MODELS = ("vgg19", "resnet152")
MINIBATCH, BATCH, PIECES = 32, 512, (4, 8, 16, 32)
DISTANCES, NUMBERS = (0, 4, 32), range(1, 8)
LIMIT_S, GAP, WIDE = 60.0, 0.01, 0.02
ADDED = {"V": (0,), "V R": (0, 1), "V R Q": (0, 1, 3), "V R Q G": (0, 1, 2, 3)}
"""Classes of hetpipe-16, in the order in which the paper adds them."""
POLICIES = {
    "NP": Allocation.NODE_PARTITION,
    "ED": Allocation.EQUAL_DISTRIBUTION,
    "HD": Allocation.HYBRID,
}
LOCAL, BEST, SYNCHRONOUS = "ED local", "optimal", "synchronous"


def problem_of(
    model: str, cluster: Cluster, waves: WaveChoices | None, *, precision: Precision = Precision.FP32
) -> Problem:
    """Single precision, SGD with momentum, no recomputation: the paper's setting as far as we know it.

    In half precision AdamW and recomputation where it is of use: what the command line has if nothing else is said.
    """
    single = precision is Precision.FP32
    job = Job(
        global_batch=BATCH,
        optimizer=standard_optimizer("sgd" if single else "adamw", precision),
        precision=precision,
        micro_batches=PIECES if waves is None else (MINIBATCH,),
        tensor_parallel=(1,),
        recompute=Recompute.NEVER if single else Recompute.AUTO,
        waves=waves,
    )
    return Problem(model=build_model(model, precision=precision), cluster=cluster, job=job)


def part_of(cluster: Cluster, classes: Sequence[int]) -> Cluster:
    """Some of a cluster's server classes."""
    return replace(cluster, servers=tuple(cluster.servers[index] for index in classes))


def by_distance(model: str, request: Request, *, precision: Precision = Precision.FP32) -> Tree:
    """Every allocation for every D, and the best synchronous plan."""
    cluster = build_cluster("hetpipe-16")
    part: Tree = {SYNCHRONOUS: synchronous(model, cluster, request, precision=precision)}
    for distance in DISTANCES:
        solve = partial(solved, model, cluster, request, precision=precision, clock_distance=distance)
        own: Tree = {name: solve(allocation=policy) for name, policy in POLICIES.items()}
        own[LOCAL] = solve(allocation=Allocation.EQUAL_DISTRIBUTION, shards=ShardPlacement.LOCAL)
        own[BEST] = solve()
        part[str(distance)] = own
    return part


def by_number(model: str, request: Request) -> Tree:
    """The policies for every N_m, D = 0."""
    cluster = build_cluster("hetpipe-16")
    return {
        name: {str(number): solved(model, cluster, request, allocation=policy, in_flight=number) for number in NUMBERS}
        for name, policy in POLICIES.items()
    }


def by_servers(model: str, request: Request) -> Tree:
    """Servers added one by one, against data parallelism on the GPUs that hold the model."""
    part: Tree = {}
    for name, classes in ADDED.items():
        cluster = part_of(build_cluster("hetpipe-16"), classes)
        own: Tree = {policy: solved(model, cluster, request, allocation=kind) for policy, kind in POLICIES.items()}
        own[BEST] = solved(model, cluster, request)
        own[SYNCHRONOUS] = synchronous(model, cluster, request)
        own["data parallel"] = data_parallel(model, cluster)
        part[name] = own
    return part


def solved(
    model: str, cluster: Cluster, request: Request, *, precision: Precision = Precision.FP32, **choices: object
) -> Tree:
    """One plan by waves."""
    problem = problem_of(model, cluster, WaveChoices(**choices), precision=precision)  # type: ignore[arg-type]
    options = SolveOptions(gap=GAP, time_limit_s=request.time_scale * LIMIT_S)
    found = solve_waves(problem, options)
    return {**answer(found), **({} if found.plan is None else traffic(problem, found.plan))}


def answer(found: WaveResult) -> Tree:
    """What is kept of a result."""
    plan = found.plan
    return {
        "status": str(found.status),
        "samples_per_s": found.samples_per_s,
        "bound_samples_per_s": found.bound_samples_per_s,
        "seconds": found.seconds,
        "in_flight": None if plan is None else plan.workers[0].in_flight,
        "workers": None if plan is None else [list(worker.devices) for worker in plan.workers],
        "reason": found.reason,
    }


def traffic(problem: Problem, plan: WavePlan) -> Tree:
    """Bytes across hosts per minibatch with either placement of the shards."""
    model = WaveCostModel(problem)
    placements = ShardPlacement if plan.owners else ()
    plans = {str(own): replace(plan, shards=own, owners=owners_of(model, plan.workers, own)) for own in placements}
    return {f"{name} bytes": steady_state(model.plan(own)).crossing_bytes for name, own in plans.items()}


def synchronous(model: str, cluster: Cluster, request: Request, *, precision: Precision = Precision.FP32) -> Tree:
    """The best plan of identical pipelines with a flush and an all-reduce per batch."""
    options = SolveOptions(gap=GAP, time_limit_s=request.time_scale * LIMIT_S)
    found = registry.run(problem_of(model, cluster, None, precision=precision), "milp", options)
    rate, bound = (None if s is None else BATCH / s for s in (found.objective_s, found.bound_s))
    return {"samples_per_s": rate, "bound_samples_per_s": bound, "seconds": found.seconds}


def data_parallel(model: str, cluster: Cluster) -> Tree:
    """A GPU each for as many workers as can hold the model, a step per minibatch of all, gradients all-reduced."""
    waves = WaveChoices(carrier=Carrier.DELAYED_ALL_REDUCE, local_step=LocalStep.WAVE, in_flight=1)
    problem = problem_of(model, cluster, waves)
    plan = data_parallel_plan(problem)
    if plan is None:
        return {"samples_per_s": None, "num_devices": 0}
    rate = steady_state(WaveCostModel(problem).plan(plan)).samples_per_s
    return {"samples_per_s": rate, "num_devices": len(plan.workers)}


def jobs(models: Sequence[str]) -> Jobs:
    """What is measured, by name."""
    return {
        f"{model}: {name}": partial(measure, model)
        for model in models
        for name, measure in (
            ("D", by_distance),
            ("D, half precision", partial(by_distance, precision=Precision.FP16)),
            ("N_m", by_number),
            ("servers", by_servers),
        )
    }


def tables(parts: Parts) -> Tables:
    """What the page shows."""
    found = {name: _named(parts, name) for name in ("D", "D, half precision", "N_m", "servers")}
    return {
        PAGE: {
            "distances": distances_table(found["D"]),
            "half precision": distances_table(found["D, half precision"]),
            "numbers": numbers_table(found["N_m"]),
            "servers": servers_table(found["servers"]),
            "bytes": bytes_table(found["D"]),
        }
    }


def _named(parts: Parts, name: str) -> dict[str, Tree]:
    return {key.removesuffix(f": {name}"): part for key, part in parts.items() if key.endswith(f": {name}")}


def distances_table(found: Mapping[str, Tree]) -> str:
    """Samples per second; of the optimum with its gap and seconds."""
    columns = (*POLICIES, LOCAL, BEST)
    head = ("model, D", *columns, "gap", "solved in", "synchronous", "at most", "its gap")
    rows = [
        [
            f"{model}, {distance}",
            *(_rate(own[name], own[BEST]) for name in columns),
            percent(gap(own[BEST])),
            whole_seconds(own[BEST]["seconds"]),
            _rate(part[SYNCHRONOUS], own[BEST]),
            _bound(part[SYNCHRONOUS]),
            percent(gap(part[SYNCHRONOUS])),
        ]
        for model, part in found.items()
        for distance, own in ((str(number), part[str(number)]) for number in DISTANCES)
    ]
    return markdown(head, rows)


def numbers_table(found: Mapping[str, Tree]) -> str:
    """Samples per second by N_m."""
    rows = [
        [f"{model}, {name}", *(_rate(by_number[str(number)]) for number in NUMBERS)]
        for model, part in found.items()
        for name, by_number in part.items()
    ]
    return markdown(("N_m, D = 0", *map(str, NUMBERS)), rows)


def servers_table(found: Mapping[str, Tree]) -> str:
    """Samples per second as servers are added."""
    head = ("servers", "data parallel", "its GPUs", *POLICIES, BEST, "gap", "synchronous", "at most", "its gap")
    rows = [
        [
            f"{model}, {name}",
            _rate(own["data parallel"], own[BEST]),
            str(own["data parallel"]["num_devices"]),
            *(_rate(own[each], own[BEST]) for each in (*POLICIES, BEST)),
            percent(gap(own[BEST])),
            _rate(own[SYNCHRONOUS], own[BEST]),
            _bound(own[SYNCHRONOUS]),
            percent(gap(own[SYNCHRONOUS])),
        ]
        for model, part in found.items()
        for name, own in part.items()
    ]
    return markdown(head, rows)


def bytes_table(found: Mapping[str, Tree]) -> str:
    """Megabytes across hosts per minibatch, D = 0."""
    columns = (*POLICIES, BEST)
    rows = [
        [f"{model}, {own}", *(f"{part['0'][name][f'{own} bytes'] / 1e6:.0f} MB" for name in columns)]
        for model, part in found.items()
        for own in ShardPlacement
    ]
    return markdown(("model, shards", *columns), rows)


def gap(found: Tree) -> float | None:
    """(bound - throughput) / bound."""
    rate, bound = found["samples_per_s"], found["bound_samples_per_s"]
    return None if rate is None or bound is None else 1 - float(rate) / float(bound)


def _rate(found: Tree, best: Tree | None = None) -> str:
    """Samples per second, and how far that is from the proven optimum, at least and at most."""
    rate = found["samples_per_s"]
    if rate is None:
        return "-"
    if best is None or found is best or best["samples_per_s"] is None:
        return f"{rate:.0f}"
    return f"{rate:.0f} ({100 * (rate / best['samples_per_s'] - 1):+.1f} %)"


def _bound(found: Tree) -> str:
    bound = found["bound_samples_per_s"]
    return "-" if bound is None else f"{bound:.0f}"


def complaint(parts: Parts) -> str:
    """Policies better than the answer, and gaps wider than twice what is asked for."""
    found = []
    for name, part in parts.items():
        for key, own in part.items():
            if BEST in own:
                best = own[BEST]
                found += [f"{name}, {key}: {each} is better" for each in POLICIES if _more(own[each], best)]
                found += [f"{name}, {key}: gap {percent(gap(best))}"] if (gap(best) or 0.0) > WIDE else []
    return "\n".join(found)


def _more(found: Tree, best: Tree) -> bool:
    return (found["samples_per_s"] or 0.0) > (best["samples_per_s"] or 0.0)


DRIVER = Driver(
    name="hetpipe_waves", jobs=jobs(MODELS), quick_jobs=jobs(("vgg19",)), tables=tables, complaint=complaint
)

if __name__ == "__main__":
    DRIVER.main()
