"""What is ignored is said, and what times rest on."""

import pytest


@pytest.fixture
def renamed(tiny, tiny_folder, tmp_path):
    """The tiny problem, its profile changed by replacing a text; slow devices are T4, fast ones V100."""

    def arguments(old, new):
        path = tmp_path / "profile.yaml"
        path.write_text((tiny_folder / "profile.yaml").read_text().replace(old, new))
        with_flops = path.read_text().replace("    params_bytes", "    forward_flops: 1e9\n    params_bytes")
        path.write_text(with_flops)
        return [path if str(each).endswith("profile.yaml") else each for each in tiny]

    return arguments


def test_misspelt_device_type_is_named_with_the_nearest(plan, renamed):
    done = plan("solve", *renamed("V100", "V-100"), "--solver", "greedy")
    assert "note: profile: times on 'V-100' are not used (6 layers)" in done.stderr
    assert "did you mean 'V100'?" in done.stderr
    assert "NO TIMES ON 'V100'" in done.stderr
    assert done.stdout.rstrip().endswith("layer times measured on T4, estimated on V100")


def test_notes_and_basis_are_in_the_json_even_if_quiet(plan, plan_json, renamed, tiny):
    answer = plan_json("solve", *renamed("V100", "V-100"), "--solver", "greedy", "--quiet")
    assert answer["times_rest_on"] == "both"
    assert len(answer["notes"]) == 2
    assert plan_json("solve", *tiny, "--solver", "greedy", "--quiet")["times_rest_on"] == "measured"


def test_options_that_no_solver_uses_are_named(plan, tiny):
    done = plan("solve", *tiny, "--solver", "greedy", "--gap", "0.1", "--seed", "3")
    assert "note: '--gap', '--seed': no effect with solver greedy" in done.stderr
    assert "--seed" not in plan("solve", *tiny, "--solver", "milp", "--seed", "3").stderr


def test_overridden_entries_of_a_job_file_are_named(plan, tiny):
    done = plan("solve", *tiny, "--solver", "greedy", "--global-batch", "64")
    assert "note: job file: overridden by '--global-batch'" in done.stderr


def test_what_divides_nothing_is_named(plan, tiny):
    done = plan("solve", *tiny[:-2], "--solver", "greedy", "--pipelines", "1,3", "--micro-batch", "1,3")
    assert "job: micro-batch 3 has no effect" in done.stderr
    assert "job: pipelines 3 has no effect" in done.stderr


def test_milliseconds_taken_for_seconds_are_noted_and_mended(plan, plan_json, renamed, tmp_path):
    """Layer times as if written in ms: 1000 times as long."""
    arguments = renamed("0.0", "")  # 0.010 s becomes 10
    done = plan("solve", *arguments, "--solver", "greedy")
    assert "if the profile's times are in milliseconds: plan convert PROFILE --time-unit ms" in done.stderr
    profile, fixed = arguments[1], tmp_path / "fixed.json"
    before = plan_json("convert", profile, "-o", tmp_path / "same.json")
    after = plan_json("convert", profile, "--time-unit", "ms", "-o", fixed)
    assert after["device_types"][0]["forward_s"] == pytest.approx(before["device_types"][0]["forward_s"] / 1000)
    assert any("--time-unit ms" in note for note in before["notes"])
