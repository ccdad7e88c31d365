"""The catalogue as Markdown pages: `python -m stagecut.models.tables models > docs/models.md`."""

import argparse
import inspect
import math
import sys
from collections.abc import Iterable, Sequence
from types import ModuleType

from stagecut.models import catalogue
from stagecut.models.clusters import description, device_types, links
from stagecut.models.clusters.entries import ENTRIES as CLUSTERS
from stagecut.models.clusters.entries import ClusterEntry
from stagecut.models.families import (
    bert,
    chain,
    convolution,
    decoder,
    experts,
    gpt,
    image_head,
    latent_attention,
    llama,
    mixtral,
    operators,
    resnet,
    synthetic,
    token_ends,
    transformer,
    unet,
    vgg,
    vit,
)
from stagecut.models.families.entry import ModelEntry
from stagecut.models.measured_profiles import measured_names
from stagecut.models.operators_table import HEADER, operator_rows
from stagecut.planner.core.catalogue import NamedLink
from stagecut.planner.core.cluster import Island, Link, Server
from stagecut.planner.core.precision import Precision
from stagecut.planner.core.units import GB, GIB, US

FORMULAS = (
    chain,
    transformer,
    token_ends,
    gpt,
    bert,
    llama,
    mixtral,
    decoder,
    experts,
    latent_attention,
    vit,
    image_head,
    convolution,
    vgg,
    resnet,
    unet,
    synthetic,
)
GENERATED = (
    "<!-- Written by `python -m stagecut.models.tables {page} > docs/{page}.md`; edit the catalogue, not this page. -->"
)

MODELS_INTRODUCTION = """\
Layer chains with analytic costs, built without torch from the formulas below. Figures in the table are for the default
sequence length; parameters are those that the chain holds, published ones come from the source beside them.
"""
TIED_HEADS = """\
## Tied heads

The head of GPT and BERT multiplies with the token matrix of the embedding. The matrix counts once among the
parameters, **in the embedding**, as published; the head holds a copy of it, its `shared_params_bytes`, which takes
memory and an optimizer step there as well (GPT-2 XL: 80 M parameters, 1.29 GB at the 16 bytes per parameter of AdamW
in mixed precision). Where first and last layer share a stage, that is one copy too many; the all-reduce between the
two copies is not counted.
"""
TORCH_LAYERS = """\
## Layers in torch

`models.build_modules(NAME)` builds the same layers as torch modules, which `plan run` trains; every name, parameter and
boundary agrees with the table above. Saved bytes agree to 3 %, measured on a CPU in fp32, except that

- without a fused kernel for it (CPU), an RMSNorm keeps its result before the weight, `s h` elements, grouped keys and
  values are repeated for every head, dropout masks take 4 bytes instead of 1, and dropout inside attention (GPT and
  BERT as published) keeps the `s x s` matrices; `dropout=0.0` turns it off
- the pooling before a residual network's head needs no input for its backward, though the stage holds it
- a Mixtral's experts run one after another; devices that share them all-reduce the output of each, together `t s h`
  elements for `t` experts per token, where the table has `s h`
- random models match parameters, boundaries and saved bytes; their FLOPs are those of the products that do so

The loss of a BERT covers all positions. Batch norms see one micro-batch at a time.

`stagecut.models.hugging_face.chain_of` splits a decoder or a BERT of transformers, or a configuration of one, into
"embedding", "block0", "block1", ... and "head"; [executor.md](executor.md#limits) lists the types.
"""
MEASURED = """\
## Measured models

A profile measured on a device is called `MODEL@DEVICE`; its times are for the device type DEVICE, in the precision of
the measurement. `python -m benchmarks.gpu`, on a machine with a GPU, measures profiles and files them under
`models/measured`.
"""
CLUSTERS_INTRODUCTION = """\
Every figure carries its source: the vendor's data sheet, or the word assumption. The names of device types and links
stand for these figures in [cluster files](files.md#names-of-the-catalogue) and in descriptions; a cluster file may
define a type of the same name, which then wins. `plan clusters types` and `plan clusters links` list them too.
"""


def models_page() -> str:
    """The page `docs/models.md`."""
    return _page(
        "models",
        "# Models",
        MODELS_INTRODUCTION,
        _models_table(),
        TIED_HEADS,
        TORCH_LAYERS,
        MEASURED,
        _measured_table(),
        _formulas(operators),
        _table(HEADER, operator_rows(catalogue.ENTRIES)),
        *(_formulas(module) for module in FORMULAS),
    )


def clusters_page() -> str:
    """The page `docs/clusters.md`."""
    return _page(
        "clusters",
        "# Clusters",
        CLUSTERS_INTRODUCTION,
        _clusters_table(),
        _formulas(description),
        _formulas(device_types),
        _device_types_table(),
        _formulas(links),
        _links_table(),
    )


def _page(name: str, *parts: str) -> str:
    return "\n\n".join((GENERATED.format(page=name), *(part.strip() for part in parts))) + "\n"


def _formulas(module: ModuleType) -> str:
    title, _, text = inspect.cleandoc(module.__doc__ or "").partition("\n")
    return f"## {title.removesuffix('.')}\n\n{text.strip()}"


def _table(header: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    return "\n".join(f"| {' | '.join(row)} |" for row in (header, ["---"] * len(header), *rows))


def _models_table() -> str:
    header = ("model", "layers", "parameters", "published", "forward GFLOP", "tokens", "architecture", "source")
    return _table(header, (_model_row(entry) for entry in catalogue.ENTRIES))


def _model_row(entry: ModelEntry) -> tuple[str, ...]:
    model = entry.profile(precision=Precision.FP16, sequence_length=None)
    flops = sum(layer.forward_flops for layer in model.layers)
    return (
        f"`{entry.name}`",
        str(model.num_layers),
        _millions(model.num_params),
        _millions(entry.published_params) if entry.published_params else "-",
        f"{flops / 1e9:.1f}",
        str(entry.default_sequence or "-"),
        entry.summary,
        entry.source,
    )


def _measured_table() -> str:
    header = ("model", "precision", "tokens", "micro-batch sizes")
    return _table(header, map(_measured_row, measured_names())) if measured_names() else "There are none yet."


def _measured_row(name: str) -> tuple[str, ...]:
    model = catalogue.build_model(name)
    sizes = sorted({size for layer in model.layers for table in layer.times for size in table.samples})
    tokens = str(model.sequence_length or "-")
    return f"`{name}`", str(model.precision), tokens, ", ".join(map(str, sizes))


def _millions(count: float) -> str:
    return f"{count / 1e6:.1f} M"


def _clusters_table() -> str:
    header = ("cluster", "devices", "servers", "inside a server", "interface", "description")
    return _table(header, (_cluster_row(entry) for entry in CLUSTERS))


def _cluster_row(entry: ClusterEntry) -> tuple[str, ...]:
    servers = entry.cluster.servers
    return (
        f"`{entry.cluster.name}`",
        str(entry.cluster.num_devices),
        "<br>".join(_server_label(server) for server in servers),
        "<br>".join(", ".join(_fabric_label(island) for island in server.islands) for server in servers),
        "<br>".join(_bandwidth(server.nic) for server in servers),
        entry.summary,
    )


def _server_label(server: Server) -> str:
    return f"{server.count} x ({', '.join(f'{island.count} {island.device_type}' for island in server.islands)})"


def _fabric_label(island: Island) -> str:
    return f"{_bandwidth(island.fabric)}{' shared' if island.shared else ''}"


def _device_types_table() -> str:
    header = (
        "device type",
        "fp32 TFLOP/s",
        "fp16",
        "bf16",
        "usable GiB",
        "memory GB/s",
        "efficiency",
        "launch us",
        "usual links",
        "source",
    )
    return _table(header, map(_device_type_row, device_types.KNOWN_TYPES))


def _device_type_row(known: device_types.KnownType) -> tuple[str, ...]:
    kind, rates = known.kind, dict(known.kind.peak_flops_per_s)
    return (
        f"`{kind.name}`",
        *(f"{rates[precision] / 1e12:g}" for precision in (Precision.FP32, Precision.FP16, Precision.BF16)),
        f"{kind.memory_bytes / GIB:g}",
        f"{kind.memory_bandwidth_bytes_per_s / GB:g}",
        f"{kind.efficiency:g}",
        f"{kind.launch_s / US:g}",
        f"`{known.fabric}` `{known.interface}`",
        kind.source,
    )


def _links_table() -> str:
    return _table(("link", "use", "bandwidth", "latency us", "source"), map(_link_row, links.LINKS))


def _link_row(named: NamedLink) -> tuple[str, ...]:
    return (
        f"`{named.name}`",
        f"{named.use}{', shared' if named.shared else ''}",
        _bandwidth(named.link),
        f"{named.link.latency_s / US:g}",
        named.link.source,
    )


def _bandwidth(link: Link) -> str:
    if math.isinf(link.bandwidth_bytes_per_s):
        return "unlimited"
    return f"{link.bandwidth_bytes_per_s / GB:g} GB/s"


def main() -> None:
    """Print one page."""
    pages = {"models": models_page, "clusters": clusters_page}
    parser = argparse.ArgumentParser(
        prog="python -m stagecut.models.tables", description="Print a page of the documentation."
    )
    parser.add_argument("page", choices=sorted(pages))
    sys.stdout.write(pages[parser.parse_args().page]())


if __name__ == "__main__":
    main()
