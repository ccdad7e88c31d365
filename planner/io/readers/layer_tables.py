"""Tables of layer times, one file per kind of GPU, as written by Sailor's profiler.

    {"1": {"2": {"0": [0.001, 0.002, 0.003], "1": [...]}}}

gives, by micro-batch size in samples, tensor-parallel degree and index of the layer, the seconds of the forward,
the backward and the optimizer step. Source: the files in the repository of Strati et al., Sailor, SOSP 2025.
The step is ignored, since the cost model derives it from the weights. Weights, activations and messages come
from a profile of the same model, and count as zero without one.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace

from stagecut.planner.chains.coarsening import by_blocks
from stagecut.planner.core.errors import BadInputError
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
    tables = [_read(document, chosen) for document, chosen in zip(documents, choices, strict=True)]
    counts = [max(found[1]) + 1 for found in tables]
    if len(set(counts)) > 1:
        stated = ", ".join(f"{d.complaints.file}: {count}" for d, count in zip(documents, counts, strict=True))
        raise BadInputError(f"the files must have the same number of layers, got {stated}")
    layers, notes = _layers(counts[0], bytes_from, has_degrees=any(len(found) > 1 for found in tables))
    profile = ModelProfile(
        name=choices[0].name,
        layers=tuple(
            replace(
                layer,
                times=tuple(
                    table
                    for found, chosen in zip(tables, choices, strict=True)
                    for table in _times(found, index, chosen)
                ),
            )
            for index, layer in enumerate(layers.layers)
        ),
        skip_edges=layers.skip_edges,
        precision=layers.precision if bytes_from is not None else choices[0].precision,
        sequence_length=layers.sequence_length,
    )
    return Converted(profile=profile, num_nodes=counts[0], notes=notes)


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


def _times(found: Times, layer: int, choices: Choices) -> Iterator[TimeTable]:
    for degree, by_layer in sorted(found.items()):
        by_size = sorted(by_layer[layer].items())
        yield TimeTable(
            device_type=choices.device_type,
            tensor_parallel=degree,
            samples=tuple(size for size, _ in by_size),
            forward_s=tuple(forward for _, (forward, _) in by_size),
            backward_s=tuple(backward for _, (_, backward) in by_size),
        )


def _read(document: Document, choices: Choices) -> Times:
    complaints = document.complaints
    fields = ForeignFields(complaints)
    found: Times = {}
    for size, by_degree in _numbered(document.root, "a micro-batch size", 1, complaints):
        for degree, by_layer in _numbered(by_degree, "a tensor-parallel degree", 1, complaints):
            _read_layers(by_layer, found.setdefault(degree, {}), size, (fields, choices))
    if 1 not in found:
        complaints.add(document.root.line, (), "has no times for a single device: the degree '1' is missing")
    _check_complete(found, document)
    return complaints.checked(found)


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


def _check_complete(found: Times, document: Document) -> None:
    """Check that every layer has times for every size and degree; report the first missing layer of each."""
    count = max((layer for by_layer in found.values() for layer in by_layer), default=-1) + 1
    for degree, by_layer in sorted(found.items()):
        sizes = sorted({size for by_size in by_layer.values() for size in by_size})
        for size in sizes:
            missing = next((layer for layer in range(count) if size not in by_layer.get(layer, {})), None)
            if missing is not None:
                where = (str(size), str(degree), str(missing))
                document.complaints.add(
                    document.root.line, where, f"is missing, although there are layers up to {count - 1}"
                )
