"""Metis's profile data: a file for each device type, tensor-parallel degree and batch size.

`DeviceType.A100_tp1_bs2.json` holds

    {"model": {"parameters": {"parameters_per_layer_bytes": [...]}},
     "execution_time": {"layer_compute_total_ms": [...]},
     "execution_memory": {"layer_memory_total_mb": [...]}}

with an entry for each layer; the times are forward and backward together. Source: Um et al., Metis, USENIX ATC 2024,
the guide to profile data in the README of the authors' repository and the samples beside it. Some samples list
one entry of memory too few; these are left out.
"""

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import PurePath

from stagecut.planner.core.model import ModelProfile
from stagecut.planner.io.documents.tree import Document
from stagecut.planner.io.readers.conversion import FORWARD_SHARE, Choices, Converted
from stagecut.planner.io.readers.foreign_fields import ForeignFields
from stagecut.planner.io.readers.layer_tables import NO_BYTES, Table, Times, combined, without_gaps

MEGABYTE = 2.0**20
THIRD = "times are forward and backward together; a third is taken as the forward"
NO_MESSAGES = "messages between layers count as 0; take them from a profile of the same model with --bytes-from"
_NAME = re.compile(r"(?:DeviceType\.)?(?P<device>.+)_tp(?P<degree>[1-9]\d{0,4})_bs(?P<size>[1-9]\d{0,5})")


@dataclass(frozen=True, slots=True, kw_only=True)
class Measurement:
    """What the name of a file says."""

    device_type: str
    degree: int
    samples: int


@dataclass(frozen=True, slots=True, kw_only=True)
class _Figures:
    file: str
    at: Measurement
    seconds: tuple[float, ...]
    params_bytes: tuple[float, ...]
    memory_bytes: tuple[float, ...]
    """Empty, like `params_bytes`, where the file has no such list, or one of another length."""


def measurement_of(path: str) -> Measurement | None:
    """Device type, degree and batch size from the name of a file; None if it does not follow Metis's pattern."""
    found = _NAME.fullmatch(PurePath(path).stem)
    if found is None:
        return None
    return Measurement(device_type=found["device"], degree=int(found["degree"]), samples=int(found["size"]))


def read_metis(
    documents: Sequence[Document], choices: Sequence[Choices], *, bytes_from: ModelProfile | None = None
) -> Converted:
    """Convert a set of files; parameters and errors are those of :func:`stagecut.planner.io.readers.formats.convert`.

    Without `bytes_from`, weights are those of the files, and saved bytes the growth of a layer's memory from the
    smallest to the largest batch on one device.
    """
    found = [_figures(document, chosen) for document, chosen in zip(documents, choices, strict=True)]
    tables: list[Table] = []
    gaps: list[str] = []
    for name in dict.fromkeys(figures.at.device_type for figures in found):
        own = [figures for figures in found if figures.at.device_type == name]
        times, notes = without_gaps(_times(own), own[0].file)
        tables.append(Table(file=own[0].file, device_type=name, times=times))
        gaps += notes
    converted = combined(tables, choices[0], bytes_from=bytes_from, notes=(THIRD, *gaps))
    return converted if bytes_from is not None else _with_bytes(converted, found)


def _figures(document: Document, choices: Choices) -> _Figures:
    fields, complaints, root = ForeignFields(document.complaints), document.complaints, document.root
    stated = measurement_of(complaints.file)
    if stated is None:
        rule = "the name must end in _tpN_bsN.json, for N devices and samples, as in DeviceType.A100_tp1_bs2.json"
        complaints.add(root.line, (), rule)
    seconds = tuple(value * choices.time_unit.seconds for value in _amounts(document, fields, _TIMES))
    if not seconds:
        complaints.add(root.line, _TIMES, "is missing, must be a list with a number for each layer")
    listed = [tuple(_amounts(document, fields, keys)) for keys in (_PARAMS, _MEMORY)]
    params_bytes, memory = (each if len(each) == len(seconds) else () for each in listed)
    figures = _Figures(
        file=complaints.file,
        at=replace(stated or Measurement(device_type="", degree=1, samples=1), device_type=choices.device_type),
        seconds=seconds,
        params_bytes=params_bytes,
        memory_bytes=tuple(value * MEGABYTE for value in memory),
    )
    return complaints.checked(figures)


_TIMES = ("execution_time", "layer_compute_total_ms")
_PARAMS = ("model", "parameters", "parameters_per_layer_bytes")
_MEMORY = ("execution_memory", "layer_memory_total_mb")


def _amounts(document: Document, fields: ForeignFields, keys: tuple[str, ...]) -> Iterator[float]:
    """The numbers of a list below these keys; none where it is missing."""
    node = document.root
    for key in keys:
        below = node.at(key)
        if below is None:
            return
        node = below
    if not isinstance(node.value, tuple):
        fields.complaints.add(node.line, node.where, f"must be a list, got {node.shown}")
        return
    yield from map(fields.amount, node.value)


def _times(files: Sequence[_Figures]) -> Times:
    found: Times = {}
    for figures in files:
        for layer, seconds in enumerate(figures.seconds):
            forward_s = seconds * FORWARD_SHARE
            by_layer = found.setdefault(figures.at.degree, {})
            by_layer.setdefault(layer, {})[figures.at.samples] = (forward_s, seconds - forward_s)
    return found


def _with_bytes(converted: Converted, files: Sequence[_Figures]) -> Converted:
    count = converted.profile.num_layers
    known = next((each.params_bytes for each in files if len(each.params_bytes) == count), None)
    if known is None:
        return converted
    saved = _saved_bytes([each for each in files if each.at.degree == 1 and len(each.memory_bytes) == count])
    layers = tuple(
        replace(layer, params_bytes=own, saved_bytes=kept)
        for layer, own, kept in zip(converted.profile.layers, known, saved or (0.0,) * count, strict=True)
    )
    unsaved = "no layer's memory is known at two batch sizes on one device: activations count as 0"
    notes = (NO_MESSAGES, *([] if saved else [unsaved]), *(note for note in converted.notes if note != NO_BYTES))
    return replace(converted, profile=replace(converted.profile, layers=layers), notes=notes)


def _saved_bytes(files: Sequence[_Figures]) -> tuple[float, ...]:
    """Growth of each layer's memory per sample, from the first device type with two sizes; empty without one."""
    for name in dict.fromkeys(each.at.device_type for each in files):
        own = sorted((each for each in files if each.at.device_type == name), key=lambda each: each.at.samples)
        least, most = own[0], own[-1]
        if (more := most.at.samples - least.at.samples) > 0:
            pairs = zip(least.memory_bytes, most.memory_bytes, strict=True)
            return tuple(max(0.0, large - small) / more for small, large in pairs)
    return ()
