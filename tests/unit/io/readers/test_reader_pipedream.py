"""Graphs of PipeDream's profiler."""

import pytest

from stagecut.planner.core.messages.errors import BadInputError

FIGURES = "forward_compute_time=1.0, backward_compute_time=2.0, activation_size={size}, parameter_size=4.0"


def test_layers_of_the_sample(read, foreign):
    """Views and the addition join the recurrent layers: what crosses is then one activation of 64 kB everywhere."""
    profile = read(foreign / "graph.txt").profile
    assert [layer.kind for layer in profile.layers] == ["Embedding", "LSTM", "LSTM", "Linear"]
    assert profile.boundary_bytes().tolist() == [0.0, 64e3, 64e3, 64e3, 0.0]
    assert profile.layers[1].times[0].forward_s == pytest.approx((0.002,))
    assert profile.num_params == pytest.approx((3200 + 2304 + 2304 + 3600) / 4)


def test_every_node_stays_a_layer_if_asked(read, foreign):
    """Behind the first view the state of 800 bytes is no longer needed, the residual of 64 kB is."""
    profile = read(foreign / "graph.txt", keep_nodes=True).profile
    assert profile.num_layers == 9
    assert profile.boundary_bytes().tolist() == [0.0, 0.0, 64e3, 64.8e3, 64.8e3, 64e3, 128.8e3, 128e3, 64e3, 0.0]


def test_a_list_of_sizes_is_their_sum_and_a_minibatch_has_many_samples(read, tmp_path):
    """(64 + 16) bytes for 4 samples."""
    path = tmp_path / "g.txt"
    path.write_text(f"a -- A -- {FIGURES.format(size='[64; 16.0]')}\nb -- B -- {FIGURES.format(size=8)}\n\ta -- b\n")
    assert read(path, micro_batch=4).profile.boundary_bytes().tolist() == [0.0, 20.0, 0.0]


def test_what_follows_the_figures_and_further_figures_do_not_matter(read, tmp_path):
    path = tmp_path / "g.txt"
    path.write_text(f"a -- A(x -- y) -- {FIGURES.format(size=8)}, more=1 -- stage_id=0\n")
    layer = read(path).profile.layers[0]
    assert (layer.name, layer.kind) == ("a", "A")


def test_inputs_are_at_hand_everywhere(read, tmp_path):
    """The labels, 8 bytes, go from the input to the loss, but cross nothing; loading them takes no time of a device."""
    path = tmp_path / "g.txt"
    lines = [
        f"{name} -- {kind} -- {FIGURES.format(size=8)}" for name, kind in (("i", "Input0"), ("a", "A"), ("b", "B"))
    ]
    path.write_text("\n".join([*lines, "\ti -- a", "\ta -- b", "\ti -- b"]))
    profile = read(path).profile
    assert profile.boundary_bytes().tolist() == [0.0, 0.0, 8.0, 0.0]
    assert [layer.times[0].forward_s for layer in profile.layers] == [(0.0,), (0.001,), (0.001,)]


def test_all_faults_are_told_with_their_lines(read, tmp_path):
    path = tmp_path / "g.txt"
    path.write_text(
        "a -- A -- forward_compute_time=1, backward_compute_time=x, activation_size=[1; -2], parameter_size=3\n"
        "b -- B\n"
        f"a -- A -- {FIGURES.format(size=8)}\n"
        "c -- C -- forward_compute_time=1, backward_time=1, activation_size=1, parameter_size=3\n"
        "\ta -- d\n"
    )
    with pytest.raises(BadInputError) as caught:
        read(path)
    expected = (
        ":1: a.backward_compute_time: must be a number",
        ":1: a.activation_size: must be a number",
        ":2: ",
        ":3: ",
        ":4: c.backward_compute_time: is missing, did you mean 'backward_time'?",
        ":5: ",
    )
    for line, part in zip(caught.value.complaints, expected, strict=True):
        assert part in line


def test_a_cycle_is_refused(read, tmp_path):
    path = tmp_path / "g.txt"
    lines = [f"{name} -- A -- {FIGURES.format(size=8)}" for name in "ab"]
    path.write_text("\n".join([*lines, "\ta -- b", "\tb -- a"]))
    with pytest.raises(BadInputError, match=r"g.txt: .*must be acyclic"):
        read(path)
