"""The table of conversions has what the search for a single one finds."""

import math

from hypothesis import given, settings
from hypothesis import strategies as st

from stagecut.planner.core.cluster import Link
from stagecut.planner.sharding.conversion_tables import all_placements, conversion_seconds, number_of
from stagecut.planner.sharding.conversions import conversion
from stagecut.planner.sharding.mesh import Mesh, MeshAxis

LATENCIES_S = (0.0, 1e-5, 1e-3)


@st.composite
def meshes(draw):
    sizes = draw(st.sampled_from(((2,), (3,), (2, 2), (2, 4), (4, 2), (2, 3))))
    return Mesh(
        axes=tuple(
            MeshAxis(
                size=size,
                link=Link(
                    bandwidth_bytes_per_s=draw(st.sampled_from((1e8, 1e9, 1e10))),
                    latency_s=draw(st.sampled_from(LATENCIES_S)),
                ),
            )
            for size in sizes
        )
    )


@settings(max_examples=60)
@given(meshes(), st.integers(1, 4), st.sampled_from((1e3, 1e6, 1e9)), st.data())
def test_every_entry_is_the_time_of_the_cheapest_conversion(mesh, num_dims, num_bytes, data):
    table = conversion_seconds(mesh, num_dims=num_dims, num_bytes=num_bytes)
    placements = st.sampled_from(all_placements(len(mesh.sizes), num_dims))
    for _ in range(5):
        source, target = data.draw(placements), data.draw(placements)
        steps = conversion(mesh, source, target, num_bytes=num_bytes)
        expected_s = math.inf if steps is None else sum(step.seconds(mesh) for step in steps)
        found_s = table[number_of(source, num_dims), number_of(target, num_dims)]
        assert found_s == expected_s or math.isclose(found_s, expected_s, rel_tol=1e-12)


def test_a_tensor_without_bytes_takes_no_time_where_there_is_a_way():
    mesh = Mesh(axes=(MeshAxis(size=2, link=Link(bandwidth_bytes_per_s=1.0, latency_s=1.0)),))
    # Replicate, Partial, Shard(0): nothing becomes Partial.
    expected = [[0.0, math.inf, 0.0], [0.0, 0.0, 0.0], [0.0, math.inf, 0.0]]
    assert conversion_seconds(mesh, num_dims=1, num_bytes=0.0).tolist() == expected
