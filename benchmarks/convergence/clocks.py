"""How long training takes: plans for a real-sized model on half of HetPipe's cluster, and their simulated runs.

Four hosts with two GPUs each: TITAN V, TITAN RTX, RTX 2060, Quadro P4000, in fp32. The model is cut into as many runs
of layers as the small model has, so that plans are plans for both.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from benchmarks.convergence.tasks import NUM_LAYERS
from stagecut.models.catalogue import build_model
from stagecut.models.cluster_catalogue import build_cluster
from stagecut.planner.core.cluster import Cluster
from stagecut.planner.core.job import Job, WaveChoices, standard_optimizer
from stagecut.planner.core.model import Layer, ModelProfile
from stagecut.planner.core.plan import Stage
from stagecut.planner.core.precision import Precision
from stagecut.planner.core.problem import Problem
from stagecut.planner.core.virtual_workers.wave_plan import VirtualWorker, WavePlan
from stagecut.planner.core.waves import Carrier, LocalStep
from stagecut.planner.cost.waves.wave_costs import WaveCostModel, WaveCosts
from stagecut.planner.solvers.registry import run
from stagecut.planner.solvers.search.options import SolveOptions
from stagecut.planner.workers.solving import solve_waves

SOLVING = SolveOptions(time_limit_s=20.0, gap=0.01)
SIZES = (1, 2, 4, 8, 16, 32)
"""Micro-batches of synchronous plans."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Work:
    """The model that gives the times."""

    model: str
    optimizer: str
    minibatch: int
    """Samples."""
    num_layers: int = NUM_LAYERS

    def problem(self, *, global_batch: int, waves: WaveChoices | None = None) -> Problem:
        """What is to be planned."""
        precision = Precision.FP32
        job = Job(
            global_batch=global_batch,
            optimizer=standard_optimizer(self.optimizer, precision),
            precision=precision,
            micro_batches=SIZES if waves is None else (self.minibatch,),
            tensor_parallel=(1,),
            waves=waves,
        )
        model = in_runs(build_model(self.model, precision=precision), self.num_layers)
        return Problem(model=model, cluster=half_of_hetpipe(), job=job)


@dataclass(frozen=True, slots=True, kw_only=True)
class Clocked:
    """A plan with the times of its runs."""

    plan: WavePlan
    """With the minibatches of the model that gives the times."""
    samples_per_s: float
    costs: WaveCosts | None = None
    """None: a synchronous plan, every wave of which takes the same time."""
    about: str
    """Workers, in words."""


def half_of_hetpipe() -> Cluster:
    """Two GPUs of each of the paper's four hosts."""
    whole = build_cluster("hetpipe-16")
    servers = (replace(s, islands=tuple(replace(i, count=2) for i in s.islands)) for s in whole.servers)
    return replace(whole, servers=tuple(servers))


def in_runs(model: ModelProfile, num_layers: int) -> ModelProfile:
    """The model with runs of layers, each about as much to compute, in place of layers."""
    flops = np.cumsum([layer.forward_flops for layer in model.layers])
    before = np.arange(1, num_layers) * flops[-1] / num_layers
    inner = np.searchsorted(flops, before, side="right")
    latest = model.num_layers - num_layers + np.arange(1, num_layers)
    cuts = [0]
    for cut, most in zip(inner.tolist(), latest.tolist(), strict=True):
        cuts.append(min(max(cut, cuts[-1] + 1), most))
    ends = [*cuts[1:], model.num_layers]
    layers = tuple(_run_of(model.layers[start:stop]) for start, stop in zip(cuts, ends, strict=True))
    return replace(model, layers=layers)


def _run_of(parts: Sequence[Layer]) -> Layer:
    return Layer(
        name=parts[0].name,
        params_bytes=sum(part.params_bytes for part in parts),
        shared_params_bytes=sum(part.shared_params_bytes for part in parts),
        forward_flops=sum(part.forward_flops for part in parts),
        saved_bytes=sum(part.saved_bytes for part in parts),
        output_bytes=parts[-1].output_bytes,
        working_bytes=max(part.working_bytes for part in parts),
    )


def virtual_workers(work: Work, choices: WaveChoices, *, global_batch: int | None = None) -> Clocked:
    """The best plan of virtual workers."""
    problem = work.problem(global_batch=global_batch or 8 * work.minibatch, waves=choices)
    result = solve_waves(problem, SOLVING)
    assert result.plan is not None, f"{choices}: {result.status}"
    assert result.samples_per_s is not None
    costs = WaveCostModel(problem).plan(result.plan)
    return Clocked(plan=result.plan, costs=costs, samples_per_s=result.samples_per_s, about=about(result.plan))


def alike_pipelines(work: Work, *, global_batch: int) -> Clocked:
    """The best synchronous plan of alike pipelines, trained as the single process that it equals."""
    problem = work.problem(global_batch=global_batch)
    result = run(problem, "milp", SOLVING)
    assert result.plan is not None, f"batch {global_batch}: {result.status}"
    assert result.objective_s is not None
    plan = _one_step_a_wave([_whole(work.num_layers, "any", global_batch)])
    num_pipelines, num_stages = len(result.plan.pipelines), len(result.plan.stages)
    words = f"{num_pipelines} pipelines of {num_stages} stages" if num_pipelines > 1 else f"{num_stages} stages"
    return Clocked(plan=plan, samples_per_s=global_batch / result.objective_s, about=words)


def data_parallel(work: Work, *, fastest: bool = False) -> Clocked:
    """A minibatch on every device that can hold the model, then an all-reduce.

    The simulator would let rings of two devices on one host queue for its interface; here they are one.

    Parameters
    ----------
    fastest
        Leave out the slowest devices as long as that gives more samples per second.
    """
    problem = work.problem(global_batch=8 * work.minibatch, waves=WaveChoices(local_step=LocalStep.WAVE))
    model, names = WaveCostModel(problem), [device.name for device in problem.cluster.devices()]
    every = model.plan(_one_step_a_wave([_whole(work.num_layers, name, work.minibatch) for name in names])).workers
    holding = [own for own in every if own.memory_bytes[0] <= own.limit_bytes[0]]
    holding.sort(key=lambda own: float(own.forward_s[0]))

    def on(number: int) -> Clocked:
        plan = _one_step_a_wave([own.worker for own in holding[:number]])
        costs = model.plan(plan)
        computed_s = max(float((each.forward_s + each.backward_s + each.update_s)[0]) for each in costs.workers)
        wave_s = computed_s + float(costs.all_reduce_s(0)[0])
        words = f"{number} of {len(names)} devices: {' '.join(kinds_of(plan))}"
        return Clocked(plan=plan, samples_per_s=plan.samples_per_wave / wave_s, about=words)

    numbers = range(2, len(holding) + 1) if fastest else (len(holding),)
    return max(map(on, numbers), key=lambda clocked: clocked.samples_per_s)


def _whole(num_layers: int, device: str, minibatch: int) -> VirtualWorker:
    """A worker of one stage and one minibatch."""
    size = {"forward_micro_batch": minibatch, "backward_micro_batch": minibatch}
    stage = Stage(start=0, stop=num_layers, devices=(device,), warmup_depth=1, **size)
    return VirtualWorker(stages=(stage,), minibatch=minibatch, in_flight=1, wave=1)


def _one_step_a_wave(workers: Sequence[VirtualWorker]) -> WavePlan:
    return WavePlan(workers=tuple(workers), local_step=LocalStep.WAVE, carrier=Carrier.DELAYED_ALL_REDUCE)


LETTERS = {"titan-v": "V", "titan-rtx": "R", "rtx-2060": "G", "quadro-p4000": "Q"}
"""As in the paper."""


def kinds_of(plan: WavePlan) -> list[str]:
    """The paper's letters for the devices of each worker."""
    return ["".join(LETTERS[name.partition("/")[0]] for name in worker.devices) for worker in plan.workers]


def about(plan: WavePlan) -> str:
    """Workers and minibatches of their waves."""
    waves = [worker.wave for worker in plan.workers]
    lengths = str(waves[0]) if len(set(waves)) == 1 else ", ".join(map(str, waves))
    return f"{' '.join(kinds_of(plan))}; H = {lengths}"
