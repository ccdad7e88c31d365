"""Samples per second of a plan whose links and servers never keep a stage waiting."""

from stagecut.planner.core.waves import LocalStep
from stagecut.planner.cost.wave_costs import WaveCosts


def throughput(costs: WaveCosts) -> float:
    """That of the slowest stage of all workers."""
    each_step = costs.plan.local_step is LocalStep.MINIBATCH
    periods_s = [
        float(
            (
                own.worker.wave * (own.forward_s + own.backward_s)
                + (own.worker.wave if each_step else 1) * own.update_s
            ).max()
        )
        for own in costs.workers
    ]
    return costs.plan.samples_per_wave / max(periods_s)
