"""Options of training that problems and layouts share."""

from typing import Any

import click

from stagecut.planner.cli.parameters.groups import member_option, option
from stagecut.planner.cli.parameters.types import COUNT
from stagecut.planner.core.precision import Precision

OPTIMIZERS = ("adamw", "sgd")


def precision_option() -> Any:
    """Declare the field of the number format."""
    return member_option(
        "--precision", members=Precision, help="Number format of training.  [default: fp16, or the file's]"
    )


def optimizer_option() -> Any:
    """Declare the field of the optimizer's name."""
    return option(
        "--optimizer",
        type=click.Choice(OPTIMIZERS),
        help="Optimizer, which determines the bytes per parameter.  [default: adamw]",
    )


def sequence_length_option() -> Any:
    """Declare the field of the tokens per sample."""
    return option("--sequence-length", type=COUNT, metavar="TOKENS", help="Tokens per sample.  [default: the model's]")
