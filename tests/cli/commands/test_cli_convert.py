"""`plan convert`: from other planners' files to plans, and from plans to frameworks."""

import json
from pathlib import Path

import pytest

FOREIGN = Path(__file__).parents[2] / "regression" / "data" / "foreign"
SAMPLES = {
    "piper": ("piper.json",),
    "pipedream": ("graph.txt",),
    "dnn-partitioning": ("workload.json",),
    "layer-tables": ("fast.json",),
}


@pytest.fixture
def cluster(tmp_path):
    """Two devices called `gpu`, with times of a profile only."""
    tree = {
        "schema": 1,
        "name": "two",
        "device_types": [{"name": "gpu", "memory_bytes": 16e9}],
        "servers": [{"name": "node", "islands": [{"device_type": "gpu", "count": 2}]}],
    }
    path = tmp_path / "cluster.json"
    path.write_text(json.dumps(tree))
    return path


@pytest.mark.parametrize("kind", SAMPLES)
def test_converted_profiles_solve_end_to_end(plan, plan_json, cluster, tmp_path, kind):
    """The plan for two devices beats one that runs forward and backward of all layers for each of 16 samples."""
    profile, solved = tmp_path / "profile.json", tmp_path / "plan.json"
    files = [FOREIGN / name for name in SAMPLES[kind]]
    answer = plan_json("convert", *files, "--device-type", "gpu", "-o", profile)
    assert answer["format"] == kind
    assert answer["num_layers"] <= answer["num_nodes"]
    problem = ("--model", profile, "--cluster", cluster, "--global-batch", "16", "--micro-batch", "1,2")
    found = plan_json("solve", *problem, "-o", solved, "--quiet")
    (times,) = answer["device_types"]
    assert 0 < found["objective_s"] < 16 * (times["forward_s"] + times["backward_s"])
    assert plan("check", solved).exit_code == 0


def test_several_tables_make_one_profile(plan_json, tmp_path):
    out = tmp_path / "profile.json"
    answer = plan_json("convert", FOREIGN / "fast.json", FOREIGN / "slow.json", "-o", out)
    assert [found["device_type"] for found in answer["device_types"]] == ["fast", "slow"]
    assert answer["device_types"][1]["forward_s"] == pytest.approx(0.033)


def test_people_get_a_few_lines_and_notes_on_stderr(plan, tmp_path):
    done = plan("convert", FOREIGN / "graph.txt", "--name", "lstm", "-o", tmp_path / "p.json")
    assert "lstm: 4 layers from 9 nodes of pipedream" in done.stdout
    assert "converted: 5.5 ms forward, 11 ms backward for 1 sample" in done.stdout
    assert "note: times and bytes refer to a minibatch" in done.stderr
    assert json.loads((tmp_path / "p.json").read_text())["name"] == "lstm"


def test_time_unit_and_sizes_are_taken_from_the_options(plan_json, tmp_path):
    """5.5 of the unit, for 8 samples."""
    options = ("--time-unit", "s", "--micro-batch", "8", "--precision", "fp16", "--keep-nodes", "--quiet")
    answer = plan_json("convert", FOREIGN / "graph.txt", *options, "-o", tmp_path / "p.json")
    assert answer["num_layers"] == 9
    assert answer["precision"] == "fp16"
    assert answer["device_types"][0] == {"device_type": "converted", "samples": 8, "forward_s": 5.5, "backward_s": 11.0}


def test_a_wrong_format_is_told_with_lines_and_nothing_is_written(plan, tmp_path):
    out = tmp_path / "p.json"
    done = plan("convert", FOREIGN / "piper.json", "--from", "dnn-partitioning", "-o", out)
    assert done.exit_code == 3
    assert "piper.json:" in done.stderr
    assert "fpgaLatency: is missing" in done.stderr
    assert not out.exists()


def test_a_graph_that_is_said_to_be_one_is_read_as_one(plan, tmp_path):
    """The message says that the first line is not a node, and does not complain that the file is not JSON."""
    path = tmp_path / "graph.txt"
    path.write_text("node1 - Linear(8, 8)\n")
    done = plan("convert", path, "--from", "pipedream", "-o", tmp_path / "p.json")
    assert done.exit_code == 3
    assert "graph.txt:1: " in done.stderr
    assert "must be 'node -- description" in done.stderr


def test_devices_without_times_do_not_compute_for_free(plan, tmp_path):
    """A catalogue cluster has peak rates, but the profile has no operations to divide by them."""
    out = tmp_path / "p.json"
    plan("convert", FOREIGN / "graph.txt", "-o", out)
    done = plan("solve", "--model", out, "--cluster", "h100-8", "--global-batch", "16")
    assert done.exit_code == 3
    assert "has times on 'converted' only" in done.stderr


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("graph.txt",), "name the profile to write with -o"),
        (("graph.txt", "--schedule-csv", "x.csv", "-o", "y.json"), "--schedule-csv needs --to torchtitan"),
        (
            ("graph.txt", "--to", "megatron", "--from", "piper", "--keep-nodes"),
            "--from, --keep-nodes: only for reading profiles",
        ),
        (("graph.txt", "piper.json", "--to", "megatron"), "name one file"),
        (("graph.txt", "--to", "megatron", "--schedule-csv", "x.csv"), "--schedule-csv needs --to torchtitan"),
        (("graph.txt", "--folder", "x"), "--folder needs --to"),
        (("graph.txt", "--to", "megatron", "--folder", "x", "-o", "y"), "-o: not with --folder"),
    ],
)
def test_options_that_make_no_sense_together_are_wrong_usage(plan, arguments, message):
    done = plan("convert", *(FOREIGN / word if "." in word and word[0] in "gp" else word for word in arguments))
    assert done.exit_code == 2
    assert message in done.stderr


def test_as_many_device_types_as_files(plan, tmp_path):
    files = (FOREIGN / "fast.json", FOREIGN / "slow.json")
    done = plan("convert", *files, "--device-type", "gpu", "-o", tmp_path / "p.json")
    assert done.exit_code == 3
    assert "once per file" in done.stderr
    done = plan("convert", *files, "--device-type", "gpu", "--device-type", "gpu", "-o", tmp_path / "p.json")
    assert "a device type of its own" in done.stderr


@pytest.fixture(scope="module")
def llama_plan(plan, tmp_path_factory):
    """llama-mini on two H100, cut at blocks: the middle stage boundary of equal halves."""
    path = tmp_path_factory.mktemp("llama") / "plan.json"
    choices = (
        "--replicas",
        "2",
        "--tensor-parallel",
        "1",
        "--pipelines",
        "1",
        "--schedule",
        "1f1b",
        "--solver",
        "even",
    )
    problem = ("--model", "llama-mini", "--cluster", "h100-8", "--global-batch", "16", "--precision", "bf16")
    done = plan("solve", *problem, *choices, "--zero1", "--recompute", "never", "--quiet", "-o", path)
    assert done.exit_code == 0, done.output
    return path


def test_a_plan_goes_to_deepspeed(plan_json, plan, llama_plan, tmp_path):
    answer = plan_json("convert", llama_plan, "--to", "deepspeed")
    tree = json.loads(answer["text"])
    assert tree["parts"][0] == 0
    assert tree["parts"][-1] == 10
    out = tmp_path / "deepspeed.json"
    done = plan("convert", llama_plan, "--to", "deepspeed", "-o", out)
    assert done.stdout == ""
    assert json.loads(out.read_text()) == tree


def test_what_a_framework_cannot_run_is_refused(plan, plan_file):
    """The tiny problem's plan uses fast and slow devices differently, and its layers are no transformer's."""
    done = plan("convert", plan_file, "--to", "megatron")
    assert done.exit_code == 3
    assert "Megatron-LM cannot run this plan" in done.stderr


def test_existing_files_are_left_alone(plan, llama_plan, tmp_path):
    out = tmp_path / "taken.json"
    out.write_text("mine")
    assert plan("convert", llama_plan, "--to", "deepspeed", "-o", out).exit_code == 3
    assert plan("convert", FOREIGN / "graph.txt", "-o", out).exit_code == 3
    assert out.read_text() == "mine"
    assert plan("convert", FOREIGN / "graph.txt", "-o", out, "--force").exit_code == 0


def test_the_order_of_actions_is_a_file_of_its_own(plan, changed_llama, tmp_path):
    """Two stages cut between blocks; each row has a forward and a backward of every micro-batch."""
    order = tmp_path / "order.csv"
    done = plan("convert", changed_llama, "--to", "torchtitan", "--schedule-csv", order)
    assert done.exit_code == 0, done.output
    assert "PipelineScheduleMulti" in done.stdout
    rows = [line.split(",") for line in order.read_text().splitlines()]
    assert rows[0][0] == "0F0"
    assert all(
        {cell for cell in row if cell} == {f"{rank}{op}{m}" for op in "FB" for m in range(len(row) // 2)}
        for rank, row in enumerate(rows)
    )


@pytest.fixture
def changed_llama(llama_plan, tmp_path):
    """The same plan as two stages with the cut behind the second block."""
    tree = json.loads(llama_plan.read_text())
    first, last = (tree["plan"]["pipelines"][0]["stages"][index] for index in (0, -1))
    first.update(stop=5, last_layer="block1.feed-forward", warmup_depth=2)
    last.update(start=5, first_layer="block2.attention", warmup_depth=1)
    tree["plan"]["pipelines"][0]["stages"] = [first, last]
    predicted = tree["predicted"]["stages"]
    tree["predicted"]["stages"] = [predicted[0], predicted[-1]]
    path = tmp_path / "two.json"
    path.write_text(json.dumps(tree))
    return path


@pytest.mark.parametrize(
    ("target", "names"),
    [
        ("megatron", {"arguments.txt"}),
        ("torchtitan", {"torchtitan-0.2.toml", "torchtitan-0.3.flags"}),
        ("deepspeed", {"plan.json", "cut_module.py"}),
    ],
)
def test_a_folder_has_all_files_and_the_command_of_each_host(plan, plan_json, changed_llama, tmp_path, target, names):
    """Two stages of two replicas on the first four devices of the only host."""
    folder = tmp_path / "export"
    answer = plan_json("convert", changed_llama, "--to", target, "--folder", folder, "--quiet")
    assert set(answer["files"]) == {path.name for path in folder.iterdir()} == names | {"README.md"}
    assert answer["folder"] == str(folder)
    text = (folder / "README.md").read_text()
    assert "torchrun --nnodes 1 --node-rank 0 --nproc-per-node" in text
    assert all(f"`{name}`" in text for name in names)
    again = plan("convert", changed_llama, "--to", target, "--folder", folder)
    assert again.exit_code == 3
    assert "already exists" in again.stderr


def test_a_folder_that_cannot_be_made_is_one_message(plan, llama_plan, tmp_path):
    taken = tmp_path / "taken"
    taken.write_text("mine")
    for folder in (taken, tmp_path / "missing" / "export"):
        done = plan("convert", llama_plan, "--to", "deepspeed", "--folder", folder)
        assert done.exit_code == 3
        assert f"{folder}: cannot be made a folder" in done.stderr


HIDDEN_OR_LONG = ["", "x" * 101, "a\nb", "a\x1b[31m", "a\x85b", "a\u2028b", "\udcff"]


@pytest.mark.parametrize("option", ["--name", "--device-type"])
@pytest.mark.parametrize("text", HIDDEN_OR_LONG, ids=ascii)
def test_names_that_no_file_may_have_are_wrong_usage(plan, tmp_path, option, text):
    """Control characters, separators of lines, bytes that are no text, nothing, more than 100 characters."""
    out = tmp_path / "p.json"
    done = plan("convert", FOREIGN / "graph.txt", option, text, "-o", out)
    assert done.exit_code == 2
    assert f"Invalid value for '{option}'" in done.stderr
    assert "write 1 to 100 printable characters" in done.stderr
    assert not out.exists()


NAMES = ("2080", "true", "null", "1e3", "~", " ", "x" * 100, "Ünï-日本-🙂", "a\u202e\u200b\ufeff", "a: b # c", "'\"\\")


@pytest.mark.parametrize("name", NAMES)
def test_names_that_are_accepted_can_be_read_again(plan, plan_json, tmp_path, name):
    out = tmp_path / "p.json"
    assert plan("convert", FOREIGN / "graph.txt", "--name", name, "--device-type", name, "-o", out).exit_code == 0
    shown = plan_json("models", "show", out)
    assert shown["name"] == name
    assert list(shown["layers"][0]["forward_s"]) == [name]


@pytest.mark.parametrize("node", ["", "x" * 300, "a\x1b[31m", "a\x85b", "a\u2028b", "\ufeff"], ids=ascii)
@pytest.mark.parametrize("options", [(), ("--keep-nodes",), ("--max-layers", "2")])
def test_whatever_nodes_are_called_the_profile_can_be_read(plan, tmp_path, node, options):
    """Some names are refused with a message: the reader of graphs takes a few separators for line ends."""
    path, out = tmp_path / "graph.txt", tmp_path / "p.json"
    path.write_text((FOREIGN / "graph.txt").read_text().replace("node2", node))
    done = plan("convert", path, *options, "-o", out)
    if done.exit_code == 0:
        assert plan("models", "show", out).exit_code == 0
    else:
        assert done.exit_code == 3
        assert f"Error: {path}:" in done.stderr
        assert not out.exists()


def test_a_profile_that_could_not_be_read_is_not_written(plan, tmp_path):
    """Two weights of 1e30 bytes are merged to one layer with more than a file may say; 1e9 samples are too many."""
    path, out = tmp_path / "graph.txt", tmp_path / "p.json"
    path.write_text((FOREIGN / "graph.txt").read_text().replace("parameter_size=3200.000", "parameter_size=1e30"))
    text = path.read_text().replace("parameter_size=2304.000", "parameter_size=1e30")
    path.write_text(text)
    done = plan("convert", path, "--max-layers", "1", "-o", out)
    assert done.exit_code == 3
    assert (
        f"{out}: not written, because it could not be read back: layers[0].params_bytes: must be a number"
        in done.stderr
    )
    done = plan("convert", FOREIGN / "graph.txt", "--micro-batch", "1000000000", "-o", out)
    assert done.exit_code == 3
    assert "micro-batch size from 1 to 999999999" in done.stderr
    assert not out.exists()
