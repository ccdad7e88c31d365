"""For how long the links between virtual workers and their parameter servers are in use."""

from collections import defaultdict

from stagecut.planner.cost.waves.wave_costs import WaveCosts
from stagecut.planner.simulator.binding import LinkUse
from stagecut.planner.simulator.waves.network import network_of
from stagecut.planner.simulator.waves.steady import SteadyState


def links_per_wave(costs: WaveCosts, steady: SteadyState) -> tuple[LinkUse, ...]:
    """All links in use in the long run, with their seconds per wave, the busiest first.

    A message on no named link gets a name from its stage.
    """
    network = network_of(costs)
    busy_s: dict[str, float] = defaultdict(float)
    for flow, count in zip(network.flows, steady.carried, strict=True):
        node = network.nodes[flow.node]
        for name in dict.fromkeys(flow.route or (f"worker {node.worker}, stage {node.stage}: {flow.kind}",)):
            busy_s[name] += count * flow.seconds
    uses = (LinkUse(name=name, busy_s=seconds) for name, seconds in busy_s.items() if seconds > 0)
    return tuple(sorted(uses, key=lambda use: (-use.busy_s, use.name)))
