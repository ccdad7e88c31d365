"""A network as Python lists, in which single look-ups are faster than in its records."""

from dataclasses import dataclass

from stagecut.planner.simulator.waves.network import NONE, WaveKind, WaveNetwork

CLASSES = {WaveKind.ACTIVATIONS: 0, WaveKind.GRADIENTS: 0, WaveKind.PUSH: 1, WaveKind.ALL_REDUCE: 1, WaveKind.PULL: 2}
"""Of messages that are ready at the same time, those of a lower class are served first."""
NUMBER_BITS, STAGE_BITS, SLOT_BITS = 32, 16, 16


@dataclass(frozen=True, slots=True, kw_only=True)
class Tables:
    """Lists by stage (`before`, `after`), by flow, or by pair of stage and server (`pulls`, `owner`)."""

    before: list[int]
    """The flow of activations that a stage receives."""
    after: list[int]
    """The flow of gradients that a stage receives."""
    receiver: list[int]
    """The stage that takes the messages of a flow."""
    lines: list[tuple[int, ...]]
    """Links of a flow: those it shares with others, else one of its own."""
    num_lines: int
    queues: list[bool]
    """Whether messages have to be granted: they share links, or carry a server's clock."""
    rank: list[int]
    """(class, stage, 0, server) of each flow's messages, as one number."""
    pulls: list[int]
    """The flow of pulls of each pair of stage and server."""
    owner: list[int]
    """The server of each pair."""
    num_owners: int


def tables_of(network: WaveNetwork) -> Tables:
    """The look-up tables of a network."""
    flows, nodes = network.flows, network.nodes
    step = {WaveKind.ACTIVATIONS: 1, WaveKind.GRADIENTS: -1}
    receiver = [flow.node + step.get(flow.kind, 0) for flow in flows]
    sources = {(flow.kind, receiver[index]): index for index, flow in enumerate(flows)}
    num_shared = 1 + max((link for route in network.shared for link in route), default=NONE)
    pulls = [index for index, flow in enumerate(flows) if flow.kind is WaveKind.PULL]
    owners = list(dict.fromkeys(flows[index].owner for index in pulls))
    return Tables(
        before=[sources.get((WaveKind.ACTIVATIONS, node), NONE) for node in range(len(nodes))],
        after=[sources.get((WaveKind.GRADIENTS, node), NONE) for node in range(len(nodes))],
        receiver=receiver,
        lines=[route or (num_shared + index,) for index, route in enumerate(network.shared)],
        num_lines=num_shared + len(flows),
        queues=[bool(network.shared[index]) or flow.kind is WaveKind.PULL for index, flow in enumerate(flows)],
        rank=[_rank(CLASSES[flow.kind], flow.node, flow.slot) for flow in flows],
        pulls=pulls,
        owner=[owners.index(flows[index].owner) for index in pulls],
        num_owners=len(owners),
    )


def _rank(kind: int, node: int, slot: int) -> int:
    return ((kind << STAGE_BITS | node) << NUMBER_BITS) << SLOT_BITS | slot
