"""How long the messages over several boundaries keep the links busy that they share, per arc of a stage network.

An interface carries what comes to the stages of its host and what they send on, in both directions; a shared fabric all
messages between the stages of an island; a bridge both directions (docs/bounds.md, the `load` rows). With home the
length of :mod:`stagecut.planner.network.allreduce_queues`, a path has, up to the node before a stage or transfer,

    interface = home before the current host + (M + 1) c of the transfer to it + the sum of B, and of c, since then,
    fabric    = the largest over the stages of the current island of home after it + 2 M (sum of c since then).

Both are the largest of sums over the lengths before an arc, so the least over all paths is a bound for each of them.
"""

from typing import NamedTuple

import numpy as np

from stagecut.planner.core.numerics.arrays import Bools, Floats, Ints
from stagecut.planner.core.numerics.compiled import inlined
from stagecut.planner.network.stage_network import StageNetwork


class LinkLoads(NamedTuple):
    """What arcs add to lengths, and rows to those before them, in seconds; arrays of shape (A,).

    interface after an arc = max(interface + `to_interface`, home + `home_to_interface`),
    fabric after it = max(fabric + `to_fabric`, home after it + `home_to_fabric`).
    """

    to_interface: Floats
    home_to_interface: Floats
    to_fabric: Floats
    home_to_fabric: Floats
    after_interface: Floats
    """M c of a transfer to another host; minus infinity for other arcs."""
    after_fabric: Floats
    """2 M c of a transfer on a shared fabric; minus infinity for other arcs."""
    after_home: Floats
    """2 M c of a transfer over a bridge; minus infinity for other arcs."""
    to_outward: Floats
    """What an arc adds to home with the activations alone that a shared fabric carries: B of a stage, and (M + 1) c of
    a transfer; minus infinity for other arcs, and where micro-batches may be halved."""
    crossing: Floats
    """Zero for a transfer to another host, whose flows cross with others there; minus infinity likewise."""

    def take(self, kept: Ints) -> "LinkLoads":
        """The columns of the `kept` arcs."""
        return LinkLoads(*(column[kept] for column in self))


NO_LOADS = LinkLoads(*(np.empty(0) for _ in LinkLoads._fields))


class ArcLoads(NamedTuple):
    """The columns of one arc."""

    to_interface: float
    home_to_interface: float
    to_fabric: float
    home_to_fabric: float
    after_interface: float
    after_fabric: float
    after_home: float


class LoadLengths(NamedTuple):
    """Lengths of a path up to a node."""

    interface: float
    fabric: float


START = LoadLengths(0.0, -np.inf)


@inlined
def arc_loads(loads: LinkLoads, arc: int) -> ArcLoads:
    """The columns of one arc."""
    return ArcLoads(
        loads.to_interface[arc],
        loads.home_to_interface[arc],
        loads.to_fabric[arc],
        loads.home_to_fabric[arc],
        loads.after_interface[arc],
        loads.after_fabric[arc],
        loads.after_home[arc],
    )


@inlined
def loads_after(loads: ArcLoads, before: LoadLengths, home: float, home_after: float) -> LoadLengths:
    """The lengths after an arc."""
    return LoadLengths(
        max(before.interface + loads.to_interface, home + loads.home_to_interface),
        max(before.fabric + loads.to_fabric, home_after + loads.home_to_fabric),
    )


@inlined
def load_row(loads: ArcLoads, before: LoadLengths, home: float) -> float:
    """The largest row of an arc."""
    row = max(before.interface + loads.after_interface, before.fabric + loads.after_fabric)
    return float(max(row, home + loads.after_home))


def build_loads(network: StageNetwork) -> LinkLoads:
    """The columns of a network."""
    arcs, num_microbatches = network.arcs, network.variant.num_microbatches
    is_stage, transfer_s = arcs.is_stage, arcs.transfer_s
    entry, sends = np.maximum(0, arcs.entry), ~is_stage & (arcs.start > 0)
    opens, same_island, shared = (sends & column[entry] for column in _entries(network))
    on_fabric, on_bridge = same_island & shared, sends & ~opens & ~same_island
    both_s = 2 * num_microbatches * transfer_s
    is_whole = not network.costs.problem.job.may_slice(network.variant.schedule, network.variant.micro_batch)

    def where(chosen: Bools, seconds: Floats | float) -> Floats:
        found: Floats = np.where(chosen, seconds, -np.inf)
        return found

    return LinkLoads(
        to_interface=where(~opens, np.where(is_stage, arcs.backward_s, transfer_s)),
        home_to_interface=where(opens, (num_microbatches + 1) * transfer_s),
        to_fabric=where(is_stage | on_fabric, np.where(is_stage, 0.0, both_s)),
        home_to_fabric=where(is_stage, 0.0),
        after_interface=where(opens, num_microbatches * transfer_s),
        after_fabric=where(on_fabric, both_s),
        after_home=where(on_bridge, both_s),
        to_outward=where(
            (is_stage | on_fabric) & is_whole,
            np.where(is_stage, arcs.backward_s, (num_microbatches + 1) * transfer_s),
        ),
        crossing=where(opens & is_whole, 0.0),
    )


def _entries(network: StageNetwork) -> tuple[Bools, Bools, Bools]:
    """Per entry: whether it opens hosts, whether it stays in the island, and whether that island's fabric is shared."""
    servers, found = network.cluster.servers, []
    for entry in network.host_states.entries:
        stays = entry.before is not None and entry.before.island == entry.island
        shared = entry.island is not None and servers[entry.server_class].islands[entry.island].shared
        found.append((entry.opened_hosts > 0, stays, shared))
    opens, same_island, on_shared = np.array(found, dtype=bool).reshape(-1, 3).T
    return opens, same_island, on_shared
