"""Splits models of Hugging Face transformers into layers."""

from collections.abc import Callable
from copy import deepcopy
from functools import partial

import torch
from torch import Generator, Tensor, nn
from transformers import PreTrainedConfig, PreTrainedModel

from stagecut.models.modules.batches import draw_classes
from stagecut.models.modules.hugging_face_families import FAMILIES, Family
from stagecut.models.modules.module_chain import LayerModule, ModuleChain, Tie
from stagecut.planner.core.messages.checks import require
from stagecut.planner.core.messages.errors import BadInputError

LONGEST_SAMPLE = 1024
"""Largest default for the tokens of a random sample."""


def split(
    source: PreTrainedModel | PreTrainedConfig, *, architecture: str | None, sequence_length: int | None
) -> ModuleChain:
    """The chain of a model, or of the model that a configuration describes.

    Raises
    ------
    BadInputError
        If the family is unknown, there are fewer positions than tokens, or the loss includes that of routers.
    """
    family = _family(source, architecture)
    given = isinstance(source, PreTrainedModel)
    config = source.config if given else deepcopy(source)
    if getattr(config, "output_router_logits", False):
        raise BadInputError(
            f"Hugging Face model: {config.model_type} has output_router_logits, but the loss of its routers is not "
            "computed; set it to False"
        )
    layers = _parts_of_model(family, source) if given else _parts_of_config(family, config)
    return ModuleChain(
        name=f"{config.model_type}:{family.name}",
        layers=layers,
        ties=_ties(family, source if given else _skeleton(family, config, device="meta"), len(layers)),
        loss=family.loss,
        batch=partial(_batch, vocabulary=config.vocab_size, tokens=_num_tokens(config, sequence_length)),
    )


def _family(source: PreTrainedModel | PreTrainedConfig, architecture: str | None) -> Family:
    if isinstance(source, PreTrainedModel):
        wanted, own = type(source).__name__, type(source.config)
    else:
        own = type(source)
        named = architecture or next(iter(source.architectures or ()), None)
        default = next((each for each in FAMILIES if each.architecture.config_class is own), None)
        wanted = named or (default.name if default else f"a model of {own.__name__}")
    for family in FAMILIES:
        if family.name == wanted and family.architecture.config_class is own:
            return family
    known = ", ".join(each.name for each in FAMILIES)
    raise BadInputError(f"Hugging Face model: {wanted} with {own.__name__} is not supported; supported: {known}")


def _parts_of_model(family: Family, model: PreTrainedModel) -> tuple[LayerModule, ...]:
    blocks = (
        family.wrapped(block, _with_one_block(family, model.config, index))
        for index, block in enumerate(family.blocks(model))
    )
    return _named(*(partial(deepcopy, part) for part in (family.embedding(model), *blocks, family.head(model))))


def _parts_of_config(family: Family, config: PreTrainedConfig) -> tuple[LayerModule, ...]:
    blocks = (partial(_drawn_block, family, config, index) for index in range(config.num_hidden_layers))
    return _named(
        lambda: family.embedding(_skeleton(family, config)), *blocks, lambda: family.head(_skeleton(family, config))
    )


def _named(*builders: Callable[[], nn.Module]) -> tuple[LayerModule, ...]:
    names = ("embedding", *(f"block{index}" for index in range(len(builders) - 2)), "head")
    return tuple(LayerModule(name=name, build=build) for name, build in zip(names, builders, strict=True))


def _skeleton(family: Family, config: PreTrainedConfig, *, device: str | None = None) -> PreTrainedModel:
    """The initialised model without its blocks; on the device "meta" it takes no memory."""
    bare = deepcopy(config)
    bare.num_hidden_layers = 0
    with torch.device(device or torch.get_default_device()):
        model = family.architecture(bare)
    model.config.num_hidden_layers = config.num_hidden_layers  # the initial weights of a block depend on it
    return model


def _with_one_block(family: Family, config: PreTrainedConfig, index: int) -> PreTrainedModel:
    """The model with one of its blocks alone, on the device "meta"."""
    single = deepcopy(config)
    single.num_hidden_layers = 1
    if kinds := getattr(config, "layer_types", None):
        single.layer_types = [kinds[index]]
    with torch.device("meta"):
        return family.architecture(single)


def _drawn_block(family: Family, config: PreTrainedConfig, index: int) -> nn.Module:
    skeleton, single = _skeleton(family, config, device="meta"), _with_one_block(family, config, index)
    if torch.get_default_dtype() is torch.float64:
        skeleton.config._experts_implementation = "eager"  # grouped products have no double precision
    block = type(family.blocks(single)[0])(skeleton.config, index)
    return family.wrapped(block.apply(skeleton._init_weights), single)


def _ties(family: Family, model: PreTrainedModel, num_layers: int) -> tuple[Tie, ...]:
    """Weights shared by the embedding and the head of a model."""
    names = {weight: name for name, weight in family.embedding(model).named_parameters()}
    held = family.head(model).named_parameters()
    return tuple(Tie(owner=(0, names[weight]), copy=(num_layers - 1, name)) for name, weight in held if weight in names)


def _num_tokens(config: PreTrainedConfig, sequence_length: int | None) -> int:
    positions = config.max_position_embeddings
    if sequence_length is None:
        return min(positions, LONGEST_SAMPLE)
    fits = 1 <= sequence_length <= positions
    require(fits, config.model_type, "sequence_length", f"between 1 and {positions}", sequence_length)
    return sequence_length


def _batch(num_samples: int, generator: Generator, *, vocabulary: int, tokens: int) -> tuple[Tensor, Tensor]:
    """Random texts, which are also their own labels."""
    text = draw_classes((num_samples, tokens), vocabulary, generator=generator)
    return text, text
