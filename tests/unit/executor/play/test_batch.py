"""A message for what is not a batch: what it is, and what to give instead."""

from collections import UserDict

import numpy as np
import pytest
import torch

from stagecut.executor.play.batch import check_batch
from stagecut.planner.core.messages.errors import BadInputError

SAMPLES = 4
ONES = torch.ones(SAMPLES, 2)


def refusal(batch):
    with pytest.raises(BadInputError) as caught:
        check_batch(batch, SAMPLES)
    return str(caught.value)


@pytest.mark.parametrize("batch", [(ONES, ONES), [ONES, ONES], ((ONES, ONES), ONES), (ONES, [ONES, ONES]), (ONES, ())])
def test_pairs_of_tensors_and_of_tuples_are_accepted(batch):
    check_batch(batch, SAMPLES)


@pytest.mark.parametrize("kind", [dict, UserDict])
def test_dictionary_is_called_one_with_the_pair_that_is_meant(kind):
    """Tokenisers and data sets of Hugging Face give dictionaries."""
    assert refusal(kind(input_ids=ONES, attention_mask=ONES, labels=ONES)) == (
        "batch: must be a pair (inputs, targets) of tensors or of tuples of tensors, "
        f"got a {kind.__name__} with the keys 'input_ids', 'attention_mask', 'labels'; "
        "pass, for example, (batch['input_ids'], batch['labels'])"
    )


def test_dictionary_of_two_is_no_pair():
    """Unpacking such a dictionary would give its two keys."""
    assert "got a dict with the keys 'x', 'y'; pass, for example, (batch['x'], batch['y'])" in refusal(
        {"x": ONES, "y": ONES}
    )
    assert "(batch['input_ids'], batch['labels'])" in refusal({"labels": ONES, "input_ids": ONES})
    assert "got a dict with the keys 'x'; pass a tuple of its tensors" in refusal({"x": ONES})


@pytest.mark.parametrize(
    ("batch", "got"),
    [
        (ONES, "got a tensor of shape [4, 2]"),
        (torch.ones(2, SAMPLES), "got a tensor of shape [2, 4]"),
        ((ONES, ONES, ONES), "got a tuple of 3"),
        ((ONES,), "got a tuple of 1"),
        ({}, "got a dict"),
        (None, "got None"),
        ("text", "got a str"),
        (iter([ONES, ONES]), "got a list_iterator"),
        (({"input_ids": ONES}, ONES), "inputs must be a tensor or a tuple of tensors, got a dict with the keys"),
        ((ONES, {"labels": ONES}), "targets must be a tensor or a tuple of tensors, got a dict with the keys"),
        (([ONES, None], ONES), "inputs must be a tensor or a tuple of tensors"),
        ((ONES, None), "targets must be a tensor or a tuple of tensors, got None"),
        (((), ONES), "inputs must be a tensor or a tuple of tensors, got a tuple of 0"),
        ((ONES, 3), "targets must be a tensor or a tuple of tensors, got an int"),
        ((ONES.numpy(), ONES), "got a ndarray; convert it with torch.as_tensor"),
        ((ONES, torch.tensor(2.0)), "batch: targets must have samples in dimension 0, got a tensor of shape []"),
        ((ONES, torch.ones(SAMPLES + 1)), "batch: samples of the targets must be 4, got 5"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_everything_else_is_called_by_what_it_is(batch, got):
    assert got in refusal(batch)


def test_list_of_numbers_is_not_a_tensor():
    assert "inputs must be a tensor or a tuple of tensors, got an int" in refusal(([1, 2, 3, 4], np.ones(4)))
