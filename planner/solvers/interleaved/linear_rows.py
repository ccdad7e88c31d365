"""Rows of :mod:`stagecut.planner.simulator.interleaved_bounds` as linear forms in the costs of the stages.

Deliberately a second statement: there a row is a maximum over chunks and stages of one plan; here each of
its terms is a row of its own that holds for every cut of a shape. Tests hold the two together. Late rows
are left out, and so are the starts of fill and drain rows other than the round trip, the strongest one.
"""

import numpy as np

from stagecut.planner.core.numerics.arrays import Floats, Ints
from stagecut.planner.cost.cost_model import CostModel
from stagecut.planner.cost.links import route_between, sync_route
from stagecut.planner.solvers.interleaved.costs import Cost
from stagecut.planner.solvers.interleaved.queues import Queue, queues_of
from stagecut.planner.solvers.interleaved.shapes import Shape


def row_forms(costs: CostModel, shape: Shape, *, shared_only: bool) -> Floats:
    """Coefficients of every row, shape (rows, S, costs): T is at least the value of each.

    Rows in order, with the quantities of :mod:`stagecut.planner.simulator.interleaved_bounds` for stage s on device
    group d:

    - busy:  arrive + work + home + g_0, by d, chunk to arrive on, chunk to go home from
    - sync:  arrive + work + g_d, by d and chunk to arrive on
    - fill:  total - PB_s - B_s + work - before + PB_d + g_0, by s
    - drain: total - PB_s - B_s + work - before + g_d, by s
    - link:  total + (M - 1) c_s + g_0, by boundary
    - queue: F_0 + all messages of a shared link + B_0 + g_0, by link
    - home:  arrive + work or total - PB_s - B_s + work - before, by d and chunk; then the way home through the queues
      of first all-reduces and last gradients, and all the all-reduces of some device groups on one link, by these

    With `shared_only` only busy, sync and fill rows.
    """
    size, num_stages, num_microbatches = shape.num_groups, shape.num_stages, shape.variant.num_microbatches
    stage = np.arange(num_stages)
    group = stage % size
    before = (stage < stage[:, None]).astype(float)  # row s marks the stages before s, shape (S, S)
    same_group = (group == group[:, None]).astype(float)
    less_rounds = before * (1 - size * same_group)  # a round is `size` micro-batches of one chunk
    eye = np.eye(num_stages)

    def counted(counts: Ints) -> Floats:
        """Counts by chunk and group of a stage and by chunk of an action, as weights of the stages, shape (S, S)."""
        weights: Floats = np.repeat(counts.reshape(num_stages, -1), size, axis=1) * same_group
        return weights

    def by_group(forms: Floats) -> Floats:
        return forms.reshape(shape.variant.chunks, size, num_stages, len(Cost)).swapaxes(0, 1)

    # Families span their chunks, and the stages they sum over, by broadcasting; the last two axes are (S, costs).
    forwards, backwards = map(counted, shape.order.before_first_backward)
    arrive = by_group(_form(forward=less_rounds, transfer=before))
    home = by_group(_form(backward=less_rounds, transfer=before))
    gradient_way = _form(backward=before, transfer=before)  # PB
    round_trip = _form(forward=np.ones(num_stages), backward=np.ones(num_stages), transfer=2.0 * (stage < stage[-1]))
    work = _form(forward=num_microbatches * same_group[:size], backward=num_microbatches * same_group[:size])
    tail = _form(tail=same_group[:size])
    later = round_trip - gradient_way - _form(forward=forwards, backward=backwards + eye) + work[group]
    ends = np.concatenate((arrive + work[:, None], by_group(later)), axis=1)
    families = [
        arrive[:, :, None] + home[:, None] + (work + tail[0])[:, None, None],
        arrive + (work + tail)[:, None],
        later + gradient_way[group] + tail[0],
    ]
    if not shared_only:
        families += [
            later + tail[group],
            round_trip + tail[0] + _form(transfer=(num_microbatches - 1) * eye[:-1]),
            _messages_of_links(costs, shape) + tail[0],
            *(end[:, None] + ways[1:] for end, ways in zip(ends, ways_home(costs, shape), strict=True)),
        ]
    return np.concatenate([forms.reshape(-1, num_stages, len(Cost)) for forms in families])


def ways_home(costs: CostModel, shape: Shape) -> list[Floats]:
    """What follows the last backward of each device group, each way as a form; shape (n, S, costs) by device group.

    Its own tail; or back over device groups that do their all-reduces on one link: from the last of them, the first
    all-reduces of all but the first are served before the last gradient that leaves it. On the last such link of
    the way, all their all-reduces are served.
    """
    queues, eye = queues_of(costs, shape), np.eye(shape.num_stages)
    of_groups = eye.reshape(shape.variant.chunks, shape.num_groups, -1)
    has_all_reduce = bool(sync_route(costs.cluster, shape.groups[0], costs.share))
    found = []
    for start in range(shape.num_groups):
        forms, way = [_form(tail=of_groups[:, start].sum(axis=0))], _form(tail=0.0 * eye[0])
        last = start if has_all_reduce else -1
        while last >= 0:
            first = last - int(np.argmin(queues[last::-1]))
            served = of_groups[:, first : last + 1]
            forms.append(way + _form(sync=served.sum(axis=(0, 1))))
            queue = served[0, 1:].sum(axis=0) * (queues[last] == Queue.GRADIENT)
            way = way + _form(sync=queue, transfer=eye[first - 1], backward=eye[first - 1])
            last = first - 1
        found.append(np.array(forms))
    return found


def average_weights(shape: Shape, num_rows: int) -> Floats:
    """Weights that average one row of every device group: first its busy row, then its sync row, shape (2, rows)."""
    weights, num_groups, chunks = np.zeros((2, num_rows)), shape.num_groups, shape.variant.chunks
    num_busy = num_groups * chunks**2
    weights[0, : num_busy : chunks**2] = 1 / num_groups
    weights[1, num_busy : num_busy + num_groups * chunks : chunks] = 1 / num_groups
    return weights


def _form(**weights: Floats) -> Floats:
    """Forms of shape (..., S, costs) from the weights of the stages by name of the cost, each of shape (..., S)."""
    forms = np.zeros((*next(iter(weights.values())).shape, len(Cost)))
    for name, values in weights.items():
        forms[..., Cost[name.upper()]] = values
    return forms


def _messages_of_links(costs: CostModel, shape: Shape) -> Floats:
    """F_0 + all messages + B_0 of every link that several flows share, shape (links, S, costs).

    Every message waits for the first forward of all, and leaves the last backward of all to do.
    """
    groups, users = shape.groups, dict[str, list[int]]()
    for stage in range(shape.num_stages - 1 if len(groups) > 1 else 0):
        ends = [groups[(stage + side) % len(groups)] for side in (0, 1)]
        for sender, receiver in (ends, ends[::-1]):
            for name in dict.fromkeys(route_between(costs.cluster, sender, receiver)):
                users.setdefault(name, []).append(stage)
    shared = [stages for stages in users.values() if len(stages) > 1]
    num_messages = np.reshape(
        [np.bincount(stages, minlength=shape.num_stages) for stages in shared], (-1, shape.num_stages)
    )
    first = np.broadcast_to(np.arange(shape.num_stages) == 0, num_messages.shape).astype(float)
    return _form(forward=first, backward=first, transfer=shape.variant.num_microbatches * num_messages)
