"""`plan run --one-process`: all ranks as threads of this process, which share one device."""

from dataclasses import replace
from datetime import UTC, datetime

import torch

from executor.measure.contamination import RunQueue
from executor.play.batch import Batch
from executor.play.trace import StepTrace
from executor.run.options import RunOptions
from executor.run.outcome import Observer, Outcome, outcome_of
from executor.run.step_memory import step_peak_bytes
from executor.team import Team
from planner.core.checks import require
from planner.core.run_record import RunMode
from planner.io.plan_file import PlanFile


def run_together(plan_file: PlanFile, options: RunOptions, *, observer: Observer) -> Outcome:
    """Train on one device with a thread, and on a GPU a stream, for each rank.

    Raises
    ------
    BadInputError
        For what needs processes: dilated mode, --check, tensor parallelism.
    LossError
        If the loss of a step is no finite number.
    """
    require(options.mode is RunMode.REAL, "--one-process", "--mode", "real", str(options.mode))
    require(not options.check, "--one-process", "--check", "left out: it compares processes", options.check)
    chain = options.chain(plan_file)
    assert chain.batch is not None  # `layers_of` has looked
    device = torch.device(options.device) if options.device != "auto" else None
    team = Team(plan_file, chain, options.training(plan_file), device=device)
    first = team.pipelines[0]
    batch = chain.batch(first.global_batch, torch.Generator().manual_seed(options.seed))
    started, steps = datetime.now(UTC), []
    for step in range(options.warmup + options.num_steps):
        steps.append(_step(team, batch))
        observer(step, steps[-1][0])
    peaks_bytes = team.each(lambda pipeline: step_peak_bytes(pipeline, batch, shares_device=True))
    steps = [
        [replace(trace, peak_memory_bytes=peak) for trace, peak in zip(step, peaks_bytes, strict=True)]
        for step in steps
    ]
    return outcome_of(plan_file, steps, options=options, layout=first.layout, device=team.device, started=started)


def _step(team: Team, batch: Batch) -> list[StepTrace]:
    queue = RunQueue()
    mark = queue.mark()
    team.step(batch)
    share = queue.share_since(mark)
    traces = [pipeline.last_step for pipeline in team.pipelines]
    return [replace(trace, run_queue_share=share) for trace in traces if trace is not None]
