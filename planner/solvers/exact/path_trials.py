"""Paths through a network tried as plans: simulated and, if they come close to the best plan, their layers moved."""

import math
from collections.abc import Sequence

import numpy as np

from stagecut.planner.core.numerics.arrays import Ints
from stagecut.planner.core.plan import Plan
from stagecut.planner.network.arrangement import arrangement_of
from stagecut.planner.network.decode import decode_path, decode_paths
from stagecut.planner.network.stage_network import StageNetwork
from stagecut.planner.solvers.exact.path_times import PathTimes, can_time
from stagecut.planner.solvers.heuristic.local_search import improve
from stagecut.planner.solvers.search.search import Search

WORTH_IMPROVING = 1.03
"""Layers are moved in plans that are at most this many times slower than the best one. Half or twice the excess over 1
changed no plan and no bound on vgg16 and resnet50 on mixed-server-8 and gpt2-345m on dgx-a100-16."""
TIMED_AT_ONCE, AT_ONCE = 2_000, 100
"""Paths simulated in one step, from their arcs and as plans."""
MANY_ACTIONS = 10_000
"""Fewer paths are worth trying where their plans have more actions than this, in proportion: a plan of llama3-70b on 96
devices (drawn problem 30), with 1,024 micro-batches on 43 stages, takes 9 ms."""


class PathTrials:
    """What is known of the paths of a variant that were tried, `before` and here."""

    def __init__(self, before: "PathTrials | None" = None) -> None:
        self._plans: dict[bytes, Plan | None] = {} if before is None else dict(before._plans)

    def one(self, search: Search, network: StageNetwork, path: Ints, *, moves_layers: bool) -> Plan | None:
        """The plan of a path, simulated unless it was before; None if there are too few hosts or devices."""
        key = _key(network, path)
        if key not in self._plans:
            self._plans[key] = plan = decode_path(network, path)
            if plan is not None:
                (seconds,) = search.offer([plan])
                if moves_layers:
                    _move_layers(search, network, plan, seconds)
        return self._plans[key]

    def several(self, search: Search, network: StageNetwork, paths: Sequence[Ints], *, latest_s: float) -> None:
        """Simulate the plans of paths, and move the layers of the fastest unless it was met before.

        Plans that take longer than `latest_s` are of no interest.
        """
        if not paths:
            return
        if can_time(network):
            with search.step("simulation"):
                times_s = PathTimes(network).seconds(paths, latest_s)
            search.count("plans simulated", len(paths))
            fastest = int(times_s.argmin())
            if math.isfinite(times_s[fastest]):
                self.one(search, network, paths[fastest], moves_layers=True)
            return
        plans = decode_paths(network, paths)
        times_s = search.offer_possible(plans)
        fastest = int(times_s.argmin())
        key, plan = _key(network, paths[fastest]), plans[fastest]
        if plan is not None and key not in self._plans:
            self._plans[key] = plan
            _move_layers(search, network, plan, float(times_s[fastest]))


def num_at_once(network: StageNetwork, path: Ints) -> int:
    """How many paths are simulated in one step."""
    return math.ceil(share_worth_trying(network, path) * (TIMED_AT_ONCE if can_time(network) else AT_ONCE))


def share_worth_trying(network: StageNetwork, path: Ints) -> float:
    """How many of the usual number of paths, where their plans have about as many actions as that of this one."""
    num_actions = 2 * int(np.count_nonzero(network.arcs.is_stage[path])) * network.variant.num_microbatches
    return min(1.0, MANY_ACTIONS / num_actions)


def _key(network: StageNetwork, path: Ints) -> bytes:
    """Tells the plan of a path from those of all others of the variant."""
    return network.arcs.option[path].tobytes() + network.arcs.stop[path].tobytes()


def _move_layers(search: Search, network: StageNetwork, plan: Plan, seconds: float) -> None:
    if seconds <= WORTH_IMPROVING * search.best_s:
        with search.step("local search"):
            improve(search, plan.variant, arrangement_of(network.costs, plan), seconds)
