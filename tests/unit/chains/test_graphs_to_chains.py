"""Graphs, their order and their layers, on cases small enough to do by hand."""

import pytest

from stagecut.planner.chains.chain import chain_of
from stagecut.planner.chains.colour_classes import merge_classes
from stagecut.planner.chains.joining import seconds_of
from stagecut.planner.chains.merging import coarser_groups, merged_groups
from stagecut.planner.chains.ordering import smallest_order
from stagecut.planner.chains.task_graph import TaskGraph, Tensor, Weights
from stagecut.planner.core.messages.errors import BadInputError
from stagecut.planner.core.model import Layer, TimeTable
from stagecut.planner.core.precision import Precision


def node(name, seconds, params=1.0):
    table = TimeTable(device_type="gpu", samples=(1,), forward_s=(seconds,), backward_s=(0.0,))
    return Layer(name=name, params_bytes=params, times=(table,))


def graph(nodes, tensors, weights=()):
    return TaskGraph(
        name="g",
        nodes=tuple(nodes),
        tensors=tuple(Tensor(source=source, users=users, num_bytes=size) for source, users, size in tensors),
        weights=weights,
    )


def test_a_branch_runs_where_few_bytes_are_alive():
    """Sources a (10 bytes) and b -> c (1 byte), joined by d: a first keeps 10 bytes alive while b, c run."""
    nodes = [node("a", 1.0), node("b", 1.0), node("c", 1.0), node("d", 1.0)]
    built = graph(nodes, [(0, (3,), 10.0), (1, (2,), 1.0), (2, (3,), 1.0)])
    assert [nodes[index].name for index in smallest_order(built)] == ["b", "c", "a", "d"]


def test_a_mask_that_takes_no_time_stands_before_its_first_user():
    """The input `mask` is needed by the second and the third block only."""
    nodes = [node("mask", 0.0, params=0.0), node("x", 1.0), node("y", 1.0), node("z", 1.0)]
    built = graph(nodes, [(0, (2, 3), 5.0), (1, (2,), 1.0), (2, (3,), 1.0)])
    assert [nodes[index].name for index in smallest_order(built)] == ["x", "mask", "y", "z"]


def test_a_tensor_with_several_users_crosses_each_boundary_once():
    """Node 0 hands 4 bytes to 1, 2 and 3: they cross all three boundaries, beside the chain's own bytes."""
    built = graph([node(name, 1.0) for name in "abcd"], [(0, (1, 2, 3), 4.0), (1, (2,), 1.0), (2, (3,), 2.0)])
    profile = chain_of(built, precision=Precision.FP32)
    assert profile.boundary_bytes().tolist() == [0.0, 4.0, 5.0, 6.0, 0.0]
    assert [(edge.source, edge.targets, edge.num_bytes) for edge in profile.skip_edges] == [(0, (1, 2, 3), 4.0)]


def test_idle_nodes_join_the_side_with_fewer_bytes_between():
    """a -6-> view -2-> b: the cut before `view` carries 6, the one behind it 2, and the work is split alike."""
    built = graph([node("a", 1.0), node("view", 0.0, params=0.0), node("b", 1.0)], [(0, (1,), 6.0), (1, (2,), 2.0)])
    assert merged_groups(built, (0, 1, 2)) == ((0, 1), (2,))


def test_parts_that_nothing_joins_are_counted():
    """a -> b, c -> d and e alone are three; weights that b and c share leave two."""
    nodes, tensors = [node(name, 1.0) for name in "abcde"], [(0, (1,), 1.0), (2, (3,), 1.0)]
    assert graph(nodes, tensors).num_components == 3
    assert graph(nodes, tensors, (Weights(users=(1, 2), num_bytes=1.0),)).num_components == 2


def diamond(seconds, inner):
    """a -> (b, c) -> d -> e, a hands on 2 bytes, b and c `inner` each, d 2."""
    nodes = [node("a", 9.0), node("b", seconds), node("c", seconds), node("d", seconds), node("e", 9.0)]
    return graph(nodes, [(0, (1, 2), 2.0), (1, (3,), inner), (2, (3,), inner), (3, (4,), 2.0)])


def test_a_small_branch_whose_cuts_carry_more_is_one_layer():
    """Inside: behind b 2 + 3, behind c 3 + 3 bytes, at the ends 2. The stretch takes 3 s and 3 bytes of weights: all
    nodes have 1 byte, so the weights forbid it; with weights in a alone it is one layer.
    """
    built = diamond(1.0, 3.0)
    assert merged_groups(built, (0, 1, 2, 3, 4)) == ((0,), (1,), (2,), (3,), (4,))
    light = [built.nodes[0], *(node(part.name, seconds_of(part), params=0.0) for part in built.nodes[1:])]
    lighter = TaskGraph(name="g", nodes=tuple(light), tensors=built.tensors)
    assert merged_groups(lighter, (0, 1, 2, 3, 4)) == ((0,), (1, 2, 3), (4,))


@pytest.mark.parametrize(("seconds", "inner"), [(4.0, 3.0), (1.0, 0.5)])
def test_a_branch_stays_where_it_balances_or_where_a_cut_carries_less(seconds, inner):
    """12 s in one layer are more than the largest node's 9; behind c only 0.5 + 0.5 bytes cross, fewer than 2."""
    built = diamond(seconds, inner)
    light = [built.nodes[0], *(node(part.name, seconds_of(part), params=0.0) for part in built.nodes[1:])]
    groups = merged_groups(TaskGraph(name="g", nodes=tuple(light), tensors=built.tensors), (0, 1, 2, 3, 4))
    assert len(groups) == 5


def test_shared_weights_belong_to_the_first_user_and_are_copied_by_others():
    """A tied embedding of 100 bytes, used by the first and the last node."""
    weights = (Weights(users=(0, 2), num_bytes=100.0),)
    built = graph([node(name, 1.0) for name in "abc"], [(0, (1,), 1.0), (1, (2,), 1.0)], weights)
    layers = chain_of(built, precision=Precision.FP32).layers
    assert [layer.params_bytes for layer in layers] == [101.0, 1.0, 1.0]
    assert [layer.shared_params_bytes for layer in layers] == [0.0, 0.0, 100.0]


def test_the_quickest_neighbours_are_merged_until_few_layers_are_left():
    """5, 1, 2, 4 s: 1 + 2 are 3, then 3 + 4 are 7, less than 5 + 3."""
    built = graph([node(name, seconds) for name, seconds in zip("abcd", (5.0, 1.0, 2.0, 4.0), strict=True)], [])
    assert coarser_groups(built, ((0,), (1,), (2,), (3,)), 3) == ((0,), (1, 2), (3,))
    profile = chain_of(built, precision=Precision.FP32, keep_nodes=True, max_layers=2)
    assert [layer.name for layer in profile.layers] == ["a", "b..d"]


def test_equal_names_get_numbers():
    built = graph([node("x", 1.0), node("x", 1.0)], [(0, (1,), 1.0)])
    assert [layer.name for layer in chain_of(built, precision=Precision.FP32).layers] == ["x", "x-2"]


def test_a_cycle_is_refused_with_its_nodes():
    with pytest.raises(BadInputError, match=r"must be acyclic, got the cycle b -> c -> b"):
        graph([node(name, 1.0) for name in "abc"], [(0, (1,), 1.0), (1, (2,), 1.0), (2, (1,), 1.0)])


def test_a_colour_is_one_node_unless_that_closes_a_cycle():
    """Chain 0 -> 1 -> 2 -> 3: red is 0 and 1, blue is 2 alone; green of 1 and 3 would have 2 in between."""
    edges = {(0, 1), (1, 2), (2, 3)}
    assert merge_classes({0: "red", 1: "red", 2: "blue", 3: None}, edges) == ({0: 0, 1: 0, 2: 2, 3: 3}, ())
    assert merge_classes({0: None, 1: "green", 2: None, 3: "green"}, edges) == ({0: 0, 1: 1, 2: 2, 3: 3}, ("green",))
