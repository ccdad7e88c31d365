"""Files are only written if they can be read."""

from dataclasses import replace

import pytest

from stagecut.planner.core.messages.errors import OutputError
from stagecut.planner.core.model import Layer, ModelProfile, TimeTable
from stagecut.planner.io.documents.input_file import MAX_FILE_BYTES
from stagecut.planner.io.documents.tree import parse_document
from stagecut.planner.io.documents.write import readable_text
from stagecut.planner.io.files import profile

MODEL = ModelProfile(name="two", layers=(Layer(name="a"), Layer(name="b")))


def text_of(model):
    return readable_text(profile.to_tree(model), profile.profile_of, path="out.json")


def test_what_can_be_read_is_given_as_it_is():
    assert profile.profile_of(parse_document(text_of(MODEL), file="")) == MODEL


@pytest.mark.parametrize(
    ("model", "words"),
    [
        (replace(MODEL, name="x" * 101), "name: must be text of 1 to 100 printable characters"),
        (replace(MODEL, name="a\x1b"), "name: must be text"),
        (replace(MODEL, name="\ud800"), "JSON"),
        (replace(MODEL, layers=(Layer(name="a", params_bytes=1e31),)), "layers[0].params_bytes: must be a number"),
        (
            replace(
                MODEL,
                layers=(
                    Layer(name="a", times=(TimeTable(device_type="", samples=(1,), forward_s=(1,), backward_s=(1,)),)),
                ),
            ),
            "the key must be text of 1 to 100 printable characters",
        ),
        (
            replace(
                MODEL,
                layers=(
                    Layer(
                        name="a",
                        times=(TimeTable(device_type="g", samples=(10**9,), forward_s=(1,), backward_s=(1,)),),
                    ),
                ),
            ),
            "the key must be a micro-batch size from 1 to 999999999",
        ),
    ],
)
def test_what_could_not_be_read_is_refused_with_its_place(model, words):
    with pytest.raises(OutputError) as caught:
        text_of(model)
    assert all(line.startswith("out.json: not written, ") for line in caught.value.complaints)
    assert words in str(caught.value)


def test_files_too_large_to_be_read_are_refused():
    """A layer takes about 300 bytes."""
    many = tuple(Layer(name=f"layer{index}") for index in range(MAX_FILE_BYTES // 200))
    with pytest.raises(OutputError, match="larger than 16 MB"):
        text_of(replace(MODEL, layers=many))
