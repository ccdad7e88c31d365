"""Samples per second of a plan in the long run."""

from stagecut.planner.cost.wave_costs import WaveCosts
from stagecut.planner.simulator.waves.steady import steady_state


def throughput(costs: WaveCosts) -> float:
    """What the simulator says."""
    return steady_state(costs).samples_per_s
