"""Tables of layer times, one file per kind of GPU, as written by Sailor's profiler.

    {"1": {"2": {"0": [0.001, 0.002, 0.003], "1": [...]}}}

gives, by micro-batch size in samples, tensor-parallel degree and index of the layer, the seconds of the forward,
the backward and the optimizer step. Source: the files in the repository of Strati et al., Sailor, SOSP 2025.
The step is ignored, since the cost model derives it from the weights. Weights, activations and messages come
from a profile of the same model, and count as zero without one.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from stagecut.planner.chains.coarsening import by_blocks
from stagecut.planner.core.messages.errors import BadInputError
from stagecut.planner.core.model import Layer, ModelProfile, TimeTable
from stagecut.planner.io.documents.complaints import Complaints
from stagecut.planner.io.documents.tree import Document, Node
from stagecut.planner.io.readers.conversion import Choices, Converted
from stagecut.planner.io.readers.foreign_fields import ForeignFields

FIGURES = ("forward", "backward")
NO_BYTES = (
    "the tables contain no bytes: weights, activations and messages count as 0; "
    "take them from a profile of the same model with --bytes-from"
)
Times = dict[int, dict[int, dict[int, tuple[float, float]]]]
"""Seconds of forward and backward by tensor-parallel degree, layer and micro-batch size."""


def read_layer_tables(
    documents: Sequence[Document], choices: Sequence[Choices], *, bytes_from: ModelProfile | None = None
) -> Converted:
    """Combine the tables of several kinds of GPUs into one profile.

    Parameters and errors are those of :func:`stagecut.planner.io.readers.formats.convert`; the layers or blocks of
    `bytes_from` are the layers of the tables.
    """
    read = [_read(document, chosen) for document, chosen in zip(documents, choices, strict=True)]
    return combined(
        [
            Table(file=document.complaints.file, device_type=chosen.device_type, times=times)
            for document, chosen, (times, _) in zip(documents, choices, read, strict=True)
        ],
        choices[0],
        bytes_from=bytes_from,
        notes=tuple(note for _, gaps in read for note in gaps),
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Table:
    """Times on one type of device."""

    file: str
    device_type: str
    times: Times

    @property
    def num_layers(self) -> int:
        """Layers of the model."""
        return 1 + max(max(by_layer) for by_layer in self.times.values())


def combined(
    tables: Sequence[Table], choices: Choices, *, bytes_from: ModelProfile | None, notes: tuple[str, ...] = ()
) -> Converted:
    """One profile of all tables that describe the same layers; notes say which are left out, and why."""
    count = _num_layers(tables, bytes_from)
    used = [table for table in tables if table.num_layers == count and 1 in table.times]
    left_out = tuple(_why_not(table, count) for table in tables if table not in used)
    if not used:
        raise BadInputError(*left_out)
    degrees = sorted({degree for table in used for degree in table.times})
    model, assumed = _layers(count, bytes_from, has_degrees=len(degrees) > 1)
    layers = (
        replace(layer, times=tuple(each for table in used for each in _times(table, index)))
        for index, layer in enumerate(model.layers)
    )
    profile = ModelProfile(
        name=choices.name,
        layers=tuple(layers),
        skip_edges=model.skip_edges,
        precision=model.precision if bytes_from is not None else choices.precision,
        sequence_length=model.sequence_length,
    )
    divided = tuple(note for table in used if (note := _divided(table, degrees)))
    return Converted(profile=profile, num_nodes=count, notes=(*assumed, *notes, *left_out, *divided))


def _num_layers(tables: Sequence[Table], bytes_from: ModelProfile | None) -> int:
    """That of the first table which the profile of bytes has too, or else of the first table."""
    counts = [table.num_layers for table in tables]
    if bytes_from is None:
        return counts[0]
    known = (bytes_from.num_layers, by_blocks(bytes_from).num_layers)
    return next((count for count in counts if count in known), counts[0])


def _why_not(table: Table, count: int) -> str:
    if table.num_layers != count:
        return f"{table.file}: left out: it has {table.num_layers} layers, not {count}"
    return f"{table.file}: left out: it has no times for a single device, only for {_listed(table.times)}"


def _divided(table: Table, degrees: Sequence[int]) -> str:
    missing = [degree for degree in degrees if degree not in table.times]
    if not missing:
        return ""
    rule = "those of a single device are divided, without collectives; exclude such stages with --tensor-parallel"
    return f"{table.device_type}: no times for {_listed(missing)} devices as on other types: {rule}"


def _listed(numbers: Iterable[int]) -> str:
    return ", ".join(map(str, sorted(numbers)))


def _layers(count: int, bytes_from: ModelProfile | None, *, has_degrees: bool) -> tuple[ModelProfile, tuple[str, ...]]:
    """Layers without times, and the assumptions about them."""
    shared = 0.0 if has_degrees else None
    note = ("collectives of tensor parallelism are part of the times",) if has_degrees else ()
    if bytes_from is None:
        layers = tuple(Layer(name=f"layer{index}", tensor_parallel_bytes=shared) for index in range(count))
        return ModelProfile(name="without bytes", layers=layers), (NO_BYTES, *note)
    for model in (bytes_from, by_blocks(bytes_from)):
        if model.num_layers == count:
            stripped = (replace(layer, times=(), tensor_parallel_bytes=shared) for layer in model.layers)
            return replace(model, layers=tuple(stripped)), note
    found = f"{bytes_from.num_layers} layers in {by_blocks(bytes_from).num_layers} blocks"
    raise BadInputError(f"--bytes-from {bytes_from.name}: has {found}, but the tables have {count} layers")


def _times(table: Table, layer: int) -> Iterator[TimeTable]:
    for degree, by_layer in sorted(table.times.items()):
        by_size = sorted(by_layer[layer].items())
        yield TimeTable(
            device_type=table.device_type,
            tensor_parallel=degree,
            samples=tuple(size for size, _ in by_size),
            forward_s=tuple(forward for _, (forward, _) in by_size),
            backward_s=tuple(backward for _, (_, backward) in by_size),
        )


def _read(document: Document, choices: Choices) -> tuple[Times, tuple[str, ...]]:
    """Times that are there for all layers, and notes on those left out."""
    complaints = document.complaints
    fields = ForeignFields(complaints)
    found: Times = {}
    for size, by_degree in _numbered(document.root, "a micro-batch size", 1, complaints):
        for degree, by_layer in _numbered(by_degree, "a tensor-parallel degree", 1, complaints):
            _read_layers(by_layer, found.setdefault(degree, {}), size, (fields, choices))
    complaints.checked(found)
    complete, notes = without_gaps(found, complaints.file)
    if not complete:
        complaints.add(document.root.line, (), "has no micro-batch size and degree with times for all layers")
    return complaints.checked(complete), notes


def _read_layers(
    by_layer: Node, found: dict[int, dict[int, tuple[float, float]]], size: int, reading: tuple[ForeignFields, Choices]
) -> None:
    fields, choices = reading
    for layer, figures in _numbered(by_layer, "the index of a layer", 0, fields.complaints):
        if not isinstance(figures.value, tuple) or len(figures.value) < len(FIGURES):
            rule = f"must be a list [{', '.join(FIGURES)}, ...], got {figures.shown}"
            fields.complaints.add(figures.line, figures.where, rule)
            continue
        forward, backward = (fields.amount(node) * choices.time_unit.seconds for node in figures.value[:2])
        found.setdefault(layer, {})[size] = (forward, backward)


def _numbered(entry: Node, what: str, least: int, complaints: Complaints) -> list[tuple[int, Node]]:
    """Values of a mapping whose keys are integers."""
    if not isinstance(entry.value, Mapping) or not entry.value:
        complaints.add(entry.line, entry.where, f"must map {what} to values, got {entry.shown}")
        return []
    numbered = []
    for key, node in entry.value.items():
        if key.isdecimal() and len(key) < 7 and int(key) >= least:
            numbered.append((int(key), node))
        else:
            complaints.add(node.line, node.where, f"the key must be {what}, got {key[:60]!r}")
    return numbered


def without_gaps(found: Times, file: str) -> tuple[Times, tuple[str, ...]]:
    """The sizes of each degree at which all layers have times, and a note on each of the others."""
    count = max((layer for by_layer in found.values() for layer in by_layer), default=-1) + 1
    complete: Times = {}
    notes = []
    for degree, by_layer in sorted(found.items()):
        for size in sorted({size for by_size in by_layer.values() for size in by_size}):
            missing = next((layer for layer in range(count) if size not in by_layer.get(layer, {})), None)
            if missing is not None:
                where = f"micro-batch size {size} on {degree} device{'s' if degree > 1 else ''}"
                notes.append(f"{file}: {where}: left out: no times for layer {missing} of 0 to {count - 1}")
                continue
            for layer in range(count):
                complete.setdefault(degree, {}).setdefault(layer, {})[size] = by_layer[layer][size]
    return complete, tuple(notes)
