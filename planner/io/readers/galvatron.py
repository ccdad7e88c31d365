"""Galvatron's profiles: one file of forward times, one of memory.

    computation_profiling_bf16_x.json   {"layertype_0_bsz8_seq4096": 3.9, "layertype_other_bsz8_seq4096": 2.9, ...}
    memory_profiling_bf16_x.json        {"layertype_0_sp": {"4096": {"parameter_size": 832.3,
                                          "tp_activation_per_bsz_dict": {"1": 1413.1, "checkpoint": 64.0}}},
                                         "other_memory_pp_on_first_sp": {"4096": {"model_states": {"1": 8145.0},
                                          "activation": {"1": 535.0}}}, "other_memory_pp_on_last_sp": ...}

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
_KEY = re.compile(r"layertype_(?P<kind>0|other)(?:_bsz(?P<size>[1-9]\d{0,5}))?(?:_seq(?P<length>[1-9]\d{0,7}))?")
Times = dict[int | None, dict[str, dict[int, float]]]
"""Milliseconds per sample by sequence length, kind of layer and batch size."""


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
    by_length = _times(times[0], choices)
    length, notes = _sequence_length(by_length, memory, times[0].complaints)
    num_layers = choices.num_layers or _stated_layers(memory)
    layers = memory.complaints.finish(
        _memories(memory, length, choices),
        lambda found: _chain(found, by_length[length], num_layers, choices),
    )
    profile = ModelProfile(name=choices.name, layers=layers, precision=choices.precision, sequence_length=length)
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
        if match is not None:
            length = None if match["length"] is None else int(match["length"])
            size = choices.micro_batch if match["size"] is None else int(match["size"])
            value = fields.number(document.root, key) * choices.time_unit.seconds
            found.setdefault(length, {}).setdefault(match["kind"], {})[size] = value
    usable = {length: kinds for length, kinds in found.items() if "0" in kinds}
    if not usable:
        rule = "has no times of whole layers: keys such as layertype_0_bsz8_seq4096 are required"
        document.complaints.add(document.root.line, (), rule)
    return document.complaints.checked(usable)


def _sequence_length(times: Times, memory: Document, complaints: Complaints) -> tuple[int | None, tuple[str, ...]]:
    """The longest one that both files have, and a note on the others."""
    layer = _entry(memory, "layertype_0")
    keys = () if layer is None or not isinstance(layer.value, Mapping) else layer.keys()
    stated = {int(key) for key in keys if key.isdecimal()}
    common = [length for length in times if not stated or length is None or length in stated]
    if not common:
        lengths = ", ".join(map(str, sorted(stated)))
        complaints.add(1, (), f"has no times at a sequence length of {memory.complaints.file}: {lengths}")
        complaints.checked(None)
    longest = max(common, key=lambda length: length or 0)
    others = sorted(length for length in times if length is not None and length != longest)
    left_out = f"sequence lengths {', '.join(map(str, others))}: left out; {longest} is taken"
    return longest, (left_out,) if others else ()


def _entry(memory: Document, name: str) -> Node | None:
    """What the file has under a name, with `_sp` or without."""
    return memory.root.at(f"{name}_sp") or memory.root.at(name)


def _stated_layers(memory: Document) -> int:
    config = memory.root.at("model_config")
    node = None if config is None else config.at("n_layers")
    if node is not None and isinstance(node.value, int) and 0 < node.value < 100_000:
        return node.value
    memory.complaints.add(memory.root.line, (), "does not state the number of layers; give it with --layers")
    return 1


def _memories(memory: Document, length: int | None, choices: Choices) -> tuple[_Memory, _Memory, _Memory]:
    """Of a layer, of the embedding before them, and of the head behind."""
    fields = ForeignFields(memory.complaints)
    weights = MIB * choices.precision.num_bytes / FP32_BYTES
    layer = _at_length(memory, "layertype_0", length)
    kept = None if layer is None else layer.at("tp_activation_per_bsz_dict")
    own = _Memory(params_bytes=0.0, saved_bytes=0.0)
    if layer is not None and kept is not None:
        own = _Memory(
            params_bytes=fields.number(layer, "parameter_size") * weights,
            saved_bytes=fields.number(kept, "1") * MIB,
            input_bytes=fields.number(kept, "checkpoint", default=0.0) * MIB,
        )
    ends = []
    for name in ("other_memory_pp_on_first", "other_memory_pp_on_last"):
        end = _at_length(memory, name, length)
        states, saved = (None, None) if end is None else (end.at("model_states"), end.at("activation"))
        ends.append(
            _Memory(
                params_bytes=0.0 if states is None else fields.number(states, "1") / STATES_PER_WEIGHT * weights,
                saved_bytes=0.0 if saved is None else fields.number(saved, "1") * MIB,
            )
        )
    return own, ends[0], ends[1]


def _at_length(memory: Document, name: str, length: int | None) -> Node | None:
    """The entry of a name at the sequence length, where the file distinguishes them."""
    entry = _entry(memory, name)
    found = None if entry is None else entry.at(str(length)) or entry
    if found is None or found.at("parameter_size" if name == "layertype_0" else "model_states") is None:
        memory.complaints.add(memory.root.line, (name,), "is missing, or has no entry at the sequence length")
        return None
    return found


def _chain(
    memories: tuple[_Memory, _Memory, _Memory], times: dict[str, dict[int, float]], num_layers: int, choices: Choices
) -> tuple[Layer, ...]:
    """Embedding, layers, head."""
    own, first, last = memories
    nothing = dict.fromkeys(times["0"], 0.0)
    other = times.get("other", nothing)
    blocks = (
        _layer(f"layer{index}", "layer", own, own.input_bytes, times["0"], choices) for index in range(num_layers)
    )
    embedding = _layer("embedding", "embedding", first, own.input_bytes, nothing, choices)
    return (embedding, *blocks, _layer("head", "head", last, own.input_bytes, other, choices))


def _layer(
    name: str, kind: str, memory: _Memory, message_bytes: float, per_sample: dict[int, float], choices: Choices
) -> Layer:
    """A layer; a block all-reduces its input's size twice per direction under tensor parallelism, the ends once."""
    sizes = tuple(sorted(per_sample))
    forward_s = tuple(per_sample[size] * size for size in sizes)
    return Layer(
        name=name,
        kind=kind,
        params_bytes=memory.params_bytes,
        saved_bytes=memory.saved_bytes,
        output_bytes=0.0 if kind == "head" else message_bytes,
        tensor_parallel_bytes=message_bytes * (2 if kind == "layer" else 1),
        times=(
            TimeTable(
                device_type=choices.device_type,
                samples=sizes,
                forward_s=forward_s,
                backward_s=tuple(BACKWARD_PER_FORWARD * seconds for seconds in forward_s),
            ),
        ),
    )
