"""The plans of the dilated benchmark, frozen: uniform, mixed and catalogue clusters, every schedule, unusual lists."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from benchmarks.problems.specs import Spec
from stagecut.executor.dilated.planned_times import PlannedTimes
from stagecut.executor.manual_plan import plan_of
from stagecut.executor.schedule.rank_layout import message_sizes
from stagecut.planner.core.plan import Plan
from stagecut.planner.core.schedule import Schedule
from stagecut.planner.cost.cost_model import CostModel
from stagecut.planner.cost.plan_costs import OwnTimes, TaskKind
from stagecut.planner.simulator.action_lists import Action, plan_actions, stage_actions
from stagecut.planner.solvers.registry import run
from stagecut.planner.solvers.search.options import SolveOptions

GPIPE, ONE_F_ONE_B, EAGER, INTERLEAVED = Schedule
WHOLE_WARM_UP, SLICED_WARM_UP = "whole warm-up", "sliced warm-up"
"""Prefixes of the names of two plans that are otherwise the same."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DilatedPlan:
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
        return self.times.iteration_s(self.lists, message_sizes(self.plan))

    @property
    def start_up_s(self) -> float:
        """Simulated time until the last stage begins its first forward."""
        return self.times.start_up_s(self.lists, message_sizes(self.plan))


def all_plans() -> tuple[DilatedPlan, ...]:
    """Every plan of the table."""
    return (*_equal(), *_mixed(), *_links(), *_sizes(), *_sliced(), *_copies(), *_catalogue())


def _equal() -> tuple[DilatedPlan, ...]:
    devices = "4 equal"
    equal = _times([30] * 4, [60] * 4, 4)
    interleaved = _times([25] * 8, [50] * 8, 4)
    return (
        _manual("gpipe", devices, equal, schedule=GPIPE, num_microbatches=10),
        _manual("1f1b", devices, equal, num_microbatches=12),
        _manual("two chunks", devices, interleaved, schedule=INTERLEAVED, chunks=2, num_microbatches=12),
    )


def _mixed() -> tuple[DilatedPlan, ...]:
    eight = _times([24, 31, 18, 36, 28, 21, 34, 26], [47, 63, 39, 70, 58, 44, 66, 51], 5)
    five = _times([36, 22, 30, 41, 27], [70, 46, 63, 78, 52], 6)
    chunks = _times([24, 34, 29, 43, 22, 36, 31, 39], [46, 70, 61, 80, 44, 73, 56, 82], 5)
    return (
        _manual("1f1b, 8 stages", "8 mixed", eight, num_microbatches=12),
        _manual("eager, 5 stages", "5 mixed", five, schedule=EAGER, num_microbatches=12),
        _manual("two chunks, mixed", "4 mixed", chunks, schedule=INTERLEAVED, chunks=2, num_microbatches=8),
    )


def _links() -> tuple[DilatedPlan, ...]:
    slow = _times([30, 24, 33, 27], [58, 49, 66, 55], 45)
    six = _times([26, 33, 22, 37, 30, 28], [52, 64, 45, 71, 61, 57], [18, 41, 27, 36, 22])
    return (
        _manual("1f1b, slow links", "4 mixed", slow, num_microbatches=12),
        _manual("eager, slow links", "4 mixed", slow, schedule=EAGER, num_microbatches=12),
        _manual("gpipe, slow links", "6 mixed", six, schedule=GPIPE, num_microbatches=10),
        _manual("1f1b, shared links", "6 mixed", _on_hosts(six, (0, 0, 1, 1, 1, 2)), num_microbatches=12),
    )


def _sizes() -> tuple[DilatedPlan, ...]:
    """Micro-batch sizes of stages, halves in the warm-up (AutoPipe, section III-C), sizes of all processes (UMPIPE).

    A small size takes more than its part of a large one, as on real devices.
    """
    sizes = ((4, 4), (2, 4), (4, 4), (1, 2))
    unequal = _times([40, 52, 46, 58], [78, 96, 90, 104], 8, micro_batch=4)
    own_s = {
        (TaskKind.FORWARD, 1, 2): 0.029,
        (TaskKind.FORWARD, 3, 1): 0.018,
        (TaskKind.BACKWARD, 3, 2): 0.055,
    }
    halved = _times([42, 38, 47, 40], [80, 77, 92, 84], 9, micro_batch=2)
    halves_s = {(TaskKind.FORWARD, stage, 1): 0.6 * seconds for stage, seconds in enumerate(halved.forward_s)}
    lists = [stage_actions(s, [1, 1, *[2] * 9], [2] * 10, depth=2 * (4 - s)) for s in range(4)]
    whole = _times([360, 408, 336, 384], [720, 816, 672, 768], [96, 144, 120], micro_batch=24)
    sublots: dict[str, Any] = {
        "sizes": ((4, 12), (6, 6), (5, 10), (3, 24)),
        "messages": ((8, 4), (3, 12), (10, 5)),
    }
    return (
        _manual("unequal sizes", "4 mixed", unequal, num_microbatches=10, sizes=sizes, own_s=own_s),
        _manual("halved warm-up", "4 mixed", halved, num_microbatches=10, own_s=halves_s, lists=lists),
        _manual("sublots", "4 mixed", whole, schedule=GPIPE, num_microbatches=1, own_s=_setups(whole), **sublots),
    )


def _setups(times: PlannedTimes) -> OwnTimes:
    """A setup of 12 ms in the time of every action, and of 5 ms in that of every message, of whatever size."""
    sizes = range(1, times.micro_batch + 1)
    actions = ((TaskKind.FORWARD, times.forward_s), (TaskKind.BACKWARD, times.backward_s))
    messages = ((TaskKind.SEND_FORWARD, times.transfer_s), (TaskKind.SEND_BACKWARD, (0.0, *times.transfer_s)))
    return {
        (kind, stage, size): setup_s + (whole_s - setup_s) * size / times.micro_batch
        for setup_s, kinds in ((0.012, actions), (0.005, messages))
        for kind, column in kinds
        for stage, whole_s in enumerate(column)
        for size in sizes
    }


def _sliced() -> tuple[DilatedPlan, ...]:
    """AutoPipe's slicing where its gain is known: B = 2 F, M = 2 p, no transfers, and enough halves to gain it all."""
    cases = []
    for num_stages, forward_ms, count in ((4, 50, 1), (8, 24, 2)):
        times = _times([forward_ms] * num_stages, [2 * forward_ms] * num_stages, 0, micro_batch=2)
        for warm_up, num_sliced in ((WHOLE_WARM_UP, 0), (SLICED_WARM_UP, count)):
            name, devices = f"{warm_up}, {num_stages} stages", f"{num_stages} equal"
            cases.append(_manual(name, devices, times, num_microbatches=2 * num_stages, num_sliced=num_sliced))
    return tuple(cases)


def _copies() -> tuple[DilatedPlan, ...]:
    replicas = _times([32, 39, 28], [63, 81, 55], 12, micro_batch=6, sync_ms=[70, 0, 110], update_ms=[9, 12, 8])
    pipelines = _times([31, 37, 29], [60, 75, 59], 10, sync_ms=[120, 90, 140], update_ms=[10, 10, 10])
    return (
        _manual("replicas 2, 1, 3", "6 mixed", replicas, num_microbatches=12, replicas=(2, 1, 3)),
        _manual("two pipelines", "6 mixed", pipelines, num_microbatches=12, num_pipelines=2),
    )


def _catalogue() -> tuple[DilatedPlan, ...]:
    choices = {"micro_batches": (2,), "tensor_parallel": (1,), "pipelines": (1,)}
    hetpipe = Spec(model="gpt2-xl", cluster="hetpipe-16", global_batch=128, **choices | {"micro_batches": (4,)})
    server = Spec(model="bert-large", cluster="mixed-server-8", global_batch=32, **choices)
    return _planned(hetpipe, iteration_s=3.0), _planned(server, iteration_s=2.0)


def _manual(  # noqa: PLR0913
    name: str,
    devices: str,
    times: PlannedTimes,
    *,
    num_microbatches: int,
    schedule: Schedule = ONE_F_ONE_B,
    chunks: int = 1,
    replicas: Sequence[int] = (),
    sizes: Sequence[tuple[int, int]] = (),
    messages: Sequence[tuple[int | None, int | None]] = (),
    num_pipelines: int = 1,
    num_sliced: int = 0,
    own_s: OwnTimes | None = None,
    lists: Sequence[Sequence[Action]] | None = None,
) -> DilatedPlan:
    """A hand-made plan with one layer per stage; see :func:`stagecut.executor.manual_plan.plan_of`."""
    plan = plan_of(
        range(times.num_stages + 1),
        schedule=schedule,
        micro_batch=times.micro_batch,
        num_microbatches=num_microbatches,
        replicas=replicas,
        sizes=sizes,
        messages=messages,
        num_pipelines=num_pipelines,
        chunks=chunks,
    )
    plan = replace(plan, num_sliced=num_sliced)
    played = plan_actions(plan) if lists is None else lists
    return DilatedPlan(
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


def _planned(spec: Spec, *, iteration_s: float) -> DilatedPlan:
    """The plan found by `greedy`, its times scaled so that an iteration takes the given time."""
    problem = spec.problem()
    plan = run(problem, "greedy", SolveOptions()).plan
    assert plan is not None
    times = PlannedTimes.of(CostModel(problem).plan(plan))
    lists = tuple(tuple(actions) for actions in plan_actions(plan))
    return DilatedPlan(
        name=f"{spec.model} on {spec.cluster}",
        devices=f"{problem.cluster.num_devices} of the catalogue",
        plan=plan,
        lists=lists,
        times=times.scaled(iteration_s / times.iteration_s(lists)),
    )
