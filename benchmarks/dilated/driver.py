"""Dilated mode compared with the simulator: the same plans in real time, with real messages and gradients.

    python -m benchmarks.dilated           prints the table and writes results/dilated.json
    python -m benchmarks.dilated --docs    also puts it into docs/dilated.md

Every rank is a process of its own, over gloo, with layers so small that their work takes less time than
is planned for it. The gradients of every plan are compared with those of a single process.
"""

import argparse
import os
import sys
from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import timedelta
from functools import partial
from pathlib import Path
from statistics import median

import torch
import torch.distributed as dist
from torch import nn

from benchmarks.dilated.plans import SLICED_WARM_UP, WHOLE_WARM_UP, DilatedPlan, all_plans
from benchmarks.report.pages import ROOT, markdown, percent, put_tables
from benchmarks.report.results import keep_results
from stagecut import executor
from stagecut.executor.dilated.dilation import Dilation, dilation
from stagecut.executor.machine.run_queue import RunQueue
from stagecut.executor.measure.workers import Worker, run_workers
from stagecut.executor.pipeline import Pipeline
from stagecut.executor.play.reference import reference_step
from stagecut.executor.play.trace import StepTrace
from stagecut.executor.ranks.environment import LOOPBACK_ONLY
from stagecut.executor.ranks.run_folder import run_folder
from stagecut.executor.run.record import step_record
from stagecut.executor.schedule.rank_layout import RankLayout
from stagecut.models.modules.module_chain import LayerModule, ModuleChain
from stagecut.planner.core.run_record import counted_steps
from stagecut.planner.report.labels import seconds_label

DILATED_PAGE = ROOT / "docs" / "dilated.md"
WORST, MEDIAN = 0.05, 0.025
"""Limits on the error of any plan, and on the median error."""
EXACT = 1e-9
"""Largest absolute difference allowed for a gradient, in float64."""
WARMUP, STEPS = 1, 3
WIDTH, SEED = 8, 7
PATIENCE = timedelta(seconds=120)
"""How long a rank waits for another."""
HEAD = ("plan", "devices", "stages", "schedule", "simulated", "measured", "error", "run queue", "")
START_UP_HEAD = ("start-up of the last stage", "whole", "sliced", "sliced over whole")


@dataclass(frozen=True, slots=True, kw_only=True)
class RankReport:
    """What one rank reports about one plan."""

    traces: tuple[StepTrace, ...]
    gradient_difference: float
    overrun_s: float
    """How much longer than planned the work of the last step took."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PlanResult:
    """One plan, simulated and measured."""

    case: DilatedPlan
    measured_s: float
    start_up_s: float
    """Measured time until the last stage begins its first forward."""
    run_queue_share: float
    """The largest over the measured steps and their ranks."""
    contaminated: bool
    gradient_difference: float
    overrun_s: float

    @property
    def error(self) -> float:
        """Error relative to the simulated time."""
        return self.measured_s / self.case.simulated_s - 1

    @property
    def passed(self) -> bool:
        """Whether the plan is within the limits for a single plan."""
        return abs(self.error) <= WORST and self.gradient_difference <= EXACT


def main(arguments: Sequence[str] | None = None) -> None:
    """Play every plan, print the table and keep the results; exit with code 1 if a limit is exceeded."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--docs", action="store_true", help="write the table into docs/dilated.md")
    parser.add_argument(
        "--only", default="", metavar="TEXT", help="play only plans whose name contains TEXT; nothing is kept"
    )
    chosen = parser.parse_args(arguments)
    cases = [case for case in all_plans() if chosen.only in case.name]
    lines = measure(cases)
    page = f"{table(lines)}\n\n{verdict(lines)}\n\n{start_up_table(lines)}"
    print(page)
    if not chosen.only:
        keep_results("dilated", {"torch": torch.__version__, **record(lines)})
    if chosen.docs:
        put_tables(DILATED_PAGE, {"dilated": page})
    sys.exit(0 if passed(lines) else 1)


def measure(cases: Sequence[DilatedPlan]) -> list[PlanResult]:
    """Play plans one after another, in processes that are started only once."""
    os.environ.update(LOOPBACK_ONLY)
    os.environ["OMP_NUM_THREADS"] = "1"
    size = max(case.num_devices for case in cases)
    with run_folder() as folder:
        answers = run_workers(play_all, size, cases, folder)
    ranks = zip(*answers, strict=True)
    return [_result_of(case, [own for own in played if own]) for case, played in zip(cases, ranks, strict=True)]


def play_all(worker: Worker, cases: Sequence[DilatedPlan], folder: Path) -> list[RankReport | None]:
    """Act as one rank of every plan that has this many; None for the others."""
    torch.set_num_threads(1)
    torch.set_default_dtype(torch.float64)
    found: list[RankReport | None] = []
    for number, case in enumerate(cases):
        if worker.rank == 0:
            print(f"{case.name} ...", file=sys.stderr, flush=True)
        store, links = folder / f"store{number}", folder / f"links{number}"
        worker.meet()
        takes_part = worker.rank < case.num_devices
        found.append(_play(case, worker.rank, store=store, links=links) if takes_part else None)
    return found


def table(lines: Sequence[PlanResult]) -> str:
    """One row per plan."""
    return markdown(HEAD, [_row(line) for line in lines])


def start_up_table(lines: Sequence[PlanResult]) -> str:
    """How much earlier the last stage begins if the first micro-batches are halved: simulated and measured."""
    by_name, rows = {line.case.name: line for line in lines}, []
    for name, sliced in by_name.items():
        whole = by_name.get(name.replace(SLICED_WARM_UP, WHOLE_WARM_UP))
        if name.startswith(SLICED_WARM_UP) and whole is not None:
            stages = f"{sliced.case.times.num_stages} stages"
            rows.append(_start_up_row(f"{stages}, simulated", whole.case.start_up_s, sliced.case.start_up_s))
            rows.append(_start_up_row(f"{stages}, measured", whole.start_up_s, sliced.start_up_s))
    return markdown(START_UP_HEAD, rows)


def verdict(lines: Sequence[PlanResult]) -> str:
    """Whether the limits hold."""
    errors = [abs(line.error) for line in lines]
    return (
        f"{len(lines)} plans: error {percent(median(errors))} in the median (limit {percent(MEDIAN)}), "
        f"{percent(max(errors))} at most (limit {percent(WORST)}): {'pass' if passed(lines) else 'FAIL'}. "
        f"Gradients differ from those of a single process by {max(line.gradient_difference for line in lines):.1e} "
        f"at most; {sum(line.contaminated for line in lines)} of {len(lines)} plans were contaminated."
    )


def passed(lines: Sequence[PlanResult]) -> bool:
    """Whether all limits hold."""
    return all(line.passed for line in lines) and median(abs(line.error) for line in lines) <= MEDIAN


def record(lines: Sequence[PlanResult]) -> dict[str, object]:
    """The results to keep."""
    return {
        "limits": {"worst": WORST, "median": MEDIAN},
        "passed": passed(lines),
        "plans": [
            {
                "name": line.case.name,
                "devices": line.case.num_devices,
                "stages": line.case.times.num_stages,
                "schedule": str(line.case.plan.schedule),
                "simulated_s": line.case.simulated_s,
                "measured_s": line.measured_s,
                "simulated_start_up_s": line.case.start_up_s,
                "measured_start_up_s": line.start_up_s,
                "error": line.error,
                "run_queue_share": line.run_queue_share,
                "contaminated": line.contaminated,
                "gradient_difference": line.gradient_difference,
                "overrun_s": line.overrun_s,
            }
            for line in lines
        ],
    }


def tiny_chain(num_layers: int) -> ModuleChain:
    """Layers that do next to no work."""
    layer = partial(nn.Linear, WIDTH, WIDTH)
    layers = tuple(LayerModule(name=f"layer{index}", build=layer) for index in range(num_layers))
    return ModuleChain(name="tiny", layers=layers, loss=nn.functional.mse_loss, batch=None)


def _play(case: DilatedPlan, rank: int, *, store: Path, links: Path) -> RankReport:
    """Act as one rank of one plan, whose ranks find each other through a file."""
    dist.init_process_group(
        "gloo", init_method=store.as_uri(), rank=rank, world_size=case.num_devices, timeout=PATIENCE
    )
    chain = tiny_chain(case.plan.stages[-1].stop)
    pace = dilation(case.times, case.lists, RankLayout.of(case.plan), path=links)
    optimizer = partial(torch.optim.SGD, lr=0.0)
    pipeline = executor.load(case.plan, chain, optimizer=optimizer, seed=SEED, actions=case.lists, pace=pace)
    assert isinstance(pipeline.pace, Dilation)
    inputs = torch.randn(pipeline.global_batch, WIDTH, generator=torch.Generator().manual_seed(SEED))
    traces = tuple(_step(pipeline, inputs) for _ in range(WARMUP + STEPS))
    played = RankReport(
        traces=traces,
        gradient_difference=_gradient_difference(pipeline, chain, inputs),
        overrun_s=pipeline.pace.overrun_s,
    )
    dist.barrier()
    dist.destroy_process_group()
    return played


def _step(pipeline: Pipeline, inputs: torch.Tensor) -> StepTrace:
    queue = RunQueue()
    mark = queue.mark()
    pipeline.transport.barrier()
    pipeline.step((inputs, inputs.flip(1)))
    assert pipeline.last_step is not None
    return replace(pipeline.last_step, run_queue_share=queue.share_since(mark))


def _gradient_difference(pipeline: Pipeline, chain: ModuleChain, inputs: torch.Tensor) -> float:
    expected = reference_step(chain, (inputs, inputs.flip(1)), nn.functional.mse_loss, seed=SEED).gradients
    own = pipeline.named_parameters()
    gradients = {name: parameter.grad for name, parameter in own.items() if parameter.grad is not None}
    assert gradients.keys() == own.keys()
    return max(float((gradient - expected[name]).abs().max()) for name, gradient in gradients.items())


def _result_of(case: DilatedPlan, played: Sequence[RankReport]) -> PlanResult:
    steps = list(zip(*(own.traces for own in played), strict=True))
    records = [step_record(step) for step in steps]
    indices = counted_steps(records, warmup=WARMUP)
    counted = [records[index] for index in indices]
    return PlanResult(
        case=case,
        measured_s=median(step.seconds for step in counted),
        start_up_s=median(_start_up_s(steps[index], case.times.num_stages - 1) for index in indices),
        run_queue_share=max(step.run_queue_share for step in counted),
        contaminated=not counted[0].clean,
        gradient_difference=max(own.gradient_difference for own in played),
        overrun_s=max(own.overrun_s for own in played),
    )


def _start_up_s(step: Sequence[StepTrace], last_stage: int) -> float:
    """Seconds from the start of a step to the first forward of the last stage."""
    begins_s = min(trace.start_s for trace in step)
    return min(span.start_s for trace in step for span in trace.spans if span.stage == last_stage) - begins_s


def _start_up_row(name: str, whole_s: float, sliced_s: float) -> list[str]:
    return [name, seconds_label(whole_s), seconds_label(sliced_s), f"{sliced_s / whole_s:.3f}"]


def _row(line: PlanResult) -> list[str]:
    case = line.case
    return [
        case.name,
        case.devices,
        str(case.times.num_stages),
        str(case.plan.schedule),
        seconds_label(case.simulated_s),
        seconds_label(line.measured_s),
        f"{100 * line.error:+.2f} %",
        percent(line.run_queue_share) + (" (contaminated)" if line.contaminated else ""),
        "pass" if line.passed else "FAIL",
    ]
