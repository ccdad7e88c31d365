"""Plans are divided where most of them differ, and each is on one side."""

import numpy as np
from hypothesis import given, settings

from stagecut.planner.solvers.exact.stage_splits import by_boundary
from tests.network_paths import all_paths, positioned_network
from tests.property.strategies import problems


@settings(max_examples=60)
@given(problems(max_layers=5, max_devices=4))
def test_every_path_of_one_length_is_on_one_side_of_a_boundary(problem):
    """And both sides have paths; where no boundary differs, all paths have the same layers in their stages."""
    arcs = (network := positioned_network(problem)).arcs
    of_length = {}
    for path in all_paths(network):
        of_length.setdefault(len(path), []).append(path)
    for paths in of_length.values():
        kept, _ = network.restricted(np.isin(np.arange(len(arcs)), np.concatenate(paths)))
        if len({len(path) for path in all_paths(kept)}) > 1:
            continue
        paths = list(all_paths(kept))
        stages = paths[0][kept.arcs.is_stage[paths[0]]]
        divided = by_boundary(kept.arcs, stages)
        if divided is None:
            assert len({tuple(kept.arcs.stop[path].tolist()) for path in paths}) == 1
        else:
            sides = np.array([[side[path].all() for side in divided] for path in paths])
            assert (sides.sum(axis=1) == 1).all()
            assert sides.any(axis=0).all()
