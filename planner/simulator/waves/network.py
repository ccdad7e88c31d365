"""What is played: the stages of all virtual workers, and the flows of messages between them and their servers.

A *flow* is a sequence of messages over the same links, from one stage to one receiver: activations, gradients, pushes
to one server, pulls from it, or the delayed all-reduces of one stage.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from enum import StrEnum
from functools import cached_property, partial

from stagecut.planner.core.checks import require
from stagecut.planner.core.waves import Carrier, LocalStep
from stagecut.planner.cost.wave_costs import Route, WaveCosts, WorkerCosts, crosses_hosts
from stagecut.planner.simulator.routes import shared_routes

NONE = -1
"""Stands for "no flow" and "no server"."""


class WaveKind(StrEnum):
    """What is done in one span of a run."""

    FORWARD = "forward"
    BACKWARD = "backward"
    UPDATE = "update"
    """The local step, of a minibatch or of one or more waves."""
    ACTIVATIONS = "activations"
    GRADIENTS = "gradients"
    PUSH = "push"
    PULL = "pull"
    ALL_REDUCE = "all-reduce"


@dataclass(frozen=True, slots=True, kw_only=True)
class Flow:
    """Messages of one kind that follow one another."""

    kind: WaveKind
    node: int
    """The stage that it belongs to, counted over all workers: the sender, or the one that pulls."""
    seconds: float
    route: Route
    """Names of all links."""
    crossing_bytes: float = 0.0
    """Bytes of a message that leave their host."""
    owner: str = ""
    """Of pushes and pulls: the server's host."""
    slot: int = 0
    """Of pushes and pulls: which of the stage's servers that is."""
    pair: int = NONE
    """Of pushes and pulls: the pair of stage and server, counted over all workers."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Node:
    """A stage of a worker, with the numbers of its flows."""

    worker: int
    stage: int
    forward_s: float
    backward_s: float
    update_s: float
    depth: int
    """Forwards before the first backward."""
    wave: int
    activations: int = NONE
    """Those it sends."""
    gradients: int = NONE
    pushes: tuple[int, ...] = ()
    all_reduce: int = NONE
    holders: tuple[int, ...] = ()
    """Stages that hold some of its layers, itself included, if a delayed all-reduce carries updates."""

    @property
    def exchanges(self) -> bool:
        """Whether there are other workers to exchange updates with."""
        return bool(self.pushes) or self.all_reduce != NONE


@dataclass(frozen=True, kw_only=True)
class WaveNetwork:
    """Stages and flows of all workers."""

    costs: WaveCosts
    nodes: tuple[Node, ...]
    """Stages by (worker, stage)."""
    flows: tuple[Flow, ...]

    @property
    def clock_distance(self) -> int:
        """The D of the plan."""
        return self.costs.plan.clock_distance

    @property
    def flushes(self) -> bool:
        """Whether a worker makes one step a wave, behind a flush."""
        return self.costs.plan.local_step is LocalStep.WAVE

    @cached_property
    def shared(self) -> tuple[tuple[int, ...], ...]:
        """Numbers of the links that each flow shares with others."""
        return shared_routes(tuple(flow.route for flow in self.flows))


def network_of(costs: WaveCosts) -> WaveNetwork:
    """The stages and flows of a plan.

    Raises a BadInputError if workers would wait for each other forever: a stage cannot reach the gate of a wave before
    it has pushed the wave before if more minibatches than a wave has go ahead of their backwards.
    """
    nodes: list[Node] = []
    flows: list[Flow] = []
    num_pairs = 0
    for worker, own in enumerate(costs.workers):
        for stage in range(own.worker.num_stages):
            holders = _holders(costs, worker, stage)
            added = list(_flows(own, stage, node=len(nodes), first_pair=num_pairs, reduces=bool(holders)))
            nodes.append(_node(own, worker, stage, flows=dict(enumerate(added, start=len(flows))), holders=holders))
            flows += added
            num_pairs += len(own.exchanges[stage])
    return WaveNetwork(costs=costs, nodes=tuple(nodes), flows=tuple(flows))


def _flows(costs: WorkerCosts, stage: int, *, node: int, first_pair: int, reduces: bool) -> Iterator[Flow]:
    """Messages to the neighbours, then the stage's exchange with the other workers."""
    links = costs.forward_links, costs.backward_links
    kinds, boundaries = (WaveKind.ACTIVATIONS, WaveKind.GRADIENTS), (stage, stage - 1)
    for kind, boundary, routes in zip(kinds, boundaries, links, strict=True):
        if 0 <= boundary < len(routes):
            seconds, num_bytes = float(costs.transfer_s[boundary]), float(costs.transfer_bytes[boundary])
            yield _flow(kind, seconds, node=node, route=routes[boundary], num_bytes=num_bytes)
    for slot, each in enumerate(costs.exchanges[stage]):
        own = partial(_flow, node=node, owner=each.owner, slot=slot, pair=first_pair + slot)
        yield own(WaveKind.PUSH, each.push_s, route=each.push_links, num_bytes=each.push_bytes)
        yield own(WaveKind.PULL, each.pull_s, route=each.pull_links, num_bytes=each.pull_bytes)
    if reduces:
        seconds, num_bytes = float(costs.all_reduce_s[stage]), float(costs.all_reduce_bytes[stage])
        route = costs.all_reduce_links[stage]
        yield _flow(WaveKind.ALL_REDUCE, seconds, node=node, route=route, num_bytes=num_bytes)


def _flow(
    kind: WaveKind,
    seconds: float,
    *,
    node: int,
    route: Route,
    num_bytes: float,
    owner: str = "",
    slot: int = 0,
    pair: int = NONE,
) -> Flow:
    return Flow(
        kind=kind,
        node=node,
        seconds=seconds,
        route=route,
        crossing_bytes=num_bytes if crosses_hosts(route) else 0.0,
        owner=owner,
        slot=slot,
        pair=pair,
    )


def _node(costs: WorkerCosts, worker: int, stage: int, *, flows: dict[int, Flow], holders: tuple[int, ...]) -> Node:
    def of(kind: WaveKind) -> tuple[int, ...]:
        return tuple(index for index, flow in flows.items() if flow.kind is kind)

    depth, wave = costs.worker.stages[stage].warmup_depth, costs.worker.wave
    if holders or costs.exchanges[stage]:
        owner, rule = f"stage {stage} of worker {worker}", f"at most a wave, {wave}, where workers exchange updates"
        require(depth <= wave, owner, "warmup_depth", rule, depth)
    before = costs.worker.stages[max(0, stage - 1)].warmup_depth
    require(
        depth <= before, f"stage {stage} of worker {worker}", "warmup_depth", f"at most {before}, as before it", depth
    )
    return Node(
        worker=worker,
        stage=stage,
        forward_s=float(costs.forward_s[stage]),
        backward_s=float(costs.backward_s[stage]),
        update_s=float(costs.update_s[stage]),
        depth=depth,
        wave=wave,
        activations=(*of(WaveKind.ACTIVATIONS), NONE)[0],
        gradients=(*of(WaveKind.GRADIENTS), NONE)[0],
        pushes=of(WaveKind.PUSH),
        all_reduce=(*of(WaveKind.ALL_REDUCE), NONE)[0],
        holders=holders,
    )


def _holders(costs: WaveCosts, worker: int, stage: int) -> tuple[int, ...]:
    """Stages of all workers that hold layers of one stage, if all-reduces carry their updates."""
    if costs.plan.carrier is not Carrier.DELAYED_ALL_REDUCE or len(costs.workers) == 1:
        return ()
    own = costs.plan.workers[worker].stages[stage]
    stages = [each for other in costs.plan.workers for each in other.stages]
    return tuple(node for node, each in enumerate(stages) if each.start < own.stop and own.start < each.stop)
