"""Plans are divided where least lengths come apart, and each is on one side."""

import numpy as np
from hypothesis import given, settings

from stagecut.planner.network.rows import build_rows
from stagecut.planner.solvers.exact.stage_splits import LITTLE, halves
from tests.network_paths import all_paths, positioned_network
from tests.property.strategies import problems


def networks_of_one_length(problem):
    """The network of all paths with as many stages, for each number of them."""
    network = positioned_network(problem)
    of_length = {}
    for path in all_paths(network):
        of_length.setdefault(int(network.arcs.is_stage[path].sum()), []).append(path)
    for paths in of_length.values():
        kept, _ = network.restricted(np.isin(np.arange(len(network.arcs)), np.concatenate(paths)))
        assert len(paths) == sum(1 for _ in all_paths(kept))
        yield kept


def worth_of(rows, paths, position, high):
    """What it is worth to part stages at a position from others, from the lengths of the paths on either side."""
    arcs = rows.network.arcs
    sides = ([], [])
    for path in paths:
        stage = next(arc for arc in path if arcs.is_stage[arc] and arcs.least_position[arc] == position)
        lengths_s = [
            rows.round_trip[path].sum(),
            rows.forward[path].sum(),
            (rows.round_trip - rows.forward)[path].sum(),
        ]
        sides[int(high[stage])].append((stage, [*lengths_s, lengths_s[0] + rows.bottleneck[stage]]))
    if not all(sides):
        return 0.0
    first_s, second_s = (np.min([lengths_s for _, lengths_s in side], axis=0) for side in sides)
    least_s = np.minimum(first_s, second_s)
    rises = [((side_s - least_s) / np.maximum(least_s, 1e-12)).sum() for side_s in (first_s, second_s)]
    return (min(rises) + LITTLE) * min(len({stage for stage, _ in side}) for side in sides)


@settings(max_examples=60)
@given(problems(max_layers=5, max_devices=4))
def test_every_path_is_on_one_side_and_no_other_division_is_worth_more(problem):
    """Both sides have paths; where there is no division, there is only one path."""
    for network in networks_of_one_length(problem):
        arcs, rows, paths = network.arcs, build_rows(network), list(all_paths(network))
        divided = halves(rows, paths[0])
        if divided is None:
            assert len(paths) == 1
            continue
        sides = np.array([[side[path].all() for side in divided] for path in paths])
        assert (sides.sum(axis=1) == 1).all()
        assert sides.any(axis=0).all()
        (position,) = np.unique(arcs.least_position[~divided[0]])
        found = worth_of(rows, paths, position, ~divided[0])
        for other in np.unique(arcs.least_position[arcs.is_stage]):
            for key in (arcs.start, arcs.stop, arcs.forward_s + arcs.backward_s):
                for value in np.unique(key[arcs.is_stage & (arcs.least_position == other)]):
                    assert worth_of(rows, paths, other, key > value) <= found * (1 + 1e-6)
