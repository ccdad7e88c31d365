"""Checkpoints of virtual workers that train through waves, in the form of all others.

The weights are those of the parameter servers, or else of worker 0, with its buffers and its optimizer's states, under
global names: any plan for the same model can begin with them, of virtual workers or of a pipeline, as plans of virtual
workers can with those of pipelines. Beside them lies the whole state of each rank, clocks and versions included, with
which the same plan goes on as if it had never stopped. A wave counts as a step.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, cast

import torch
import torch.distributed as dist
from torch import Tensor
from torch.distributed.checkpoint.metadata import Metadata, TensorStorageMetadata

from stagecut.executor.checkpoint.checksums import FileSum
from stagecut.executor.checkpoint.collective import (
    check_files,
    chosen,
    finish,
    gathered,
    merged,
    on_first_rank,
    whole_or_not_at_all,
)
from stagecut.executor.checkpoint.contents import (
    MODEL,
    OPTIMIZER,
    Values,
    found_states,
    install_settings,
    settings_of,
)
from stagecut.executor.checkpoint.folder import partial_place_of, place_of, prepare
from stagecut.executor.checkpoint.manifest import Manifest
from stagecut.executor.checkpoint.store import (
    check_values,
    disk_errors,
    read_metadata,
    read_tensors,
    read_values,
    write_tensors,
    write_values,
)
from stagecut.executor.transport.distributed import DistributedTransport
from stagecut.executor.transport.interface import Transport
from stagecut.executor.transport.threads import Hub
from stagecut.executor.waves.loading import WaveRank
from stagecut.executor.waves.setting.layout import WaveLayout, WaveRole
from stagecut.executor.waves.stage_worker import StageWorker
from stagecut.planner.core.messages.checks import require_count
from stagecut.planner.core.messages.errors import BadInputError, OutputError
from stagecut.planner.io.documents.canonical import sha256_of
from stagecut.planner.io.documents.records import tree_of
from stagecut.planner.io.files.plan_file import installed_versions


def save_waves(rank: WaveRank, folder: str | Path, *, extra: Mapping[str, Any] | None = None, keep: int = 2) -> Path:
    """Write the weights and the state of all ranks, between two calls of `train`; a collective.

    Parameters and errors are those of :func:`stagecut.executor.checkpoint.save_restore.save`.

    Returns
    -------
    Path
        Path of the checkpoint: `folder/step-000123` after 123 waves.
    """
    require_count("checkpoint", "keep", keep)
    check_values(extra or {}, "extra")
    folder, ranks = Path(folder), _Ranks.of(rank)
    own, state = _Own(rank), rank.state()
    check_values(state, "the state of a rank")
    manifest = _manifest(rank, own)
    place, partial = place_of(folder, manifest.num_steps), partial_place_of(folder, manifest.num_steps)
    every = gathered({"states": own.plain_states, "settings": own.settings})
    values = {**{key: merged(each[key] for each in every) for key in every[0]}, "extra": dict(extra or {})}
    with disk_errors(place, OutputError, "cannot be written", advice="earlier checkpoints are intact"):
        on_first_rank(ranks, folder, lambda: prepare(folder))
        with whole_or_not_at_all(ranks, partial):
            files = write_tensors(own.tensors, partial)
            name = _state_name(rank.role.rank)
            files[name] = write_values(state, partial, name=name)
            summed = replace(manifest, files=merged(gathered(files, classes=(FileSum,))))
            on_first_rank(ranks, partial, lambda: finish(partial, place, values, summed, keep=keep))
    return place


def restore_waves(rank: WaveRank, folder: str | Path) -> dict[str, Any]:
    """Go on from a checkpoint; a collective.

    One of the same plan of virtual workers is continued exactly. Of any other plan weights, optimizer states and
    settings are taken by global name: all workers begin with them, at the first wave.

    Parameters, result and errors are those of :func:`stagecut.executor.checkpoint.save_restore.restore`.
    """
    ranks, own = _Ranks.of(rank), _Own(rank)
    place = Path(cast(str, ranks.transport.broadcast(str(chosen(Path(folder))), 0)))
    manifest, here = Manifest.read(place), _manifest(rank, own)
    manifest.check_fits(here, place)
    with disk_errors(place, BadInputError, "cannot be read", advice="restore another checkpoint"):
        check_files(ranks, place, manifest)
        values, metadata = read_values(place), read_metadata(place)
        if manifest.waves_of == here.waves_of:
            rank.restore(read_values(place, name=_state_name(rank.role.rank)))
        else:
            own.take(place, metadata, values["states"])
            if isinstance(rank.engine, StageWorker):
                install_settings(rank.engine.optimizer, own.names_of_parameters, values["settings"])
    return cast(dict[str, Any], values["extra"])


@dataclass(frozen=True, kw_only=True)
class _Ranks:
    """How a rank reaches the others."""

    role: WaveRole
    layout: WaveLayout
    transport: Transport

    @classmethod
    def of(cls, rank: WaveRank) -> "_Ranks":
        several = dist.is_initialized()
        transport = DistributedTransport(tagged=True, groups=(), pairs=()) if several else Hub(1).transport(0)
        return cls(role=rank.role, layout=rank.execution.layout, transport=transport)


class _Own:
    """What one rank adds to a checkpoint, and takes from one, under the names that all plans use.

    Tied weights have the name of their owner: the copies are equal, and so are their optimizer's states.
    """

    def __init__(self, rank: WaveRank) -> None:
        self._rank, self._engine = rank, rank.engine
        chain = rank.execution.chain
        self._owners = {
            f"{chain.layers[tie.copy[0]].name}.{tie.copy[1]}": f"{chain.layers[tie.owner[0]].name}.{tie.owner[1]}"
            for tie in chain.ties
        }
        """The owner's name of each copy."""

    @property
    def tensors(self) -> dict[str, Tensor]:
        """The tensors that this rank writes: a server its weights; worker 0 the others, and optimizer states."""
        weights = self._rank.own_weights()
        tensors = {f"{MODEL}{name}": tensor for name, tensor in weights.items() if name not in self._owners}
        if self._rank.execution.has_global_weights and self._rank.role.worker is not None:
            served = set(self._rank.engine.trained_weights())
            tensors = {name: own for name, own in tensors.items() if name.removeprefix(MODEL) not in served}
        states = self._states.items()
        return tensors | {
            f"{OPTIMIZER}{name}.{key}": value
            for name, own in states
            for key, value in own.items()
            if isinstance(value, Tensor)
        }

    @property
    def plain_states(self) -> dict[str, dict[str, Any]]:
        """The optimizer's states other than tensors."""
        plain = {
            name: {key: value for key, value in own.items() if not isinstance(value, Tensor)}
            for name, own in self._states.items()
        }
        return {name: own for name, own in plain.items() if own}

    @property
    def settings(self) -> dict[str, dict[str, Any]]:
        """Learning rate and so on of worker 0."""
        if not isinstance(self._engine, StageWorker) or self._rank.role.worker != 0:
            return {}
        master = self._engine.weights.master
        return settings_of(
            self._engine.optimizer, {own: name for name, own in master.items() if name not in self._owners}
        )

    @property
    def names_of_parameters(self) -> dict[Tensor, str]:
        """What each trained parameter of a stage is called."""
        assert isinstance(self._engine, StageWorker)
        return {own: self._owners.get(name, name) for name, own in self._engine.weights.master.items()}

    @property
    def shapes(self) -> dict[str, tuple[int, ...]]:
        """Of the parameters and buffers of worker 0."""
        if not isinstance(self._engine, StageWorker) or self._rank.role.worker != 0:
            return {}
        held = self._engine.held_weights()
        return {name: tuple(tensor.shape) for name, tensor in held.items() if name not in self._owners}

    def take(self, place: Path, metadata: Metadata, plain: Values) -> None:
        """Begin with weights and optimizer states by name."""
        held = {name: self._owners.get(name, name) for name in self._held_names()}
        found = found_states(metadata) if isinstance(self._engine, StageWorker) else {}
        saved = metadata.state_dict_metadata
        kinds = {f"{MODEL}{name}": cast(TensorStorageMetadata, saved[f"{MODEL}{name}"]) for name in held.values()}
        kinds |= {
            f"{OPTIMIZER}{name}.{key}": kind for name in held.values() for key, kind in found.get(name, {}).items()
        }
        tensors = {name: torch.empty(kind.size, dtype=kind.properties.dtype) for name, kind in kinds.items()}
        read_tensors(tensors, place, metadata)
        states = {
            name: {key: tensors[f"{OPTIMIZER}{own}.{key}"] for key in found.get(own, {})} | {**plain.get(own, {})}
            for name, own in held.items()
        }
        weights = {name: tensors[f"{MODEL}{own}"] for name, own in held.items()}
        self._rank.start_from(weights, {name: state for name, state in states.items() if state})

    def _held_names(self) -> tuple[str, ...]:
        if isinstance(self._engine, StageWorker):
            return tuple(self._engine.held_weights())
        return self._engine.layout.names

    @property
    def _states(self) -> dict[str, dict[str, Any]]:
        states = self._rank.optimizer_states() if self._rank.role.worker == 0 else {}
        return {name: own for name, own in states.items() if name not in self._owners}


def _manifest(rank: WaveRank, own: _Own) -> Manifest:
    engine, execution = rank.engine, rank.execution
    optimizer = type(engine.optimizer).__name__ if isinstance(engine, StageWorker) else ""
    done = engine.num_waves if isinstance(engine, StageWorker) else 0
    every = gathered({"shapes": own.shapes, "optimizer": optimizer, "num_waves": done})
    names = [layer.name for layer in execution.chain.layers]
    shapes = cast(dict[str, tuple[int, ...]], merged(cast(dict[str, Any], each["shapes"]) for each in every))
    return Manifest(
        model=execution.chain.name,
        layers=tuple(names),
        shapes=shapes,
        optimizer=max(cast(str, each["optimizer"]) for each in every),
        num_steps=max(cast(int, each["num_waves"]) for each in every),
        plan_hash=None,
        versions={**installed_versions(), "torch": torch.__version__},
        waves_of=sha256_of({"plan": tree_of(execution.plan), "scheme": execution.scheme.name}),
    )


def _state_name(rank: int) -> str:
    """The file with the state of one rank."""
    return f"rank-{rank:06d}.pt"
