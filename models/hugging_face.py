"""Transformers' models as chains of layers: the embedding, every block, the head."""

from typing import TYPE_CHECKING

from stagecut.models.module_chain import ModuleChain
from stagecut.planner.core.errors import BadInputError

if TYPE_CHECKING:
    from transformers import PreTrainedConfig, PreTrainedModel


def chain_of(
    source: "PreTrainedModel | PreTrainedConfig", *, architecture: str | None = None, sequence_length: int | None = None
) -> ModuleChain:
    """The layers "embedding", "block0", "block1", ... and "head" of a GPT-2, a Llama or a BERT.

    Attention is causal in a decoder, over all tokens in an encoder, without masks of its own, and runs in torch's
    fused kernel. The loss is that of transformers: the mean over the labels that are not -100, in whatever parts of a
    batch they are.

    Parameters
    ----------
    source
        A model, whose weights every layer starts with; or a configuration, whose layers are drawn at random, each
        for itself, so that a process can hold a part of a model that it could not hold whole.
    architecture
        Class to build from a configuration, for example "BertModel"; None: the one it names, or the language model.
    sequence_length
        Tokens of a random sample; None: as many as there are positions, but 1024 at most.

    Raises
    ------
    BadInputError
        If transformers is not installed, or the model is of another family.
    """
    try:
        from stagecut.models.modules.hugging_face import split
    except ModuleNotFoundError as missing:
        if missing.name not in {"torch", "transformers"}:
            raise
        raise BadInputError(
            f"models of Hugging Face need {missing.name}, which is not installed: "
            "pip install 'stagecut[run]' 'transformers>=5'"
        ) from missing
    return split(source, architecture=architecture, sequence_length=sequence_length)
