"""Plan files with something changed at random never make the command line fail."""

import json

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

VALUES = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(-2, 9),
    st.sampled_from((1e300, -1.0, 0.0, 10**400, "", "fast/0", "unlimited", [], {}, [None], {"schema": 1})),
)


def places(tree, prefix=()):
    """Every place of a tree."""
    items = tree.items() if isinstance(tree, dict) else enumerate(tree) if isinstance(tree, list) else ()
    for step, child in items:
        yield (*prefix, step)
        yield from places(child, (*prefix, step))


@pytest.mark.parametrize("command", [("check",), ("simulate",), ("explain", "--what-if", "nic", "--solver", "even")])
@settings(max_examples=60)
@given(data=st.data())
def test_a_changed_plan_file_is_played_or_refused(plan, plan_file, tmp_path_factory, command, data):
    tree = json.loads(plan_file.read_text())
    for _ in range(data.draw(st.integers(1, 2))):
        *above, last = data.draw(st.sampled_from(sorted(places(tree), key=str)))
        parent = tree
        for step in above:
            parent = parent[step]
        parent[last] = data.draw(VALUES)
    path = tmp_path_factory.getbasetemp() / "fuzzed.json"
    path.write_text(json.dumps(tree))
    done = plan(*command, path)
    assert done.exit_code in {0, 3, 6}, done.output
    assert "Traceback" not in done.output
