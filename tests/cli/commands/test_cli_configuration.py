"""Models from configuration files of transformers."""

import json

import pytest

KEYS = {
    "model_type": "qwen3",
    "hidden_size": 256,
    "intermediate_size": 512,
    "num_hidden_layers": 2,
    "num_attention_heads": 8,
    "num_key_value_heads": 4,
    "vocab_size": 1024,
    "max_position_embeddings": 512,
}


@pytest.fixture
def folder(tmp_path):
    own = tmp_path / "Mine-2B"
    own.mkdir()
    (own / "config.json").write_text(json.dumps(KEYS))
    return own


@pytest.mark.parametrize("options", [(), ("--sharding", "auto")])
def test_a_folder_with_a_configuration_is_planned_and_the_plan_checked(plan, folder, tmp_path, options):
    out = str(tmp_path / "plan.json")
    common = ("--cluster", "mixed-server-8", "--global-batch", "4", "--micro-batch", "2", *options)
    solved = plan("solve", "--model", str(folder), *common, "-o", out)
    assert solved.exit_code == 0, solved.stderr
    assert f"note: {folder}: 512 tokens per sample; --sequence-length sets another number" in solved.stderr
    assert plan("check", out).exit_code == 0


def test_a_configuration_is_shown_like_a_model_of_the_catalogue(plan, folder):
    shown = plan("models", "show", str(folder / "config.json"), "--sequence-length", "64", "--json")
    profile = json.loads(shown.stdout)
    assert (profile["name"], profile["sequence_length"], len(profile["layers"])) == ("Mine-2B", 64, 6)
    assert shown.stderr == ""


def test_an_unknown_type_is_told_once_with_the_way_out(plan, folder):
    (folder / "config.json").write_text(json.dumps({**KEYS, "model_type": "mamba"}))
    told = plan("solve", "--model", str(folder), "--cluster", "mixed-server-8", "--global-batch", "4")
    assert told.exit_code == 3
    assert told.stderr.count("model_type 'mamba'") == 1
    assert "plan profile model --layers" in told.stderr


def test_a_folder_without_a_configuration_is_refused(plan, tmp_path):
    told = plan("models", "show", str(tmp_path))
    assert told.exit_code == 3
    assert "is a folder without config.json" in told.stderr
