"""Measured profiles are part of the catalogue."""

import pytest

from stagecut.models import build_model, describe_model, measured_names, measured_profiles, tables
from stagecut.planner.core.messages.errors import BadInputError
from stagecut.planner.core.precision import Precision
from tests.measured import NAME, write_measured


@pytest.fixture
def measured(tmp_path, monkeypatch):
    """The one measured profile of the catalogue."""
    monkeypatch.setattr(measured_profiles, "FOLDER", tmp_path)
    return write_measured(tmp_path)


def test_a_measured_profile_is_found_by_its_name(measured):
    assert measured_names() == (NAME,)
    assert build_model(NAME) == measured
    assert build_model(NAME, precision=Precision.BF16, sequence_length=1024) == measured
    assert describe_model(NAME) == f"{describe_model('gpt2-345m')}; measured on gpu-x"


def test_a_measured_profile_keeps_what_it_was_measured_with(measured):
    with pytest.raises(BadInputError, match="precision must be bf16, or omitted, got 'fp16'"):
        build_model(NAME, precision=Precision.FP16)
    with pytest.raises(BadInputError, match="sequence_length must be 1024, or omitted, got 512"):
        build_model(NAME, sequence_length=512)


def test_an_unknown_measured_profile_is_answered_with_the_nearest_name(measured):
    with pytest.raises(BadInputError, match=f"did you mean '{NAME}'"):
        build_model("gpt2-345m@gpu-y")


def test_the_page_lists_measured_profiles(measured):
    assert f"| `{NAME}` | bf16 | 1024 | 1, 4 |" in tables.models_page()
