"""Devices by name and number."""

import pytest
import torch

from stagecut.executor.machine.devices import numbered


@pytest.mark.parametrize(("given", "expected"), [("cuda", "cuda:3"), ("cuda:1", "cuda:1"), ("cpu", "cpu")])
def test_a_gpu_without_a_number_is_the_current_one(given, expected, monkeypatch):
    monkeypatch.setattr(torch.cuda, "current_device", lambda: 3)
    assert str(numbered(torch.device(given))) == expected
