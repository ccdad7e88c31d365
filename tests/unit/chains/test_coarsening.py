"""Profiles with fewer layers, by hand."""

import pytest

from stagecut.planner.chains.coarsening import coarsened, lost_times
from stagecut.planner.chains.merging import coarser_runs
from stagecut.planner.core.model import Layer, ModelProfile, SkipEdge, TimeTable


def table(seconds, *, samples=(1, 2), device_type="gpu", tensor_parallel=1):
    """Twice as long for the second size, backwards three times as long as forwards."""
    forward_s = tuple(seconds * (index + 1) for index in range(len(samples)))
    backward_s = tuple(3 * value for value in forward_s)
    return TimeTable(
        device_type=device_type,
        samples=samples,
        forward_s=forward_s,
        backward_s=backward_s,
        tensor_parallel=tensor_parallel,
    )


def layer(name, seconds, **changes):
    given = {"params_bytes": 2.0, "saved_bytes": 3.0, "output_bytes": 1.0, "times": (table(seconds),)}
    return Layer(name=name, **{**given, **changes})


def model(*layers, skip_edges=()):
    return ModelProfile(name="m", layers=layers, skip_edges=skip_edges)


def test_the_shortest_neighbours_become_one():
    """5 2 1 1 4: first 1 + 1, then 2 + 2, then 4 + 4."""
    seconds = [5.0, 2.0, 1.0, 1.0, 4.0]
    assert coarser_runs(seconds, 4) == [range(1), range(1, 2), range(2, 4), range(4, 5)]
    assert coarser_runs(seconds, 3) == [range(1), range(1, 4), range(4, 5)]
    assert coarser_runs(seconds, 2) == [range(1), range(1, 5)]
    assert coarser_runs(seconds, 1) == [range(5)]
    assert coarser_runs(seconds, 9) == [range(index, index + 1) for index in range(5)]


def test_long_chains_of_equal_layers_come_out_even():
    """Pairs from the front, then pairs of pairs: 4,096 layers make 1,024 of four."""
    assert coarser_runs([1.0] * 4096, 1024) == [range(index, index + 4) for index in range(0, 4096, 4)]


def test_a_merged_layer_is_its_parts_one_after_another():
    """Times add up (1 + 2 s), the output is the last one, and the working memory the larger of the two."""
    first = layer("a", 1.0, working_bytes=7.0, forward_flops=10.0, shared_params_bytes=1.0, tensor_parallel_bytes=2.0)
    second = layer("b", 2.0, working_bytes=5.0, forward_flops=1.0, output_bytes=9.0, tensor_parallel_bytes=3.0)
    (merged, last) = coarsened(model(first, second, layer("c", 9.0)), 2).layers
    assert (merged.name, last.name) == ("a..b", "c")
    assert (merged.params_bytes, merged.shared_params_bytes, merged.saved_bytes) == (4.0, 1.0, 6.0)
    assert (merged.forward_flops, merged.output_bytes, merged.working_bytes) == (11.0, 9.0, 7.0)
    assert merged.tensor_parallel_bytes == 5.0
    assert merged.times == (table(3.0),)


def test_boundaries_that_are_left_carry_what_they_carried():
    """Outputs 1; edges 0 -> 3 of 4 and 1 -> 2 of 8 bytes. With 1 and 2 as one, the second edge is inside."""
    layers = [layer(name, seconds) for name, seconds in (("a", 3.0), ("b", 1.0), ("c", 1.0), ("d", 3.0))]
    edges = (SkipEdge(source=0, target=3, num_bytes=4.0), SkipEdge(source=1, target=2, num_bytes=8.0))
    fine = model(*layers, skip_edges=edges)
    coarse = coarsened(fine, 3)
    assert fine.boundary_bytes().tolist() == [0, 5, 13, 5, 0]
    assert coarse.boundary_bytes().tolist() == [0, 5, 5, 0]
    assert coarse.skip_edges == (SkipEdge(source=0, target=2, num_bytes=4.0),)


def test_users_of_a_tensor_stay_its_users():
    """The output of a is used by b, c and d, of which b and c become one user; that of b is used by c and d."""
    layers = [layer(name, seconds) for name, seconds in (("a", 3.0), ("b", 1.0), ("c", 1.0), ("d", 3.0))]
    edges = (
        SkipEdge(source=0, target=3, num_bytes=4.0, earlier_targets=(1, 2)),
        SkipEdge(source=1, target=3, num_bytes=8.0, earlier_targets=(2,)),
    )
    coarse = coarsened(model(*layers, skip_edges=edges), 3)
    assert [(edge.source, edge.targets, edge.num_bytes) for edge in coarse.skip_edges] == [
        (0, (1, 2), 4.0),
        (1, (2,), 8.0),
    ]


def test_layers_that_cannot_be_shared_stay_apart_from_those_that_can():
    """b and c are the shortest pair, but only c and d can be shared by several devices."""
    shared = (table(1.0), table(0.5, tensor_parallel=2))
    can = {"tensor_parallel_bytes": 1.0, "times": shared}
    layers = (layer("a", 9.0), layer("b", 1.0), layer("c", 1.0, **can), layer("d", 1.0, **can))
    coarse = coarsened(model(*layers), 3)
    assert [part.name for part in coarse.layers] == ["a", "b", "c..d"]
    assert coarse.layers[2].times == (table(2.0), table(1.0, tensor_parallel=2))
    in_the_end = coarsened(model(*layers), 1).layers[0]
    assert (in_the_end.tensor_parallel_bytes, in_the_end.times) == (None, (table(12.0),))


def test_times_are_added_at_common_sizes_only():
    layers = (
        layer("a", 1.0, times=(table(1.0, samples=(1, 2)),)),
        layer("b", 2.0, times=(table(2.0, samples=(2, 4)),)),
    )
    fine = model(*layers)
    (merged,) = coarsened(fine, 1).layers
    assert merged.times == (TimeTable(device_type="gpu", samples=(2,), forward_s=(4.0,), backward_s=(12.0,)),)
    assert lost_times(fine, coarsened(fine, 1)) == ()


def test_times_without_a_common_size_are_told():
    fine = model(layer("a", 1.0, times=(table(1.0, samples=(1,)),)), layer("b", 2.0, times=(table(2.0, samples=(2,)),)))
    assert coarsened(fine, 1).layers[0].times == ()
    assert lost_times(fine, coarsened(fine, 1)) == ("gpu",)


def test_short_chains_stay_as_they_are():
    fine = model(layer("a", 1.0), layer("b", 1.0))
    assert coarsened(fine, 2) is fine


@pytest.mark.parametrize("flops", [(1.0, 1.0, 5.0), (0.0, 0.0, 0.0)])
def test_layers_without_times_are_merged_by_their_operations(flops):
    """Without operations either, all layers count as alike, and the first two are merged."""
    layers = [Layer(name=name, forward_flops=value) for name, value in zip("abc", flops, strict=True)]
    assert [part.name for part in coarsened(model(*layers), 2).layers] == ["a..b", "c"]


def test_names_that_would_repeat_are_numbered():
    """A layer is already called as the merged one."""
    layers = (layer("a", 1.0), layer("b", 1.0), layer("a..b", 9.0))
    assert [part.name for part in coarsened(model(*layers), 2).layers] == ["a..b", "a..b-2"]
