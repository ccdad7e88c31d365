"""Activations and gradients that cross on the interface of one host, along a path.

While activations still come, one by one from the stages before, the first gradients wait for the same link: the load
rows of a few messages of two flows (docs/bounds.md, "Crossing flows"). Here these are what the stages of a host receive
over the transfer to it, and what its last stage sends on, in both directions.
"""

from typing import NamedTuple

import numpy as np

from stagecut.planner.core.numerics.compiled import compiled


class HostLengths(NamedTuple):
    """Lengths of a path before the transfer to its current host, and since then, in seconds."""

    round_trip: float
    """Before the transfer; minus infinity on the first host."""
    slow_forward: float
    """The slowest forward or activation before it."""
    slow_backward: float
    """The slowest backward or gradient before it."""
    transfer: float
    """One way."""
    forward: float
    """F and c since then."""
    backward: float
    """B and c since then."""


NO_HOST = HostLengths(-np.inf, 0.0, 0.0, 0.0, 0.0, 0.0)


class Leaving(NamedTuple):
    """A transfer to the next host, with the lengths before it and the way on, in seconds."""

    round_trip: float
    home: float
    slow_forward: float
    slow_backward: float
    transfer: float
    """One way."""
    rest: float
    """The round trip over it and from there on."""


class _Flows(NamedTuple):
    """The earliest start of some activations and gradients and what follows the last of them, for two ways of each.

    The first of them starts with the activation, after others at the pace of the slowest forward, or with the first
    gradient; the last of them is the last activation, or a gradient that others follow at the pace of the slowest
    backward.
    """

    activation_last: float
    """From the first activation, the last one being last; what comes before the others is left to add."""
    gradient_last: float
    """The same, with the last gradient being last."""
    waiting_activation_last: float
    """From the first gradient, the last activation being last."""
    waiting_gradient_last: float
    """From the first gradient, the last one being last."""
    slow_forward: float
    slow_backward: float
    activation: float
    """c of an activation."""
    gradient: float
    """c of a gradient."""


@compiled
def crossing_row(host: HostLengths, leaving: Leaving, num_microbatches: int) -> float:
    """The larger of the rows of the interface of a host that the path leaves, out and in."""
    if host.round_trip == -np.inf:
        return -np.inf
    out, into, way_on = leaving.transfer, host.transfer, leaving.rest - leaving.transfer
    entered, both = host.round_trip + into, leaving.home + leaving.rest + way_on
    # Activations go out over the transfer that leaves the host, gradients over the one to it; and they come in.
    sent = _Flows(
        leaving.home + way_on,
        entered + host.forward,
        both + host.backward,
        entered + host.forward + host.backward + leaving.rest,
        leaving.slow_forward,
        host.slow_backward,
        out,
        into,
    )
    received = _Flows(
        leaving.home - into + leaving.rest,
        entered + host.backward,
        both + host.forward,
        leaving.round_trip + way_on,
        host.slow_forward,
        leaving.slow_backward,
        into,
        out,
    )
    return max(_largest(sent, num_microbatches), _largest(received, num_microbatches))


@compiled
def _largest(flows: _Flows, num_microbatches: int) -> float:
    """The largest row of activations i + 1 .. M with gradients 1 .. j, for i and j where these start to wait."""
    before, after = 0, 0
    if flows.slow_forward > flows.activation:
        waits = (flows.waiting_activation_last - flows.activation_last) / flows.slow_forward
        before = int(min(max(0.0, waits), num_microbatches - 1.0))
    if flows.slow_backward > flows.gradient:
        waits = (flows.waiting_activation_last - flows.waiting_gradient_last) / flows.slow_backward
        after = int(min(max(0.0, waits), num_microbatches))
    largest = -np.inf
    for not_yet in range(before, min(before + 2, num_microbatches)):
        ahead = not_yet * flows.slow_forward
        for left in range(after, min(after + 2, num_microbatches + 1)):
            behind = left * flows.slow_backward
            least = min(flows.activation_last + ahead, flows.waiting_activation_last)
            least = min(least, flows.waiting_gradient_last + behind, flows.gradient_last + ahead + behind)
            messages = (num_microbatches - not_yet) * flows.activation + (num_microbatches - left) * flows.gradient
            largest = max(largest, least + messages)
    return largest
