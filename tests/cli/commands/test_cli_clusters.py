"""`plan clusters new`, `types` and `links`; descriptions and names wherever a cluster is asked for."""

import json

import pytest

from stagecut.models import build_cluster
from stagecut.models.clusters.catalogue import CATALOGUE
from stagecut.planner.io.files.cluster import read_cluster

TEXT = "2x4 rtx-4090 pcie4x16 eth25 + 8 a100-80 nvlink3 ib-hdr200"


def test_new_cluster_is_written_and_read_as_described(plan, tmp_path):
    path = tmp_path / "lab.yaml"
    done = plan("clusters", "new", TEXT, "-o", path)
    assert (done.exit_code, done.stdout, done.stderr) == (0, "", f"wrote {path}\n")
    assert read_cluster(path, CATALOGUE) == build_cluster(TEXT)


def test_words_need_no_quotes(plan):
    assert plan("clusters", "new", *TEXT.split()).stdout == plan("clusters", "new", TEXT).stdout


def test_new_cluster_is_named(plan_json):
    assert plan_json("clusters", "new", "4 t4", "--name", "lab")["name"] == "lab"


@pytest.mark.parametrize("arguments", [("--json",), ("-o", "lab.json")])
def test_json_states_every_figure(plan, tmp_path, monkeypatch, arguments):
    """So it can be read without the catalogue."""
    monkeypatch.chdir(tmp_path)
    done = plan("clusters", "new", TEXT, *arguments)
    path = tmp_path / "lab.json"
    if done.stdout:
        path.write_text(done.stdout)
    assert read_cluster(path) == build_cluster(TEXT)


def test_new_cluster_overwrites_only_if_told_so(plan, tmp_path):
    path = tmp_path / "lab.yaml"
    path.write_text("mine")
    done = plan("clusters", "new", "4 t4", "-o", path)
    assert done.exit_code == 3
    assert "use --force to overwrite it" in done.stderr
    assert path.read_text() == "mine"
    assert plan("clusters", "new", "4 t4", "-o", path, "--force", "--quiet").exit_code == 0
    assert read_cluster(path, CATALOGUE).num_devices == 4


def test_unknown_names_get_the_nearest_and_nothing_is_written(plan, tmp_path):
    done = plan("clusters", "new", "4 rtx4090 + 8 a100-80 nvlnk3", "-o", tmp_path / "lab.yaml")
    assert done.exit_code == 3
    assert "did you mean 'rtx-4090'?" in done.stderr
    assert "did you mean 'nvlink3'?" in done.stderr
    assert not list(tmp_path.iterdir())


def test_no_description_is_wrong_usage(plan):
    assert plan("clusters", "new").exit_code == 2


def test_device_types_are_listed(plan, plan_json):
    listed = plan_json("clusters", "types")["device_types"]
    assert [kind["name"] for kind in listed] == [kind.name for kind in CATALOGUE.device_types]
    (found,) = (kind for kind in listed if kind["name"] == "a100-80")
    assert (found["peak_flops_per_s"]["bf16"], found["usual_fabric"]) == (312e12, "nvlink3")
    assert all(kind.name in plan("clusters", "types").stdout for kind in CATALOGUE.device_types[::10])


def test_links_are_listed(plan, plan_json):
    listed = {link["name"]: link for link in plan_json("clusters", "links")["links"]}
    assert tuple(listed) == tuple(link.name for link in CATALOGUE.links)
    assert listed["pcie4x16"]["shared"] is True
    assert listed["eth25"]["bandwidth_bytes_per_s"] == 25e9 / 8
    assert listed["switch"]["bandwidth_bytes_per_s"] == "unlimited"
    assert "ib-ndr400" in plan("clusters", "links").stdout


def test_described_cluster_is_shown(plan):
    done = plan("clusters", "show", TEXT)
    assert done.exit_code == 0
    assert "NVIDIA A100 data sheet" in done.stdout


def test_plan_for_a_described_cluster_holds_all_of_it(plan, tiny_folder, tmp_path):
    """The plan is checked without the catalogue."""
    text, path = "1x2 rtx-4090 pcie4x16 eth25", tmp_path / "plan.json"
    arguments = ("--model", "vgg16", "--cluster", text, "--global-batch", 8, "--pipelines", 1, "--solver", "even")
    assert plan("solve", *arguments, "--quiet", "-o", path).exit_code == 0
    cluster = json.loads(path.read_text())["inputs"]["cluster"]
    assert cluster["servers"][0]["nic"]["bandwidth_bytes_per_s"] == 25e9 / 8
    assert cluster["device_types"][0]["source"].startswith("NVIDIA Ada")
    assert plan("check", path).exit_code == 0


def test_names_of_the_catalogue_are_read_from_cluster_files(plan, tmp_path):
    path = tmp_path / "lab.yaml"
    path.write_text("schema: 1\nname: lab\nservers: [{name: s, nic: eth10, islands: [{device_type: l4, count: 2}]}]\n")
    done = plan("clusters", "show", path)
    assert done.exit_code == 0
    assert "NVIDIA L4 data sheet" in done.stdout
    path.write_text(path.read_text().replace("l4", "l44"))
    done = plan("clusters", "show", path)
    assert done.exit_code == 3
    assert "nor of `plan clusters types`, did you mean" in done.stderr


def test_names_are_refused_in_plan_files(plan, changed_plan):
    def name_a_link(tree):
        tree["inputs"]["cluster"]["servers"][0]["nic"] = "eth25"

    done = plan("check", changed_plan(name_a_link))
    assert done.exit_code == 3
    assert "'eth25' is not known here, where links are given by their figures" in done.stderr
