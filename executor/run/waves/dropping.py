"""Virtual workers that a run has gone on without: which may be dropped, and what became of them."""

from collections.abc import Mapping, Sequence

from stagecut.executor.ranks.environment import attempt_number, launcher_folder
from stagecut.executor.ranks.reporting import read_reports
from stagecut.executor.ranks.root_cause import root_cause
from stagecut.executor.run.options import RunOptions
from stagecut.executor.waves.setting.layout import WaveLayout
from stagecut.executor.waves.setting.report import WaveReport
from stagecut.planner.core.messages.errors import BadInputError
from stagecut.planner.core.virtual_workers.wave_plan import WavePlan
from stagecut.planner.core.virtual_workers.wave_run_record import DroppedWorker
from stagecut.planner.core.waves import Carrier, LocalStep

WHY_NOT = "--drop-workers: {}; omit --drop-workers"


def check_droppable(plan: WavePlan) -> None:
    """Refuse plans whose training cannot go on without a worker.

    Raises
    ------
    BadInputError
        It says why.
    """
    if len(plan.workers) == 1:
        raise BadInputError(WHY_NOT.format("the plan has one virtual worker, without which nothing is left"))
    if plan.carrier is Carrier.DELAYED_ALL_REDUCE:
        raise BadInputError(
            WHY_NOT.format("a delayed all-reduce waits for all workers, only parameter servers can do without one")
        )
    if plan.local_step is LocalStep.WAVE:
        raise BadInputError(
            WHY_NOT.format(
                "with one step a wave every step is made with a batch of all workers, which a worker less changes"
            )
        )


def drops_workers(options: RunOptions) -> bool:
    """Whether ranks can die one by one, as was asked for: torchrun ends all of them when one does."""
    return options.drop_workers and launcher_folder() is not None


def crews_of(layout: WaveLayout) -> list[list[int]]:
    """The ranks of each worker, which end together."""
    workers = range(len(layout.plan.workers))
    return [[role.rank for role in layout.roles if role.worker == worker] for worker in workers]


def dropped_workers(
    layout: WaveLayout,
    reports: Sequence[WaveReport],
    exit_codes: Mapping[int, int],
    *,
    num_waves: int,
    timeout_s: float,
) -> dict[int, DroppedWorker]:
    """What the servers, the launcher and the ranks themselves know of workers that died.

    Parameters
    ----------
    reports
        Of the ranks that were left in the end.
    exit_codes
        Of those that were not.
    num_waves
        Of the whole run: those of a worker that no server had to drop all count.
    """
    folder = launcher_folder()
    left = read_reports(folder, attempt=attempt_number()) if folder else ()
    servers = [dict(report.dropped) for report in reports if report.worker is None]
    found = {}
    for worker, crew in enumerate(crews_of(layout)):
        codes = {rank: exit_codes[rank] for rank in crew if rank in exit_codes}
        if codes:
            own = [report for report in left if codes.keys() & {report.rank, *report.to_blame}]
            reason = root_cause(own, codes, names=layout.names, timeout_s=timeout_s)
            counted = min(server.get(worker, num_waves) for server in servers)
            found[worker] = DroppedWorker(num_waves=counted, reason=str(reason))
    return found
