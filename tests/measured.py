"""A measured profile as the catalogue holds it, made by hand."""

from dataclasses import replace

from stagecut.models import build_model
from stagecut.planner.core.model import TimeTable
from stagecut.planner.core.precision import Precision
from stagecut.planner.io.documents.canonical import format_json
from stagecut.planner.io.files.profile import to_tree

NAME = "gpt2-345m@gpu-x"


def write_measured(folder):
    """Write it, in bf16: every layer takes 1 ms and 2 ms."""
    analytic = build_model("gpt2-345m", precision=Precision.BF16)
    times = TimeTable(device_type="gpu-x", samples=(1, 4), forward_s=(1e-3, 1e-3), backward_s=(2e-3, 2e-3))
    layers = tuple(replace(layer, times=(times,)) for layer in analytic.layers)
    model = replace(analytic, name=NAME, layers=layers)
    (folder / f"{NAME}.json").write_text(format_json(to_tree(model)))
    return model
