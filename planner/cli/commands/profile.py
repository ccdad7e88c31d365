"""`plan profile`: measure a model, or devices and links."""

import math
import os
from typing import TYPE_CHECKING

import click

from stagecut.planner.cli.options.outputs import MeasurementFile
from stagecut.planner.cli.options.profile import DeviceChoices, ModelChoices
from stagecut.planner.cli.parameters.catalogue import load_profile
from stagecut.planner.cli.parameters.groups import example, general_options, option_group
from stagecut.planner.cli.parameters.types import COUNT, memory_size, plain_name
from stagecut.planner.cli.process.cancellable import unwound
from stagecut.planner.cli.process.writing import print_json
from stagecut.planner.cli.views.profile import links_answer, model_answer, print_links, print_model
from stagecut.planner.core.messages.errors import BadInputError
from stagecut.planner.core.model import ModelProfile
from stagecut.planner.core.precision import Precision
from stagecut.planner.io.files import cluster as cluster_files
from stagecut.planner.io.files import profile as profile_files

if TYPE_CHECKING:
    from stagecut.executor.measure.profile_model import ProfileChoices

SMALLEST_MESSAGE_BYTES, LARGEST_MESSAGE_BYTES = 1024, 2**32
MATRIX_SIDE = {"cpu": 1024, "cuda": 8192}
"""Side of the square matrices whose product gives the peak rate."""


@click.group(
    "profile", epilog=example("plan profile model gpt-mini -o profile.json", "plan profile links -o cluster.json")
)
@general_options
def command(*, as_json: bool) -> None:
    """Measure a model, or devices and links, for `plan solve`.

    Needs torch. Leave the machine otherwise idle: disturbed measurements are repeated, or marked as contaminated.
    """


@command.command(
    "model", epilog=example("plan profile model gpt-mini --processes 2 --micro-batch 1,2,4 -o profile.json")
)
@click.argument("name", required=False)
@option_group(ModelChoices, argument="choices")
@option_group(DeviceChoices, argument="devices", processes=1)
@option_group(MeasurementFile, argument="outputs")
@general_options
def model(
    name: str | None, choices: ModelChoices, devices: DeviceChoices, outputs: MeasurementFile, *, as_json: bool
) -> None:
    """Measure every layer of a model into a profile.

    Measures time and memory. NAME is a model of the catalogue; use --layers instead for layers of your own.
    """
    if (name is None) == (choices.layers is None):
        raise click.UsageError("give either the NAME of a catalogue model or --layers")
    outputs.check()
    what = _profile_choices(name, choices, devices, tell=not outputs.quiet)
    from stagecut.executor.measure.measured_profile import measured_profile, with_times
    from stagecut.executor.measure.profile_model import profile_model

    others = _profile_to_add_to(choices, what)
    with unwound():
        measurement = profile_model(what)
    if others is None:
        analytic = what.source.analytic_profile(what.precision)
        profile = measured_profile(measurement, precision=what.precision, analytic=analytic)
    else:
        profile = with_times(others, measurement)
    outputs.write_tree(profile_files.to_tree(profile), profile_files.profile_of)
    if measurement.left_out and not outputs.quiet:
        sizes = ", ".join(map(str, measurement.left_out))
        click.echo(f"note: --time-limit left out micro-batches of {sizes}", err=True)
    if as_json:
        print_json(model_answer(measurement, what, profile_name=profile.name))
    else:
        print_model(measurement, what)


@command.command("links", epilog=example("plan profile links --processes 2 -o cluster.json"))
@click.option(
    "--largest",
    type=memory_size,
    default="64MiB",
    show_default=True,
    metavar="SIZE",
    help="Size of the largest message, such as 64MiB or 64MB.",
)
@click.option(
    "--params",
    type=COUNT,
    default=10_000_000,
    show_default=True,
    metavar="N",
    help="Parameters in the optimizer step from which memory bandwidth is derived.",
)
@click.option(
    "--name", type=plain_name, metavar="NAME", default="measured", show_default=True, help="Name of the cluster."
)
@option_group(DeviceChoices, argument="devices", processes=2)
@option_group(MeasurementFile, argument="outputs")
@general_options
def links(
    largest: float | None, params: int, name: str, devices: DeviceChoices, outputs: MeasurementFile, *, as_json: bool
) -> None:
    """Measure devices and links into a cluster file.

    Measures links between processes of this machine or, started by torchrun, between all of its ranks.
    """
    if largest is None or not SMALLEST_MESSAGE_BYTES < largest <= LARGEST_MESSAGE_BYTES:
        got = "none" if largest is None else f"{largest:g} B"
        raise BadInputError(f"--largest: must be above {SMALLEST_MESSAGE_BYTES} B and at most 4GiB, got {got}")
    if os.environ.get("RANK", "0") == "0":  # other hosts need not have the folder
        outputs.check()
    device, threads = devices.resolved()
    from stagecut.executor.measure.curves import message_sizes
    from stagecut.executor.measure.measured_cluster import measured_cluster
    from stagecut.executor.measure.profile_links import LinkChoices, profile_links

    what = LinkChoices(
        device=device,
        device_type=devices.device_type,
        processes=devices.processes,
        threads=threads,
        sizes=message_sizes(SMALLEST_MESSAGE_BYTES, int(largest) // 4 * 4),
        repetitions=devices.repetitions,
        num_params=params,
        matrix_side=MATRIX_SIDE[device],
    )
    with unwound():
        found = profile_links(what)
    if found is None:  # not the first rank of torchrun
        return
    cluster = measured_cluster(found, what, name=name)
    outputs.write_tree(cluster_files.to_tree(cluster), cluster_files.cluster_of)
    if as_json:
        print_json(links_answer(found, cluster))
    else:
        print_links(found, cluster)


def _profile_choices(
    name: str | None, choices: ModelChoices, devices: DeviceChoices, *, tell: bool
) -> "ProfileChoices":
    device, threads = devices.resolved()
    from stagecut.executor.measure.chain_source import ChainSource
    from stagecut.executor.measure.profile_model import ProfileChoices

    return ProfileChoices(
        source=ChainSource(name=name, layers=choices.layers, sequence_length=choices.sequence_length),
        sample_shape=choices.sample_shape,
        micro_batches=choices.micro_batch,
        layers=choices.layer_range,
        precision=choices.precision or (Precision.FP32 if device == "cpu" else Precision.BF16),
        device=device,
        device_type=devices.device_type,
        processes=devices.processes,
        threads=threads,
        in_flight=choices.in_flight,
        repetitions=devices.repetitions,
        warmup=choices.warmup,
        time_limit_s=math.inf if choices.time_limit is None else choices.time_limit,
        tell=tell,
    )


def _profile_to_add_to(choices: ModelChoices, what: "ProfileChoices") -> ModelProfile | None:
    """The profile of --add-to, if there is one; checks the layers first."""
    from stagecut.executor.measure.measured_profile import check_same_layers
    from stagecut.executor.measure.profile_model import check_choices

    names = [layer.name for layer in check_choices(what).layers]
    if choices.add_to is None:
        return None
    profile = load_profile(choices.add_to, sequence_length=choices.sequence_length)
    check_same_layers(profile, names, precision=what.precision)
    return profile
