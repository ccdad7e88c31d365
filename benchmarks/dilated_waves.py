"""Dilated mode of virtual workers compared with the simulator: the same waves in real time, on real messages.

    python -m benchmarks.dilated_waves           prints the table and writes results/dilated_waves.json
    python -m benchmarks.dilated_waves --docs    also puts it into docs/dilated.md

All stages are threads of one process, with layers so small that their work takes less time than is planned for it.
"""

import argparse
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from statistics import median

import torch
from torch import nn

from benchmarks.problems.specs import Spec
from benchmarks.report.pages import ROOT, markdown, percent, put_tables
from benchmarks.report.results import keep_results
from stagecut.executor.dilated.stand_in_layers import stand_ins
from stagecut.executor.dilated.wave_dilation import WaveDilation
from stagecut.executor.dilated.wave_time_scale import find_wave_time_scale
from stagecut.executor.machine.run_queue import RunQueue
from stagecut.executor.run.waves.record import COOL_DOWN, measured_waves_s
from stagecut.executor.waves.setting.data import sharded
from stagecut.executor.waves.setting.execution import WaveTraining
from stagecut.executor.waves.team import WaveTeam
from stagecut.planner.core.cluster import Link
from stagecut.planner.core.job import WaveChoices
from stagecut.planner.core.problem import Problem
from stagecut.planner.core.virtual_workers.wave_plan import WavePlan
from stagecut.planner.core.waves import Allocation, Carrier, LocalStep, ShardPlacement
from stagecut.planner.cost.waves.wave_costs import WaveCostModel
from stagecut.planner.io.files.cluster import read_cluster
from stagecut.planner.io.files.job import read_job
from stagecut.planner.io.files.profile import read_profile
from stagecut.planner.simulator.waves.steady import steady_state
from stagecut.planner.solvers.search.options import SolveOptions
from stagecut.planner.workers.solving import solve_waves

DILATED_PAGE = ROOT / "docs" / "dilated.md"
TINY = ROOT / "examples" / "tiny"
WORST, MEDIAN = 0.05, 0.025
"""Limits on the error of any setting, and on the median error."""
PATIENCE = 1.5
"""How much slower than `plan run` would play, so that other programs on the machine matter less."""
FEWEST_WAVES = 6
MOST_WARMUP = 8
"""A period is measured behind the start-up, as far as that is not longer."""
SLOW_NIC = Link(bandwidth_bytes_per_s=0.5e9, latency_s=1e-4)
HEAD = ("setting", "workers", "D", "stages", "simulated, samples/s", "measured", "error", "time scale", "run queue", "")


@dataclass(frozen=True, slots=True, kw_only=True)
class Setting:
    """A problem to be planned and played."""

    name: str
    problem: Problem


@dataclass(frozen=True, slots=True, kw_only=True)
class SettingResult:
    """One setting, simulated and measured."""

    name: str
    plan: WavePlan
    simulated: float
    """Samples per second."""
    measured: float
    time_scale: float
    run_queue_share: float
    """Fraction of the time in which the process was ready to run but had no processor."""

    @property
    def error(self) -> float:
        """Relative to the simulated throughput."""
        return self.measured / self.simulated - 1


def main(arguments: Sequence[str] | None = None) -> None:
    """Play every setting, print the table and keep the results; exit with code 1 if a limit is exceeded."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--docs", action="store_true", help="write the table into docs/dilated.md")
    chosen = parser.parse_args(arguments)
    torch.set_num_threads(1)
    lines = [played(setting) for setting in settings()]
    page = f"{table(lines)}\n\n{verdict(lines)}"
    print(page)
    keep_results("dilated_waves", {"torch": torch.__version__, **record(lines)})
    if chosen.docs:
        put_tables(DILATED_PAGE, {"dilated-waves": page})
    sys.exit(0 if passed(lines) else 1)


def settings() -> Iterator[Setting]:
    """Two servers of two devices with slow links between them, and the paper's cluster."""
    choices = partial(WaveChoices, allocation=Allocation.NODE_PARTITION, in_flight=3)
    local, by_all_reduce = ShardPlacement.LOCAL, Carrier.DELAYED_ALL_REDUCE
    yield Setting(name="unlike workers", problem=tiny(choices(clock_distance=0)))
    yield Setting(name="unlike workers", problem=tiny(choices(clock_distance=4)))
    yield Setting(name="unlike workers, local shards", problem=tiny(choices(clock_distance=1, shards=local)))
    yield Setting(name="longer waves of the faster", problem=tiny(choices(clock_distance=1, proportional=True)))
    yield Setting(name="delayed all-reduce", problem=tiny(choices(clock_distance=1, carrier=by_all_reduce)))
    yield Setting(name="one step a wave", problem=tiny(choices(clock_distance=0, local_step=LocalStep.WAVE)))
    alike = partial(WaveChoices, allocation=Allocation.EQUAL_DISTRIBUTION, in_flight=4, clock_distance=1)
    yield Setting(name="vgg19 on hetpipe-16, spread", problem=paper(alike()))
    yield Setting(name="vgg19 on hetpipe-16, local", problem=paper(alike(shards=local)))


def tiny(waves: WaveChoices) -> Problem:
    """The tiny example with slow network interfaces, minibatches of 4."""
    cluster = read_cluster(TINY / "cluster.yaml")
    servers = tuple(replace(server, nic=SLOW_NIC) for server in cluster.servers)
    job = replace(read_job(TINY / "job.yaml"), global_batch=4, micro_batches=(4,), waves=waves)
    model = read_profile(TINY / "profile.yaml")
    return Problem(model=model, cluster=replace(cluster, servers=servers), job=job)


def paper(waves: WaveChoices) -> Problem:
    """VGG-19 on the cluster of HetPipe, minibatches of 32."""
    problem = Spec(model="vgg19", cluster="hetpipe-16", global_batch=32).problem()
    return replace(problem, job=replace(problem.job, micro_batches=(32,), waves=waves))


def played(setting: Setting) -> SettingResult:
    """Plan, simulate and play a setting."""
    print(f"{setting.name} ...", file=sys.stderr, flush=True)
    problem = setting.problem
    plan = solve_waves(problem, SolveOptions(), time_limit_s=60.0).plan
    assert plan is not None
    costs = WaveCostModel(problem).plan(plan)
    steady, pace = steady_state(costs), WaveDilation(costs)
    training = WaveTraining(optimizer=partial(torch.optim.SGD, lr=0.0), loss_fn=nn.functional.mse_loss)
    chain = stand_ins(problem.model)
    team = WaveTeam(plan, chain, training, problem=problem, pace=pace.pace, channel=pace.channel)
    assert chain.batch is not None
    data = sharded(chain.batch(plan.samples_per_wave, torch.Generator().manual_seed(0)), plan, seed=None)
    pace.time_scale = PATIENCE * find_wave_time_scale(team, data, pace=pace)
    warmup = min(steady.first_wave, MOST_WARMUP)
    measured = FEWEST_WAVES + steady.num_waves
    queue = RunQueue()
    mark = queue.mark()
    reports = team.train(data, num_waves=warmup + measured + COOL_DOWN)
    wave_s = max(measured_waves_s(plan, reports, warmup=warmup, period=steady.num_waves)) / pace.time_scale
    return SettingResult(
        name=setting.name,
        plan=plan,
        simulated=steady.samples_per_s,
        measured=plan.samples_per_wave / wave_s,
        time_scale=pace.time_scale,
        run_queue_share=queue.share_since(mark),
    )


def table(lines: Sequence[SettingResult]) -> str:
    """One row per setting."""
    return markdown(HEAD, [_row(line) for line in lines])


def verdict(lines: Sequence[SettingResult]) -> str:
    """Whether the limits hold."""
    errors = [abs(line.error) for line in lines]
    return (
        f"{len(lines)} settings: error {percent(median(errors))} in the median (limit {percent(MEDIAN)}), "
        f"{percent(max(errors))} at most (limit {percent(WORST)}): {'pass' if passed(lines) else 'FAIL'}."
    )


def passed(lines: Sequence[SettingResult]) -> bool:
    """Whether all limits hold."""
    errors = [abs(line.error) for line in lines]
    return max(errors) <= WORST and median(errors) <= MEDIAN


def record(lines: Sequence[SettingResult]) -> dict[str, object]:
    """The results to keep."""
    return {
        "limits": {"worst": WORST, "median": MEDIAN},
        "passed": passed(lines),
        "settings": [
            {
                "name": line.name,
                "workers": len(line.plan.workers),
                "clock_distance": line.plan.clock_distance,
                "simulated_samples_per_s": line.simulated,
                "measured_samples_per_s": line.measured,
                "error": line.error,
                "time_scale": line.time_scale,
                "run_queue_share": line.run_queue_share,
            }
            for line in lines
        ],
    }


def _row(line: SettingResult) -> list[str]:
    return [
        line.name,
        str(len(line.plan.workers)),
        str(line.plan.clock_distance),
        " + ".join(str(worker.num_stages) for worker in line.plan.workers),
        f"{line.simulated:.4g}",
        f"{line.measured:.4g}",
        f"{100 * line.error:+.2f} %",
        f"{line.time_scale:g}",
        percent(line.run_queue_share),
        "pass" if abs(line.error) <= WORST else "FAIL",
    ]


if __name__ == "__main__":
    main()
