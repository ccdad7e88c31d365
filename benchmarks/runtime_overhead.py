"""Overhead of the executor per action: near-empty layers over gloo, one process per stage.

Run from the repository root: `python -m benchmarks.runtime_overhead [--docs]`. It needs a processor core for each
rank; worlds of more ranks are passed over.

Overhead per action is what a rank takes from the start of its first action until its gradients are complete, less
the seconds inside the forwards of layers and loss and inside autograd's backwards, over its number of actions.
Waiting for neighbours counts, which are as slow for the same reason: it is the most that the runtime can cost an
action. The largest of all ranks is taken in each step, and the median over steps. That needs clocks around every
call, which count too; the whole time of an action, layers included, is measured without them.

Every rank has threads of gloo beside its own, so that ranks wait for processors also where nothing else runs. What
says that a figure is contaminated is therefore not the run queue, but processor time that others have used.
"""

import argparse
import os
import platform
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from statistics import median
from typing import Any, TypeVar

import torch
from torch import Tensor, nn

from benchmarks.report.pages import EXECUTOR_PAGE, markdown, put_tables
from benchmarks.report.results import keep_results
from stagecut import executor
from stagecut.executor.manual_plan import plan_of
from stagecut.executor.pipeline import SYNC, UPDATE
from stagecut.executor.schedule.messages import Message
from stagecut.executor.transport.interface import Pending, Transport
from stagecut.planner.core.numerics.cores import usable_cores
from stagecut.planner.core.plan import Plan
from tests.executor import pool

WORLDS = (2, 4)
NUM_MICRO_BATCHES = 64
WIDTH = 8
"""Width of a layer, which is one product: a few microseconds."""
WARMUP, STEPS = 3, 15
LIMIT_S = 0.7e-3
"""Largest overhead allowed per action."""
PARTS = ("layers", "wait", "post", "send", "release", "player")

CLEAN_SHARE = 0.05
"""Largest share of the processors that other programs, including the system, may use."""
PROCESSORS = Path("/proc/stat")

T = TypeVar("T")


@dataclass(frozen=True, slots=True, kw_only=True)
class RankStep:
    """One step of one rank."""

    seconds: float
    """From the start of its first action until its gradients are complete."""
    num_actions: int
    parts: Mapping[str, float]
    """Seconds; empty if the calls are not timed."""

    @property
    def overhead_s(self) -> float:
        """Overhead per action."""
        return (self.seconds - self.parts["layers"]) / self.num_actions


@dataclass(frozen=True, slots=True, kw_only=True)
class RankSteps:
    """All measured steps of one rank."""

    steps: tuple[RankStep, ...]
    seconds: float
    """Seconds from the first step to the last, including the time between steps."""
    own_s: float
    """Processor time used by the rank."""
    machine_s: float
    """Processor time used by all programs."""


@dataclass(frozen=True, slots=True, kw_only=True)
class WorldResult:
    """What was measured with one number of ranks."""

    num_ranks: int
    num_actions: int
    """Actions of each rank in a step."""
    step_s: float
    """Seconds per action, including layers, without timed calls."""
    overhead_s: float
    """Seconds per action."""
    parts_s: Mapping[str, float]
    """Seconds per action, with timed calls."""
    others_share: float
    """Share of the processors used by other programs."""

    @property
    def contaminated(self) -> bool:
        """Whether other programs disturbed the measurement."""
        return self.others_share > CLEAN_SHARE


class Stopwatch:
    """Sums seconds by part."""

    def __init__(self) -> None:
        self.seconds = dict.fromkeys(PARTS, 0.0)

    def timed(self, part: str, work: Callable[..., T]) -> Callable[..., T]:
        """The same function, adding its seconds to a part."""

        def call(*arguments: Any, **named: Any) -> T:
            start = time.perf_counter()
            try:
                return work(*arguments, **named)
            finally:
                self.seconds[part] += time.perf_counter() - start

        return call


class TimedTransport:
    """Wraps a transport and times its calls."""

    def __init__(self, transport: Transport, watch: Stopwatch) -> None:
        self._transport, self._watch = transport, watch
        self.sum, self.broadcast, self.barrier = transport.sum, transport.broadcast, transport.barrier

    def send(self, message: Message, tensors: Sequence[Tensor]) -> list[Pending]:
        """See :class:`stagecut.executor.transport.interface.Transport`."""
        return self._waiting("release", self._watch.timed("send", self._transport.send)(message, tensors))

    def expect(self, message: Message, tensors: Sequence[Tensor]) -> None:
        """See :class:`stagecut.executor.transport.interface.Transport`."""
        self._watch.timed("post", self._transport.expect)(message, tensors)

    def receive(self, message: Message) -> list[Pending]:
        """See :class:`stagecut.executor.transport.interface.Transport`."""
        return self._waiting("wait", self._watch.timed("post", self._transport.receive)(message))

    def _waiting(self, part: str, pendings: Sequence[Pending]) -> list[Pending]:
        return [_Timed(self._watch.timed(part, pending.wait)) for pending in pendings]


@dataclass(frozen=True, slots=True)
class _Timed:
    wait: Callable[[], object]


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure, print the table and keep the results; return exit code 1 if an action costs too much."""
    options = _parser().parse_args(arguments)
    cores = usable_cores()
    for num_ranks in WORLDS:
        if num_ranks > cores:
            print(f"skipped: {num_ranks} ranks need as many processor cores, this machine has {cores}")
    worlds = [measure(num_ranks) for num_ranks in WORLDS if num_ranks <= cores]
    text = table(worlds)
    largest_s = max((world.overhead_s for world in worlds), default=0.0)
    print(f"{NUM_MICRO_BATCHES} micro-batches, 1F1B over gloo; microseconds per action\n\n{text}\n")
    print(f"at most {1e3 * largest_s:.2f} ms per action, limit {1e3 * LIMIT_S:g} ms")
    keep_results("runtime_overhead", record(worlds))
    if options.docs:
        put_tables(EXECUTOR_PAGE, {"runtime overhead": text})
    return 0 if largest_s <= LIMIT_S else 1


def measure(
    num_ranks: int, *, num_microbatches: int = NUM_MICRO_BATCHES, warmup: int = WARMUP, steps: int = STEPS
) -> WorldResult:
    """Measure one number of ranks: steps without timed calls, then as many with them."""
    by_rank = pool.run(_run, num_ranks, num_microbatches, warmup, steps, world_size=num_ranks)
    plain, clocked = zip(*by_rank, strict=True)
    num_actions = plain[0].steps[0].num_actions
    plain_s = [max(rank.seconds for rank in step) for step in _by_step(plain)]
    slowest = [max(step, key=lambda rank: rank.overhead_s) for step in _by_step(clocked)]
    return WorldResult(
        num_ranks=num_ranks,
        num_actions=num_actions,
        step_s=median(plain_s) / num_actions,
        overhead_s=median(rank.overhead_s for rank in slowest),
        parts_s={part: median(rank.parts[part] for rank in slowest) / num_actions for part in PARTS},
        others_share=max(others_share(plain), others_share(clocked)),
    )


def _by_step(ranks: Sequence[RankSteps]) -> Iterator[tuple[RankStep, ...]]:
    return zip(*(rank.steps for rank in ranks), strict=True)


def others_share(ranks: Sequence[RankSteps]) -> float:
    """Share of the machine's processors used by other programs while these ranks ran."""
    first = ranks[0]
    others_s = first.machine_s - sum(rank.own_s for rank in ranks)
    return max(0.0, others_s) / (first.seconds * (os.cpu_count() or 1))


def _run(num_ranks: int, num_microbatches: int, warmup: int, steps: int) -> tuple[RankSteps, RankSteps]:
    """One rank's part: steps without timed calls, then with them."""
    plain = _steps(_pipeline(num_ranks, num_microbatches), warmup=warmup, steps=steps, watch=None)
    watch = Stopwatch()
    with _clocks(watch):
        pipeline = _pipeline(num_ranks, num_microbatches)
        pipeline.context = replace(pipeline.context, transport=TimedTransport(pipeline.transport, watch))
        pipeline.loss = watch.timed("layers", pipeline.loss)
        for stage in pipeline.stages:
            stage.forward = watch.timed("layers", stage.forward)  # type: ignore[method-assign]
        return plain, _steps(pipeline, warmup=warmup, steps=steps, watch=watch)


def _pipeline(num_ranks: int, num_microbatches: int) -> executor.Pipeline:
    return executor.load(
        plan(num_ranks, num_microbatches),
        [nn.Linear(WIDTH, WIDTH) for _ in range(num_ranks)],
        nn.functional.mse_loss,
        partial(torch.optim.SGD, lr=1e-3),
    )


def plan(num_ranks: int, num_microbatches: int) -> Plan:
    """One layer per stage, one sample per micro-batch."""
    return plan_of(tuple(range(num_ranks + 1)), micro_batch=1, num_microbatches=num_microbatches)


def _steps(pipeline: executor.Pipeline, *, warmup: int, steps: int, watch: Stopwatch | None) -> RankSteps:
    torch.manual_seed(0)  # all ranks are given the same batch
    batch = (torch.randn(pipeline.global_batch, WIDTH), torch.randn(pipeline.global_batch, WIDTH))
    for _ in range(warmup):
        pipeline.step(batch)
    pipeline.transport.barrier()
    start, own_s, machine_s = time.monotonic(), time.process_time(), _machine_s()
    found = tuple(_step(pipeline, batch, watch) for _ in range(steps))
    pipeline.transport.barrier()
    return RankSteps(
        steps=found,
        seconds=time.monotonic() - start,
        own_s=time.process_time() - own_s,
        machine_s=_machine_s() - machine_s,
    )


def _step(pipeline: executor.Pipeline, batch: tuple[Tensor, Tensor], watch: Stopwatch | None) -> RankStep:
    pipeline.transport.barrier()
    if watch is not None:
        watch.seconds = dict.fromkeys(PARTS, 0.0)
    pipeline.step(batch)
    assert pipeline.last_step is not None
    spans = pipeline.last_step.spans
    actions = [span for span in spans if span.kind not in (SYNC, UPDATE)]
    seconds = spans[len(actions)].ready_s - spans[0].ready_s
    parts = {} if watch is None else {**watch.seconds, "player": seconds - sum(watch.seconds.values())}
    return RankStep(seconds=seconds, num_actions=len(actions), parts=parts)


def _machine_s() -> float:
    """Processor time used by all programs, from the first line of /proc/stat: all but idle and waiting for disks."""
    fields = PROCESSORS.read_text().split("\n", 1)[0].split()[1:9]
    ticks = [int(field) for field in fields]
    return (sum(ticks) - ticks[3] - ticks[4]) / os.sysconf("SC_CLK_TCK")


@contextmanager
def _clocks(watch: Stopwatch) -> Iterator[None]:
    """Times autograd's backward."""
    backward = torch.autograd.backward
    torch.autograd.backward = watch.timed("layers", backward)
    try:
        yield
    finally:
        torch.autograd.backward = backward


def table(worlds: Sequence[WorldResult]) -> str:
    """Microseconds per action."""
    head = ["stages", "actions", "overhead", *(f"of it {part}" for part in PARTS[1:]), "layers", "all, no clocks"]
    return markdown(head, [_row(world) for world in worlds])


def _row(world: WorldResult) -> list[str]:
    mark = " (contaminated)" if world.contaminated else ""
    parts_s = [world.parts_s[part] for part in (*PARTS[1:], PARTS[0])]
    return [
        f"{world.num_ranks}{mark}",
        str(world.num_actions),
        *(f"{1e6 * seconds:.0f}" for seconds in (world.overhead_s, *parts_s, world.step_s)),
    ]


def record(worlds: Sequence[WorldResult]) -> dict[str, object]:
    """The results to keep."""
    return {
        "machine": {"cores": usable_cores(), "cpu": platform.processor() or platform.machine()},
        "torch": torch.__version__,
        "micro_batches": NUM_MICRO_BATCHES,
        "limit_s": LIMIT_S,
        "worlds": [
            {
                "ranks": world.num_ranks,
                "actions": world.num_actions,
                "overhead_s": world.overhead_s,
                "step_per_action_s": world.step_s,
                "parts_s": dict(world.parts_s),
                "others_share": round(world.others_share, 3),
                "contaminated": world.contaminated,
            }
            for world in worlds
        ],
    }


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.runtime_overhead", description=__doc__)
    parser.add_argument("--docs", action="store_true", help="write the table into docs/executor.md")
    return parser


if __name__ == "__main__":
    sys.exit(main())
