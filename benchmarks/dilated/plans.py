"""The plans of the dilated benchmark, frozen: uniform, mixed and catalogue clusters, every schedule, unusual lists."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from benchmarks.problems.specs import Spec
from stagecut.executor.dilated.planned_times import PlannedTimes
from stagecut.planner.core.plan import Pipeline, Plan, Stage
from stagecut.planner.core.schedule import Schedule, warmup_depths
from stagecut.planner.core.share import WHOLE, Share
from stagecut.planner.cost.cost_model import CostModel
from stagecut.planner.simulator.action_lists import Action, Op, plan_actions, stage_actions
from stagecut.planner.solvers.registry import run
from stagecut.planner.solvers.search.options import SolveOptions

GPIPE, ONE_F_ONE_B, EAGER, INTERLEAVED = Schedule
WHOLE_WARM_UP, SLICED_WARM_UP = "whole warm-up", "sliced warm-up"
"""Prefixes of the names of two plans that are otherwise the same."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    """A plan to play in dilated mode."""

    name: str
    devices: str
    """A description of the devices."""
    plan: Plan
    lists: tuple[tuple[Action, ...], ...]
    """By device group."""
    times: PlannedTimes

    @property
    def num_devices(self) -> int:
        """Number of devices, which is the number of ranks."""
        return len(
            {device for pipeline in self.plan.pipelines for stage in pipeline.stages for device in stage.devices}
        )

    @property
    def simulated_s(self) -> float:
        """Simulated iteration time."""
        return self.times.iteration_s(self.lists)

    @property
    def start_up_s(self) -> float:
        """Simulated time until the last stage begins its first forward."""
        return self.times.start_up_s(self.lists)


@dataclass(frozen=True, slots=True, kw_only=True)
class Shape:
    """A hand-made plan with one layer per stage."""

    schedule: Schedule = ONE_F_ONE_B
    num_microbatches: int
    micro_batch: int = 1
    replicas: tuple[int, ...] = ()
    """Replicas by device group; one each by default."""
    sizes: tuple[tuple[int, int], ...] = ()
    """Samples per forward and per backward, by stage."""
    num_pipelines: int = 1
    chunks: int = 1
    num_sliced: int = 0

    def plan(self, num_stages: int) -> Plan:
        """The plan with this many stages."""
        depths = warmup_depths(self.schedule, num_stages, self.num_microbatches, chunks=self.chunks)
        pipelines = range(self.num_pipelines)
        return Plan(
            schedule=self.schedule,
            micro_batch=self.micro_batch,
            num_microbatches=self.num_microbatches,
            pipelines=tuple(
                Pipeline(stages=tuple(self._stage(p, s, depth, num_stages) for s, depth in enumerate(depths)))
                for p in pipelines
            ),
            share=WHOLE if len(pipelines) == 1 else Share(num_pipelines=len(pipelines), host_splits=(len(pipelines),)),
            chunks=self.chunks,
            num_sliced=self.num_sliced,
        )

    def _stage(self, pipeline: int, index: int, depth: int, num_stages: int) -> Stage:
        group = index % (num_stages // self.chunks)
        replicas = self.replicas[group] if self.replicas else 1
        forward, backward = self.sizes[index] if self.sizes else (self.micro_batch, self.micro_batch)
        held = max(depth * self.micro_batch, forward, backward)
        return Stage(
            start=index,
            stop=index + 1,
            devices=tuple(f"pipeline{pipeline}-group{group}/{slot}" for slot in range(replicas)),
            replicas=replicas,
            warmup_depth=-(-held // forward),
            forward_micro_batch=forward,
            backward_micro_batch=backward,
        )


def all_cases() -> tuple[Case, ...]:
    """Every plan of the table."""
    return (*_equal(), *_mixed(), *_links(), *_sizes(), *_sliced(), *_copies(), *_catalogue())


def _equal() -> tuple[Case, ...]:
    devices = "4 equal"
    equal = _times([30] * 4, [60] * 4, 4)
    interleaved = _times([25] * 8, [50] * 8, 4)
    return (
        _case("gpipe", devices, Shape(schedule=GPIPE, num_microbatches=10), equal),
        _case("1f1b", devices, Shape(num_microbatches=12), equal),
        _case("two chunks", devices, Shape(schedule=INTERLEAVED, chunks=2, num_microbatches=12), interleaved),
    )


def _mixed() -> tuple[Case, ...]:
    eight = _times([24, 31, 18, 36, 28, 21, 34, 26], [47, 63, 39, 70, 58, 44, 66, 51], 5)
    five = _times([36, 22, 30, 41, 27], [70, 46, 63, 78, 52], 6)
    chunks = _times([24, 34, 29, 43, 22, 36, 31, 39], [46, 70, 61, 80, 44, 73, 56, 82], 5)
    return (
        _case("1f1b, 8 stages", "8 mixed", Shape(num_microbatches=12), eight),
        _case("eager, 5 stages", "5 mixed", Shape(schedule=EAGER, num_microbatches=12), five),
        _case("two chunks, mixed", "4 mixed", Shape(schedule=INTERLEAVED, chunks=2, num_microbatches=8), chunks),
    )


def _links() -> tuple[Case, ...]:
    slow = _times([30, 24, 33, 27], [58, 49, 66, 55], 45)
    six = _times([26, 33, 22, 37, 30, 28], [52, 64, 45, 71, 61, 57], [18, 41, 27, 36, 22])
    return (
        _case("1f1b, slow links", "4 mixed", Shape(num_microbatches=12), slow),
        _case("eager, slow links", "4 mixed", Shape(schedule=EAGER, num_microbatches=12), slow),
        _case("gpipe, slow links", "6 mixed", Shape(schedule=GPIPE, num_microbatches=10), six),
        _case("1f1b, shared links", "6 mixed", Shape(num_microbatches=12), _on_hosts(six, (0, 0, 1, 1, 1, 2))),
    )


def _sizes() -> tuple[Case, ...]:
    """Stages with their own micro-batch sizes (UMPIPE), and halves in the warm-up (AutoPipe, section III-C).

    A small size takes more than its part of a large one, as on real devices.
    """
    sizes = ((4, 4), (2, 4), (4, 4), (1, 2))
    unequal = _times([40, 52, 46, 58], [78, 96, 90, 104], 8, micro_batch=4)
    own_s = {
        (Op.FORWARD, 1, 2): 0.029,
        (Op.FORWARD, 3, 1): 0.018,
        (Op.BACKWARD, 3, 2): 0.055,
    }
    halved = _times([42, 38, 47, 40], [80, 77, 92, 84], 9, micro_batch=2)
    halves_s = {(Op.FORWARD, stage, 1): 0.6 * seconds for stage, seconds in enumerate(halved.forward_s)}
    shape = Shape(num_microbatches=10, micro_batch=2)
    lists = [stage_actions(s, [1, 1, *[2] * 9], [2] * 10, depth=2 * (4 - s)) for s in range(4)]
    return (
        _case("unequal sizes", "4 mixed", Shape(num_microbatches=10, micro_batch=4, sizes=sizes), unequal, own_s=own_s),
        _case("halved warm-up", "4 mixed", shape, halved, own_s=halves_s, lists=lists),
    )


def _sliced() -> tuple[Case, ...]:
    """AutoPipe's slicing where its gain is known: B = 2 F, M = 2 p, no transfers, and enough halves to gain it all."""
    cases = []
    for num_stages, forward_ms, count in ((4, 50, 1), (8, 24, 2)):
        times = _times([forward_ms] * num_stages, [2 * forward_ms] * num_stages, 0, micro_batch=2)
        shape = Shape(num_microbatches=2 * num_stages, micro_batch=2)
        devices = f"{num_stages} equal"
        cases.append(_case(f"{WHOLE_WARM_UP}, {num_stages} stages", devices, shape, times))
        sliced = replace(shape, num_sliced=count)
        cases.append(_case(f"{SLICED_WARM_UP}, {num_stages} stages", devices, sliced, times))
    return tuple(cases)


def _copies() -> tuple[Case, ...]:
    replicas = _times([32, 39, 28], [63, 81, 55], 12, micro_batch=6, sync_ms=[70, 0, 110], update_ms=[9, 12, 8])
    pipelines = _times([31, 37, 29], [60, 75, 59], 10, sync_ms=[120, 90, 140], update_ms=[10, 10, 10])
    return (
        _case("replicas 2, 1, 3", "6 mixed", Shape(num_microbatches=12, micro_batch=6, replicas=(2, 1, 3)), replicas),
        _case("two pipelines", "6 mixed", Shape(num_microbatches=12, num_pipelines=2), pipelines),
    )


def _catalogue() -> tuple[Case, ...]:
    choices = {"micro_batches": (2,), "tensor_parallel": (1,), "pipelines": (1,)}
    hetpipe = Spec(model="gpt2-xl", cluster="hetpipe-16", global_batch=48, **choices)
    server = Spec(model="bert-large", cluster="mixed-server-8", global_batch=32, **choices)
    return _planned(hetpipe, iteration_s=3.0), _planned(server, iteration_s=2.0)


def _case(
    name: str,
    devices: str,
    shape: Shape,
    times: PlannedTimes,
    *,
    own_s: Mapping[tuple[Op, int, int], float] | None = None,
    lists: Sequence[Sequence[Action]] | None = None,
) -> Case:
    plan = shape.plan(times.num_stages)
    played = plan_actions(plan) if lists is None else lists
    return Case(
        name=name,
        devices=devices,
        plan=plan,
        lists=tuple(tuple(actions) for actions in played),
        times=replace(times, own_s=own_s or {}),
    )


def _times(
    forward_ms: Sequence[float],
    backward_ms: Sequence[float],
    transfer_ms: float | Sequence[float],
    *,
    micro_batch: int = 1,
    sync_ms: Sequence[float] = (),
    update_ms: Sequence[float] = (),
) -> PlannedTimes:
    """Planned times without shared links."""
    num_stages = len(forward_ms)
    transfers = [transfer_ms] * (num_stages - 1) if isinstance(transfer_ms, int | float) else transfer_ms
    nothing = [0.0] * num_stages
    return PlannedTimes(
        micro_batch=micro_batch,
        forward_s=_seconds(forward_ms),
        backward_s=_seconds(backward_ms),
        transfer_s=_seconds(transfers),
        sync_s=_seconds(sync_ms or nothing),
        update_s=_seconds(update_ms or nothing),
        routes=((),) * (3 * num_stages - 2),
    )


def _seconds(milliseconds: Sequence[float]) -> tuple[float, ...]:
    return tuple(1e-3 * value for value in milliseconds)


def _on_hosts(times: PlannedTimes, hosts: Sequence[int]) -> PlannedTimes:
    """Stages on these hosts: one fabric for all messages inside a host, one interface per direction between hosts."""

    def route(sender: int, receiver: int) -> tuple[str, ...]:
        first, second = hosts[sender], hosts[receiver]
        return (f"{first}:fabric",) if first == second else (f"{first}:nic-out", f"{second}:nic-in")

    edges = range(times.num_stages - 1)
    forwards = (route(stage, stage + 1) for stage in edges)
    backwards = (route(stage + 1, stage) for stage in edges)
    return replace(times, routes=(*forwards, *backwards, *((),) * times.num_stages))


def _planned(spec: Spec, *, iteration_s: float) -> Case:
    """The plan found by `greedy`, its times scaled so that an iteration takes the given time."""
    problem = spec.problem()
    plan = run(problem, "greedy", SolveOptions()).plan
    assert plan is not None
    times = PlannedTimes.of(CostModel(problem).plan(plan))
    lists = tuple(tuple(actions) for actions in plan_actions(plan))
    return Case(
        name=f"{spec.model} on {spec.cluster}",
        devices=f"{problem.cluster.num_devices} of the catalogue",
        plan=plan,
        lists=lists,
        times=times.scaled(iteration_s / times.iteration_s(lists)),
    )
