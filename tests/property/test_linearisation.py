"""Promises about graphs made chains, on random graphs."""

import copy
import itertools
import json
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from stagecut.planner.chains.chain import chain_of
from stagecut.planner.chains.merging import merged_groups
from stagecut.planner.chains.ordering import smallest_order
from stagecut.planner.chains.task_graph import TaskGraph, Tensor, Weights
from stagecut.planner.core.messages.errors import BadInputError
from stagecut.planner.core.model import Layer, TimeTable
from stagecut.planner.core.precision import Precision
from stagecut.planner.io.documents.tree import parse_document
from stagecut.planner.io.readers.conversion import Choices
from stagecut.planner.io.readers.formats import TIME_UNITS, ForeignFile, convert


@st.composite
def graphs(draw, most=9):
    """Nodes numbered at random; a tensor leads from earlier to later ones. Many take no time, some have no weights."""
    count = draw(st.integers(1, most))
    numbers = draw(st.permutations(range(count)))
    seconds = st.sampled_from([0.0, 0.0, 1.0, 2.0, 5.0])
    nodes = [
        Layer(
            name=f"n{index}",
            params_bytes=draw(st.sampled_from([0.0, 0.0, 8.0])),
            saved_bytes=draw(st.sampled_from([0.0, 4.0])),
            times=times(draw(seconds), draw(seconds)),
        )
        for index in range(count)
    ]
    tensors = []
    for position in range(count - 1):
        for users in draw(st.lists(st.sets(st.integers(position + 1, count - 1), max_size=3), max_size=2)):
            named = tuple(numbers[user] for user in sorted(users))
            size = draw(st.sampled_from([0.0, 1.0, 3.0, 10.0]))
            tensors.append(Tensor(source=numbers[position], users=named, num_bytes=size))
    weights = draw(st.lists(st.sets(st.integers(0, count - 1), min_size=1, max_size=3), max_size=2))
    return TaskGraph(
        name="random",
        nodes=tuple(nodes),
        tensors=tuple(tensors),
        weights=tuple(Weights(users=tuple(sorted(users)), num_bytes=16.0) for users in weights),
    )


def times(forward_s, backward_s):
    return (TimeTable(device_type="gpu", samples=(1,), forward_s=(forward_s,), backward_s=(backward_s,)),)


def is_topological(graph, order):
    position = {node: index for index, node in enumerate(order)}
    return sorted(order) == list(range(len(graph.nodes))) and all(
        position[node] < position[user] for node, users in enumerate(graph.successors) for user in users
    )


def crossing(graph, before):
    """Bytes of the tensors made by some nodes and used by others: the cut of the graph."""
    return sum(
        tensor.num_bytes
        for tensor in graph.tensors
        if tensor.source in before and any(user not in before for user in tensor.users)
    )


def mean_alive(graph, order):
    """The mean number of live tensors, which :mod:`stagecut.planner.chains.ordering` minimises, written out."""
    seconds = graph.seconds
    weight = seconds if any(seconds) else [1.0] * len(seconds)
    return sum(weight[node] * crossing(graph, set(order[:index])) for index, node in enumerate(order))


@given(graphs())
@settings(max_examples=35, deadline=None)
def test_order_is_topological_and_cuts_are_those_of_the_graph(graph):
    order = smallest_order(graph)
    assert is_topological(graph, order)
    cuts = graph.cut_bytes(order)
    assert cuts == pytest.approx([crossing(graph, set(order[:index])) for index in range(len(order) + 1)])


@given(graphs(most=6))
@settings(max_examples=35, deadline=None)
def test_no_order_of_a_small_graph_keeps_fewer_bytes_alive(graph):
    """Against every topological order; an idle node of the late kind may stand anywhere at the same cost."""
    orders = (order for order in itertools.permutations(range(len(graph.nodes))) if is_topological(graph, order))
    best = min(mean_alive(graph, order) for order in orders)
    assert mean_alive(graph, smallest_order(graph)) == pytest.approx(best)


@given(graphs(most=12), st.integers(1, 3))
@settings(max_examples=20, deadline=None)
def test_a_narrow_search_still_gives_an_order(graph, width):
    assert is_topological(graph, smallest_order(graph, width=width))


@given(graphs(), st.booleans())
@settings(max_examples=35, deadline=None)
def test_chain_keeps_every_total_and_every_boundary(graph, keep_nodes):
    """Weights without an owner are counted once; every boundary carries the cut of the graph behind its nodes."""
    profile = chain_of(graph, precision=Precision.FP32, keep_nodes=keep_nodes)
    order = smallest_order(graph)
    groups = [(node,) for node in order] if keep_nodes else merged_groups(graph, order)
    assert tuple(node for group in groups for node in group) == order
    before = list(itertools.accumulate(map(len, groups), initial=0))
    assert profile.boundary_bytes() == pytest.approx([crossing(graph, set(order[:index])) for index in before])
    for field in ("forward_s", "backward_s"):
        total = sum(getattr(node.times[0], field)[0] for node in graph.nodes)
        assert sum(getattr(layer.times[0], field)[0] for layer in profile.layers) == pytest.approx(total)
    params = sum(node.params_bytes for node in graph.nodes) + 16.0 * len(graph.weights)
    assert sum(layer.params_bytes for layer in profile.layers) == pytest.approx(params)
    saved = sum(node.saved_bytes for node in graph.nodes)
    assert sum(layer.saved_bytes for layer in profile.layers) == pytest.approx(saved)


@given(graphs())
@settings(max_examples=35, deadline=None)
def test_a_boundary_that_goes_has_one_left_that_is_no_worse(graph):
    """Either with the same work on both sides, or at the end of a stretch no larger than the largest node."""
    order = smallest_order(graph)
    cuts = graph.cut_bytes(order)
    groups = merged_groups(graph, order)
    kept = list(itertools.accumulate(map(len, groups)))[:-1]
    largest = max(graph.seconds)
    for boundary in set(range(1, len(order))) - set(kept):
        others = [
            other
            for other in kept
            if cuts[other] <= cuts[boundary]
            and sum(graph.seconds[n] for n in order[min(other, boundary) : max(other, boundary)]) <= largest
        ]
        left, right = order[:boundary], order[boundary:]
        useless = all(map(graph.is_idle, left)) or all(map(graph.is_idle, right))
        assert others or useless


FOREIGN = Path(__file__).parents[1] / "regression" / "data" / "foreign"
ODD = [None, True, -1, 0, 1e31, "x", "", [], {}, [1], {"1": {}}]


@given(st.sampled_from(["piper.json", "workload.json", "fast.json"]), st.data())
@settings(max_examples=90, deadline=None)
def test_a_spoilt_file_is_read_or_refused(name, data):
    """Values are removed or replaced at random places; nothing but a complaint that names the file may come of it."""
    tree = json.loads((FOREIGN / name).read_text())
    for _ in range(data.draw(st.integers(1, 3))):
        spoil(tree, data)
    text = json.dumps(tree)
    try:
        document = parse_document(text, file=name)
        file = ForeignFile(path=name, text=text, document=document)
        kind = file.format
        choices = Choices(name="m", device_type="gpu", time_unit=TIME_UNITS[kind])
        convert([file], kind, [choices])
    except BadInputError as error:
        assert all(line.startswith(name) for line in error.complaints)


def spoil(tree, data):
    place = tree
    while isinstance(place, dict | list) and place:
        steps = list(place) if isinstance(place, dict) else list(range(len(place)))
        step = data.draw(st.sampled_from(steps))
        deeper = isinstance(place[step], dict | list) and place[step] and data.draw(st.integers(0, 5))
        if deeper:
            place = place[step]
        elif data.draw(st.booleans()):
            del place[step]
            return
        else:
            place[step] = copy.deepcopy(data.draw(st.sampled_from(ODD)))
            return
