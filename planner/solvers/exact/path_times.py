"""Iteration times of paths with positions, simulated from the seconds of their arcs: no plan is made of them."""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from stagecut.planner.core.numerics.arrays import Bools, Floats, Ints
from stagecut.planner.core.numerics.compiled import compiled
from stagecut.planner.core.numerics.tolerances import LABEL_SUM
from stagecut.planner.core.placement import DeviceGroup, Placement
from stagecut.planner.cost.links import route_between, sync_route
from stagecut.planner.network.stage_network import StageNetwork
from stagecut.planner.simulator.compilation import pipeline_graph
from stagecut.planner.simulator.engine import times_on
from stagecut.planner.simulator.event_loop import Deadline
from stagecut.planner.simulator.iteration_graph import NONE

NIC_IN, NIC_OUT = 0, 1
"""Numbers of the interface of a host; its other links follow."""


def can_time(network: StageNetwork) -> bool:
    """Whether paths are simulated as their plans are: arcs know their depths, and no micro-batch may be halved."""
    job, variant = network.costs.problem.job, network.variant
    return network.has_positions and not job.may_slice(variant.schedule, variant.micro_batch)


class PathTimes:
    """Simulates paths of one network whose micro-batches stay whole; see :func:`can_time`."""

    def __init__(self, network: StageNetwork) -> None:
        self._network, self._host = network, _host_links(network)

    def seconds(self, paths: Sequence[Ints], latest_s: float) -> Floats:
        """Iteration time of each path, shape (n,); infinite where hosts do not suffice, or if it is surely later."""
        times_s, num_arcs = np.full(len(paths), np.inf), np.array([len(path) for path in paths])
        for length in np.unique(num_arcs):
            alike = np.flatnonzero(num_arcs == length)
            # A transfer, at first only the opening of hosts, comes before every stage.
            arcs = np.stack([paths[number] for number in alike.tolist()]).reshape(len(alike), -1, 2)
            chosen = self._has_hosts(arcs[..., 0])
            if chosen.any():
                times_s[alike[chosen]] = self._seconds(arcs[chosen, :, 0], arcs[chosen, :, 1], latest_s)
        return times_s

    def _has_hosts(self, transfers: Ints) -> Bools:
        arcs = self._network.arcs
        opened = (
            np.where(arcs.opened_class[transfers] == index, arcs.opened_hosts[transfers], 0).sum(axis=1) <= server.count
            for index, server in enumerate(self._network.cluster.servers)
        )
        found: Bools = np.logical_and.reduce(list(opened))
        return found

    def _seconds(self, transfers: Ints, stages: Ints, latest_s: float) -> Floats:
        """Of paths with the same number of stages; arcs of shape (n, S)."""
        arcs, num, num_stages = self._network.arcs, self._network.variant.num_microbatches, stages.shape[1]
        depths = tuple(self._network.depths[num_stages:0:-1].tolist())
        graph = pipeline_graph(depths, num)
        forward_s, backward_s = arcs.forward_s[stages], arcs.backward_s[stages]
        transfer_s, sync_s, tail_s = arcs.transfer_s[transfers[:, 1:]], arcs.sync_s[stages], arcs.tail_s[stages]
        nothing = np.zeros((len(stages), 1))
        times = (forward_s, backward_s, transfer_s, nothing, nothing, transfer_s, sync_s, tail_s - sync_s, nothing)
        table_s = np.concatenate(times, axis=1)
        before_s = np.concatenate((nothing, np.cumsum(backward_s[:, :-1] + transfer_s, axis=1)), axis=1)
        # After the last backward of a stage: its own all-reduce and step, or all gradients back to the first stage.
        home_s = np.maximum(tail_s, before_s + tail_s[:, :1])
        groups_s = num * (forward_s + backward_s) + home_s
        after_gradient_s = (backward_s + home_s)[:, :-1]
        after_activation_s = (forward_s + backward_s)[:, 1:] + transfer_s + after_gradient_s
        messages_s = num * np.concatenate((transfer_s, transfer_s), axis=1)
        after_s = np.concatenate((after_activation_s, after_gradient_s), axis=1)
        links = self._links(transfers, stages)
        left_s = np.empty((len(stages), num_stages + links.max() + 1))
        left_s[:, :num_stages] = groups_s
        _set_shared(links, messages_s, after_s, left_s[:, num_stages:])
        return times_on(graph, links, table_s, Deadline(latest_s * (1 + LABEL_SUM), left_s))

    def _links(self, transfers: Ints, stages: Ints) -> Ints:
        """Numbers of the links of each flow: activations, gradients, all-reduces; shape (n, 3 S - 2, 2)."""
        arcs, host = self._network.arcs, self._host
        opens = arcs.opened_hosts[transfers] > 0
        first, between = np.cumsum(opens, axis=1) * host.num_links, opens[:, 1:]
        entered = host.entered[np.maximum(0, arcs.entry[transfers[:, 1:]])]
        inside = np.where(entered == NONE, NONE, first[:, 1:] + entered)
        there, back = (
            np.stack((np.where(between, start + NIC_OUT, inside), np.where(between, end + NIC_IN, NONE)), axis=-1)
            for start, end in ((first[:, :-1], first[:, 1:]), (first[:, 1:], first[:, :-1]))
        )
        reduced = host.reduced[arcs.option[stages]]
        return np.concatenate((there, back, np.where(reduced == NONE, NONE, first[..., None] + reduced)), axis=1)


class _HostLinks(NamedTuple):
    """The links of a host, numbered alike in all classes."""

    num_links: int
    entered: Ints
    """Per entry: the link over which messages come to a stage on the same host, `NONE` if they queue for none."""
    reduced: Ints
    """Per option: those of the all-reduce, and `NONE` in place of missing ones; shape (options, 2)."""


def _host_links(network: StageNetwork) -> _HostLinks:
    cluster, states = network.cluster, network.host_states
    numbers = {"nic-in": NIC_IN, "nic-out": NIC_OUT}

    def numbered(group: DeviceGroup, route: tuple[str, ...]) -> list[int]:
        host = cluster.host_names(group.placement.server_class)[0]
        kinds = (name.removeprefix(f"{host}:") for name in route)
        return [*(numbers.setdefault(kind, len(numbers)) for kind in kinds), NONE, NONE][:2]

    entered = [[NONE]] * len(states.entries)
    for index, entry in enumerate(states.entries):
        if entry.before is not None and entry.island is not None:
            sender, receiver = (
                DeviceGroup(placement=Placement(server_class=entry.server_class, island=island), hosts=(0,))
                for island in (entry.before.island, entry.island)
            )
            entered[index] = numbered(receiver, route_between(cluster, sender, receiver))
    groups = [
        DeviceGroup(placement=placement, hosts=tuple(range(placement.num_hosts))) for placement in network.placements
    ]
    reduced = [numbered(group, sync_route(cluster, group, network.costs.share)) for group in groups]
    return _HostLinks(len(numbers), np.array([first for first, *_ in entered]), np.array(reduced))


@compiled
def _set_shared(links: Ints, messages_s: Floats, after_s: Floats, left_s: Floats) -> None:
    """Leave out links of a single flow, whose messages follow one another anyway; set the least seconds of the others.

    These are those of all messages, whose flows come first, and of what surely follows the last one; (n, links).
    """
    num_flows, num_messages = np.empty(left_s.shape[1], np.int64), messages_s.shape[1]
    for path in range(len(links)):
        num_flows[:], left_s[path] = 0, 0.0
        for link in links[path].flat:
            if link != NONE:
                num_flows[link] += 1
        after = np.full(left_s.shape[1], np.inf)
        for flow in range(links.shape[1]):
            num_shared = 0
            for which in range(links.shape[2]):
                link, links[path, flow, which] = links[path, flow, which], NONE
                if link != NONE and num_flows[link] > 1:
                    links[path, flow, num_shared] = link
                    num_shared += 1
                    if flow < num_messages:
                        left_s[path, link] += messages_s[path, flow]
                        after[link] = min(after[link], after_s[path, flow])
        left_s[path] += after
