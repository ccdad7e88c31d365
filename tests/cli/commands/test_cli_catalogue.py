"""`plan models`, `plan clusters`, `plan schema`, `plan doctor`."""

import json

import pytest
from click.testing import CliRunner

from stagecut.models import cluster_names, model_names
from stagecut.models.measured_profiles import measured_names
from stagecut.planner.cli.main import main
from stagecut.planner.io.files.cluster import read_cluster
from stagecut.planner.io.files.profile import read_profile


def test_every_model_is_listed(plan, plan_json):
    listed = plan_json("models")["models"]
    assert tuple(model["name"] for model in listed) == (*model_names(), *measured_names())
    assert all(name in plan("models").stdout for name in model_names())


def test_every_cluster_is_listed(plan, plan_json):
    listed = plan_json("clusters")["clusters"]
    assert tuple(cluster["name"] for cluster in listed) == cluster_names()
    assert all(name in plan("clusters").stdout for name in cluster_names())


def test_layers_of_a_model_are_shown(plan):
    """VGG-16: 13 convolutions, 3 products."""
    done = plan("models", "show", "vgg16")
    assert done.exit_code == 0
    assert "16 layers, 138 M parameters in fp16" in done.stdout
    assert "classifier3" in done.stdout


def test_a_profile_file_is_shown(plan, tiny_folder):
    done = plan("models", "show", tiny_folder / "profile.yaml")
    assert done.exit_code == 0
    assert "tiny-6: 6 layers" in done.stdout


def test_a_profile_file_keeps_its_precision(plan, tiny_folder):
    assert plan("models", "show", tiny_folder / "profile.yaml", "--precision", "fp16").exit_code == 0
    done = plan("models", "show", tiny_folder / "profile.yaml", "--precision", "fp32")
    assert done.exit_code == 3
    assert "leave out --precision" in done.stderr


@pytest.mark.parametrize("group", ["models", "clusters"])
def test_json_may_stand_before_the_subcommand(plan, group):
    name = {"models": "vgg16", "clusters": "cpu-2"}[group]
    assert plan(group, "--json", "show", name).stdout == plan(group, "show", name, "--json").stdout


@pytest.mark.parametrize("name", ["unet", "synthetic:3:5", "bert-large"])
def test_a_shown_model_is_a_profile_file(plan, tmp_path, name):
    path = tmp_path / "model.json"
    path.write_text(plan("models", "show", name, "--precision", "bf16", "--json").stdout)
    model = read_profile(path)
    assert (model.name, model.precision) == (name, "bf16")


@pytest.mark.parametrize("name", cluster_names())
def test_a_shown_cluster_is_a_cluster_file(plan, tmp_path, name):
    path = tmp_path / "cluster.json"
    path.write_text(plan("clusters", "show", name, "--json").stdout)
    assert read_cluster(path).name == name


def test_figures_of_a_cluster_carry_their_sources(plan):
    done = plan("clusters", "show", "mixed-server-8")
    assert done.exit_code == 0
    for words in ("data sheet", "assumption", "interface: ", "network: ", "between islands: "):
        assert words in done.stdout


def test_measured_figures_of_a_cluster_file_are_shown(plan, tmp_path):
    """The last segment has 1 MB in 100 us."""
    path = tmp_path / "cluster.yaml"
    path.write_text(
        "schema: 1\nname: measured\ndevice_types: [{name: gpu, memory_bytes: unlimited}]\n"
        "servers:\n- name: host\n  islands:\n  - device_type: gpu\n    count: 2\n"
        "    fabric: {bandwidth_bytes_per_s: 1, table: [[1e3, 10e-6], [1e6, 200e-6], [2e6, 300e-6]]}\n"
        "    all_reduce: {2: [[1e3, 20e-6], [2e6, 700e-6]]}\n"
    )
    done = plan("clusters", "show", str(path))
    assert done.exit_code == 0
    assert "10 GB/s measured" in done.stdout
    assert "host, fabric of gpu: measured, 10 us at 1 kB to 300 us at 2 MB, 10 GB/s beyond\n" in done.stdout
    assert "host, all-reduce among 2 x gpu: measured, 20 us at 1 kB to 700 us at 2 MB\n" in done.stdout


def test_names_that_are_near_are_suggested(plan):
    assert "did you mean 'gpt2-xl'" in plan("models", "show", "gpt2-xll").stderr
    assert "did you mean 'hetpipe-16'" in plan("clusters", "show", "hetpipe").stderr


@pytest.mark.parametrize("kind", ["profile", "cluster", "job", "plan"])
def test_schemas_are_json(plan, kind):
    done = plan("schema", kind)
    assert done.exit_code == 0
    assert json.loads(done.stdout)["type"] == "object"
    assert plan("schema", kind, "--json").stdout == done.stdout


def test_doctor_tells_versions_and_cores(plan, plan_json):
    found = plan_json("doctor")
    assert found["libraries"]["numpy"]
    assert found["cores"]["usable"] >= 1
    assert f"numpy       {found['libraries']['numpy']}" in plan("doctor").stdout


def test_names_that_the_output_cannot_encode_are_escaped(tiny_folder, tmp_path):
    """Older systems have such an encoding under LC_ALL=C."""
    path = tmp_path / "profile.yaml"
    path.write_text((tiny_folder / "profile.yaml").read_text().replace("attention-1", "größe"), encoding="utf-8")
    done = CliRunner(charset="ascii").invoke(main, ["models", "show", str(path)], prog_name="plan")
    assert done.exit_code == 0, done.output
    assert "gr\\xf6\\xdfe" in done.stdout
