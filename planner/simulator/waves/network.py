"""What is played: the stages of all virtual workers, and the flows of messages between them and their servers.

A *flow* is a sequence of messages over the same links, from one stage to one receiver: activations, gradients, pushes
to one server, pulls from it, or the delayed all-reduces of some layers, which occupy links of all their members.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from enum import StrEnum
from functools import cached_property, partial
from itertools import accumulate
from operator import add

from stagecut.planner.core.waves import LocalStep
from stagecut.planner.cost.waves.wave_all_reduces import Route
from stagecut.planner.cost.waves.wave_costs import WaveCosts, WorkerCosts, crosses_hosts
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
    """The stage that it belongs to, counted over all workers: the sender, the one that pulls, or the first member."""
    seconds: float
    route: Route
    """Names of all links."""
    crossing_bytes: float = 0.0
    """Bytes of a message that leave their host."""
    owner: str = ""
    """Of pushes and pulls: the server's host."""
    slot: int = 0
    """Of pushes and pulls: which of the stage's servers that is; of all-reduces: which one."""
    pair: int = NONE
    """Of pushes and pulls: the pair of stage and server, counted over all workers."""
    members: tuple[int, ...] = ()
    """Of all-reduces: the stages that take part."""
    layers: tuple[int, int] | None = None
    """Of all-reduces: the run [start, stop)."""


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
    all_reduces: tuple[int, ...] = ()
    """Those that it takes part in."""

    @property
    def exchanges(self) -> bool:
        """Whether there are other workers to exchange updates with."""
        return bool(self.pushes or self.all_reduces)


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
    """The stages and flows of a plan; those of all-reduces come first."""
    flows = list(_all_reduces(costs))
    nodes: list[Node] = []
    num_pairs, by_flow = 0, list(enumerate(flows))
    for worker, own in enumerate(costs.workers):
        for stage in range(own.worker.num_stages):
            added = list(_flows(own, stage, node=len(nodes), first_pair=num_pairs))
            all_reduces = tuple(index for index, flow in by_flow if len(nodes) in flow.members)
            own_flows = dict(enumerate(added, start=len(flows)))
            nodes.append(_node(own, worker, stage, flows=own_flows, all_reduces=all_reduces))
            flows += added
            num_pairs += len(own.exchanges[stage])
    return WaveNetwork(costs=costs, nodes=tuple(nodes), flows=tuple(flows))


def _all_reduces(costs: WaveCosts) -> Iterator[Flow]:
    """One flow for each run of layers that is summed by itself."""
    first_nodes = [0, *accumulate(own.worker.num_stages for own in costs.workers)]
    for number, each in enumerate(costs.all_reduces):
        members = tuple(map(add, first_nodes, each.stages))
        yield Flow(
            kind=WaveKind.ALL_REDUCE,
            node=members[0],
            seconds=each.seconds,
            route=each.links,
            crossing_bytes=each.crossing_bytes,
            slot=number,
            members=members,
            layers=each.layers,
        )


def _flows(costs: WorkerCosts, stage: int, *, node: int, first_pair: int) -> Iterator[Flow]:
    """Messages to the neighbours, then the stage's exchange with parameter servers."""
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


def _node(costs: WorkerCosts, worker: int, stage: int, *, flows: dict[int, Flow], all_reduces: tuple[int, ...]) -> Node:
    def of(kind: WaveKind) -> tuple[int, ...]:
        return tuple(index for index, flow in flows.items() if flow.kind is kind)

    return Node(
        worker=worker,
        stage=stage,
        forward_s=float(costs.forward_s[stage]),
        backward_s=float(costs.backward_s[stage]),
        update_s=float(costs.update_s[stage]),
        depth=costs.worker.stages[stage].warmup_depth,
        wave=costs.worker.wave,
        activations=(*of(WaveKind.ACTIVATIONS), NONE)[0],
        gradients=(*of(WaveKind.GRADIENTS), NONE)[0],
        pushes=of(WaveKind.PUSH),
        all_reduces=all_reduces,
    )
