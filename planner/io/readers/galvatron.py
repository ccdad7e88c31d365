"""Galvatron's profiles: one file of forward times, one of memory.

    computation_profiling_bf16_x.json   {"layertype_0_bsz8_seq4096": 3.9, "layertype_other_bsz8_seq4096": 2.9, ...}
    memory_profiling_bf16_x.json        {"layertype_0_sp": {"4096": {"parameter_size": 832.3,
                                          "tp_activation_per_bsz_dict": {"1": 1413.1, "checkpoint": 64.0}}},
                                         "other_memory_pp_on_first_sp": {"4096": {"model_states": {"1": 8145.0},
                                          "activation": {"1": 535.0}}}, "other_memory_pp_on_last_sp": ...}

A model of several kinds of layers, such as encoder and decoder, has `layertype_0`, `layertype_1`, .. one after another,
each with a sequence length of its own, and all of them in the keys of what is beside the layers: `seq[512,512]`.

Milliseconds of a layer's forward per sample, and of everything beside the layers (`other`); MiB of weights in fp32, of
activations per sample on one device, and of a layer's input (`checkpoint`); `model_states` are weights, gradients and
Adam's moments: four times the weights. Batch size, sequence length and `_sp` (tokens divided in between) may be missing
in the keys. Source: files of the authors' repository (Miao et al., Galvatron, VLDB 2023). That `parameter_size` is in
fp32, and `checkpoint` the input of a layer, follows from the figures for llama3-8b: 218.1 M parameters, 8,192 x 4,096
numbers in bf16. A backward takes twice a forward, as in Galvatron's cost model.
"""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from stagecut.planner.core.model import Layer, ModelProfile, TimeTable
from stagecut.planner.core.precision import Precision
from stagecut.planner.io.documents.complaints import Complaints
from stagecut.planner.io.documents.tree import Document, Node
from stagecut.planner.io.readers.conversion import Choices, Converted
from stagecut.planner.io.readers.foreign_fields import ForeignFields

MIB = 2.0**20
STATES_PER_WEIGHT = 4.0
FP32_BYTES = 4
BACKWARD_PER_FORWARD = 2.0
NOTES = (
    "backwards take twice as long as forwards, as Galvatron assumes",
    "times beside the layers (embedding and head) are counted for the head",
)
_KEY = re.compile(
    r"layertype_(?P<kind>\d{1,2}|other)(?:_bsz(?P<size>[1-9]\d{0,5}))?(?:_seq(?P<length>[1-9]\d{0,7}|\[[\d,]+\]))?"
)
OTHER = "other"
Times = dict[str, dict[str | None, dict[int, float]]]
"""Milliseconds per sample by kind of layer, sequence length and batch size."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Memory:
    """Bytes of one kind of layer."""

    params_bytes: float
    saved_bytes: float
    input_bytes: float = 0.0


def read_galvatron(documents: Sequence[Document], choices: Choices) -> Converted:
    """Convert a pair of files; raises the errors of :func:`stagecut.planner.io.readers.formats.convert`."""
    memory_first = sorted(documents, key=lambda document: _is_times(document.root))
    memory, *times = memory_first
    if not times or len(times) > 1 or _is_times(memory.root):
        memory.complaints.add(
            memory.root.line, (), "give two files: computation_profiling_*.json and memory_profiling_*.json"
        )
        memory.complaints.checked(None)
    found = _times(times[0], choices)
    kinds = sorted(found.keys() - {OTHER}, key=int)
    lengths, notes = _sequence_lengths(found, kinds, memory, times[0].complaints)
    counts = _layer_counts(choices, kinds, memory)
    layers = memory.complaints.finish(
        _memories(memory, kinds, lengths, choices),
        lambda memories: _chain(memories, _at_lengths(found, kinds, lengths), counts, choices),
    )
    length = lengths[0] if len(set(lengths)) == 1 else None
    profile = ModelProfile(
        name=choices.name,
        layers=layers,
        precision=choices.precision,
        sequence_length=None if length is None else int(length),
    )
    return Converted(
        profile=profile, num_nodes=profile.num_layers, notes=(*NOTES, *notes, *_other_precision(memory, choices))
    )


def _other_precision(memory: Document, choices: Choices) -> tuple[str, ...]:
    """A note if the file's name states another precision than the one asked for."""
    stated = [each for each in Precision if f"_{each}_" in memory.complaints.file]
    if not stated or stated[0] is choices.precision:
        return ()
    rule = f"measured in {stated[0]} by its name, counted in {choices.precision}"
    return (f"{memory.complaints.file}: {rule}; use --precision {stated[0]}",)


def _is_times(root: Node) -> bool:
    entries = (root.at(key) for key in root.keys())  # noqa: SIM118 - a method of the tree
    return any(isinstance(entry.value, int | float) for entry in entries if entry is not None)


def _times(document: Document, choices: Choices) -> Times:
    fields, found = ForeignFields(document.complaints), Times()
    for key in document.root.keys():  # noqa: SIM118 - a method of the tree
        match = _KEY.fullmatch(key)
        if match is not None and (match["kind"] == OTHER or "[" not in (match["length"] or "")):
            size = choices.micro_batch if match["size"] is None else int(match["size"])
            value = fields.number(document.root, key) * choices.time_unit.seconds
            found.setdefault(match["kind"], {}).setdefault(match["length"], {})[size] = value
    if "0" not in found:
        rule = "has no times of whole layers: keys such as layertype_0_bsz8_seq4096 are required"
        document.complaints.add(document.root.line, (), rule)
    return document.complaints.checked(found)


def _sequence_lengths(
    times: Times, kinds: Sequence[str], memory: Document, complaints: Complaints
) -> tuple[tuple[str | None, ...], tuple[str, ...]]:
    """Of each kind of layer the longest one that both files have, and notes on the others."""
    chosen, notes = list[str | None](), list[str]()
    for kind in kinds:
        layer = _entry(memory, f"layertype_{kind}")
        keys = () if layer is None or not isinstance(layer.value, Mapping) else layer.keys()
        stated = {key for key in keys if key.isdecimal()}
        common = [length for length in times[kind] if not stated or length is None or length in stated]
        if not common:
            lengths = ", ".join(sorted(stated, key=int))
            complaints.add(1, (), f"has no times at a sequence length of {memory.complaints.file}: {lengths}")
            complaints.checked(None)
        chosen.append(max(common, key=lambda length: int(length or 0)))
        others = sorted(
            (length for length in times[kind] if length not in (None, chosen[-1])), key=lambda own: int(own or 0)
        )
        if others:
            notes.append(f"sequence lengths {', '.join(map(str, others))}: left out; {chosen[-1]} is taken")
    return tuple(chosen), tuple(dict.fromkeys(notes))


def _at_lengths(times: Times, kinds: Sequence[str], lengths: Sequence[str | None]) -> list[dict[int, float]]:
    """The times of each kind of layer, and last those of what is beside the layers."""
    of_kinds = [times[kind][length] for kind, length in zip(kinds, lengths, strict=True)]
    nothing = dict.fromkeys(of_kinds[-1], 0.0)
    return [*of_kinds, times.get(OTHER, {}).get(_all(lengths), nothing)]


def _all(lengths: Sequence[str | None]) -> str | None:
    """How keys state the sequence lengths of all kinds of layers."""
    return lengths[0] if len(lengths) == 1 else f"[{','.join(map(str, lengths))}]"


def _entry(memory: Document, name: str) -> Node | None:
    """What the file has under a name, with `_sp` or without."""
    return memory.root.at(f"{name}_sp") or memory.root.at(name)


def _layer_counts(choices: Choices, kinds: Sequence[str], memory: Document) -> tuple[int, ...]:
    """How many layers of each kind there are, as asked for or, of one kind, as the file says."""
    if choices.num_layers is not None and len(choices.num_layers) == len(kinds):
        return choices.num_layers
    config = memory.root.at("model_config")
    node = None if config is None else config.at("n_layers")
    stated = None if node is None else node.value
    if choices.num_layers is None and len(kinds) == 1 and isinstance(stated, int) and 0 < stated < 100_000:
        return (stated,)
    if len(kinds) > 1:
        example = ",".join("24" for _ in kinds)
        rule = f"has {len(kinds)} kinds of layers; give how many of each there are, such as --layers {example}"
    elif choices.num_layers is None:
        rule = "does not state the number of layers; give it with --layers"
    else:
        rule = "has one kind of layers; give one number with --layers"
    memory.complaints.add(memory.root.line, (), rule)
    return (1,) * len(kinds)


def _memories(
    memory: Document, kinds: Sequence[str], lengths: Sequence[str | None], choices: Choices
) -> tuple[_Memory, ...]:
    """Of a layer of each kind, then of the embedding before them and of the head behind."""
    fields = ForeignFields(memory.complaints)
    weights = MIB * choices.precision.num_bytes / FP32_BYTES
    found = []
    for kind, length in zip(kinds, lengths, strict=True):
        layer = _at_length(memory, f"layertype_{kind}", length)
        kept = None if layer is None else layer.at("tp_activation_per_bsz_dict")
        own = _Memory(params_bytes=0.0, saved_bytes=0.0)
        if layer is not None and kept is not None:
            own = _Memory(
                params_bytes=fields.number(layer, "parameter_size") * weights,
                saved_bytes=fields.number(kept, "1") * MIB,
                input_bytes=fields.number(kept, "checkpoint", default=0.0) * MIB,
            )
        found.append(own)
    for name in ("other_memory_pp_on_first", "other_memory_pp_on_last"):
        end = _at_length(memory, name, _all(lengths))
        states, saved = (None, None) if end is None else (end.at("model_states"), end.at("activation"))
        found.append(
            _Memory(
                params_bytes=0.0 if states is None else fields.number(states, "1") / STATES_PER_WEIGHT * weights,
                saved_bytes=0.0 if saved is None else fields.number(saved, "1") * MIB,
            )
        )
    return tuple(found)


def _at_length(memory: Document, name: str, length: str | None) -> Node | None:
    """The entry of a name at the sequence length, where the file distinguishes them."""
    entry = _entry(memory, name)
    found = None if entry is None else entry.at(str(length)) or entry
    if found is None or found.at("parameter_size" if name.startswith("layertype") else "model_states") is None:
        memory.complaints.add(memory.root.line, (name,), "is missing, or has no entry at the sequence length")
        return None
    return found


def _chain(
    memories: Sequence[_Memory], times: Sequence[dict[int, float]], counts: Sequence[int], choices: Choices
) -> tuple[Layer, ...]:
    """Embedding, the layers of one kind after those of another, head; a layer sends what the next one takes in."""
    *own, first, last = memories
    *of_kinds, beside = times
    kinds = [kind for kind, count in enumerate(counts) for _ in range(count)]
    inputs = [own[kind].input_bytes for kind in (*kinds, kinds[-1])]
    blocks = (
        _layer(f"layer{index}", "layer", own[kind], inputs[index : index + 2], of_kinds[kind], choices)
        for index, kind in enumerate(kinds)
    )
    nothing = dict.fromkeys(of_kinds[0], 0.0)
    embedding = _layer("embedding", "embedding", first, (inputs[0], inputs[0]), nothing, choices)
    return (embedding, *blocks, _layer("head", "head", last, (inputs[-1], 0.0), beside, choices))


def _layer(
    name: str, kind: str, memory: _Memory, ends_bytes: Sequence[float], per_sample: dict[int, float], choices: Choices
) -> Layer:
    """A layer with what goes in and comes out; tensor parallelism all-reduces its input, a block's twice."""
    sizes = tuple(sorted(per_sample))
    forward_s = tuple(per_sample[size] * size for size in sizes)
    return Layer(
        name=name,
        kind=kind,
        params_bytes=memory.params_bytes,
        saved_bytes=memory.saved_bytes,
        output_bytes=ends_bytes[1],
        tensor_parallel_bytes=ends_bytes[0] * (2 if kind == "layer" else 1),
        times=(
            TimeTable(
                device_type=choices.device_type,
                samples=sizes,
                forward_s=forward_s,
                backward_s=tuple(BACKWARD_PER_FORWARD * seconds for seconds in forward_s),
            ),
        ),
    )
