"""What `plan shard` divides when it is not given a choice graph."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import click

from stagecut.planner.cli.options.training import OPTIMIZERS
from stagecut.planner.cli.parameters.catalogue import (
    CLUSTER_HELP,
    catalogue_model,
    default_precision,
    is_profile,
    load_cluster,
    load_profile,
)
from stagecut.planner.cli.parameters.files import NameOrFile
from stagecut.planner.cli.parameters.groups import flags_given, member_option, option
from stagecut.planner.cli.parameters.types import COUNT, grid
from stagecut.planner.core.job import standard_optimizer
from stagecut.planner.core.model import ModelProfile
from stagecut.planner.core.precision import Precision
from stagecut.planner.io.documents.fields import MAX_COUNT
from stagecut.planner.sharding_search.method import Method

if TYPE_CHECKING:
    from stagecut.planner.sharding_search.case import ShardingCase

NEEDED = ("model", "cluster", "global_batch")


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelToShard:
    """A model, the devices that it is divided over, and how."""

    model: str | None = option(
        "--model", type=NameOrFile(), metavar="NAME|FILE", help="Divide this catalogue model or profile file."
    )
    cluster: str | None = option("--cluster", type=NameOrFile(), metavar="NAME|FILE|TEXT", help=CLUSTER_HELP)
    global_batch: int | None = option(
        "--global-batch", type=click.IntRange(1, MAX_COUNT), help="Samples per iteration."
    )
    micro_batch: int | None = option(
        "--micro-batch",
        type=COUNT,
        metavar="SAMPLES",
        help="Samples of a micro-batch of all devices.  [default: the global batch, halved until something fits]",
    )
    mesh: tuple[int, ...] | None = option(
        "--mesh",
        type=grid,
        metavar="2x4",
        help="Sizes of the axes of the mesh, those between hosts first.  [default: all meshes of up to three axes]",
    )
    server: str | None = option(
        "--server", metavar="NAME", help="Class of servers, if the cluster has several: their devices are used."
    )
    solver: Method | None = member_option(
        "--solver", members=Method, help="How to search, beside the schemes of experts.  [default: exact]"
    )
    untied: bool = option(
        "--untied", is_flag=True, help="Let equal layers be divided in different ways, which takes longer."
    )
    precision: Precision | None = member_option(
        "--precision", members=Precision, help="Number format of training.  [default: fp16, or the profile's]"
    )
    optimizer: str | None = option("--optimizer", type=click.Choice(OPTIMIZERS), help="Optimizer.  [default: adamw]")
    sequence_length: int | None = option(
        "--sequence-length", type=COUNT, metavar="TOKENS", help="Tokens per sample.  [default: the model's]"
    )

    def check(self) -> None:
        """Raise a usage error if something is missing."""
        missing = [name for name in NEEDED if getattr(self, name) is None]
        if missing:
            flags = ", ".join(f"'--{name.replace('_', '-')}'" for name in missing)
            raise click.UsageError(f"Missing option {flags}; or give a '--choice-graph'.")

    def refuse(self) -> None:
        """Raise a usage error if any of these options is given."""
        given = flags_given(self.__dataclass_fields__)
        if given:
            raise click.UsageError(f"{given} say how to divide a model, and '--choice-graph' has none.")

    @property
    def method(self) -> Method:
        """How to search."""
        return self.solver or Method.EXACT

    def cases(self) -> tuple[Callable[[int], "Sequence[ShardingCase]"], tuple[int, ...]]:
        """The cases for a micro-batch size, and the sizes to try.

        Raises a BadInputError with every fault of the first input that has any.
        """
        from stagecut.planner.sharding_search.cases import halved_sizes, sharding_cases

        self.check()
        assert self.cluster is not None
        assert self.global_batch is not None
        global_batch, model, cluster = self.global_batch, self._model(), load_cluster(self.cluster)
        optimizer = standard_optimizer(self.optimizer or OPTIMIZERS[0], model.precision)

        def cases_of(micro_batch: int) -> "Sequence[ShardingCase]":
            return sharding_cases(
                model,
                cluster,
                optimizer=optimizer,
                global_batch=global_batch,
                micro_batch=micro_batch,
                server=self.server,
                mesh=self.mesh,
            )

        sizes = tuple(halved_sizes(global_batch)) if self.micro_batch is None else (self.micro_batch,)
        cases_of(sizes[0])
        return cases_of, sizes

    def _model(self) -> ModelProfile:
        assert self.model is not None
        if not is_profile(self.model):
            precision = self.precision or default_precision(self.model)
            return catalogue_model(self.model, precision=precision, sequence_length=self.sequence_length)
        model = load_profile(self.model, sequence_length=self.sequence_length, to_plan=True)
        if self.precision not in (None, model.precision):
            raise click.UsageError(f"'--precision' is {self.precision}, but {self.model} states {model.precision}.")
        return model
