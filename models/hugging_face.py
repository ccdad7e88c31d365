"""Models of Hugging Face transformers as chains of layers: the embedding, every block, the head."""

from typing import TYPE_CHECKING

from stagecut.models.modules.module_chain import ModuleChain
from stagecut.planner.core.messages.errors import BadInputError

if TYPE_CHECKING:
    from transformers import PreTrainedConfig, PreTrainedModel


def chain_of(
    source: "PreTrainedModel | PreTrainedConfig", *, architecture: str | None = None, sequence_length: int | None = None
) -> ModuleChain:
    """The layers "embedding", "block0", "block1", ... and "head" of a decoder or a BERT.

    The inputs of a decoder are token ids, or token ids and a mask, 0 for padding, both of shape (samples, tokens). A
    BERT takes token ids, or token ids and segments, and no mask. Attention runs as the model chooses, by default in
    torch's fused kernel. The loss is that of transformers: the mean over all labels in the batch that are not -100.

    Parameters
    ----------
    source
        A model, whose weights the layers start with; or a configuration, whose layers are initialised one by one, so
        that a process can hold a part of a model that does not fit as a whole.
    architecture
        Class to build from a configuration, for example "BertModel"; None: the class it names, or the language model.
    sequence_length
        Tokens of a random sample; None: the number of positions, but at most 1024.

    Raises
    ------
    BadInputError
        If transformers is not installed, or the model family is not supported, or the loss includes that of routers.
    """
    try:
        from stagecut.models.modules.hugging_face import split
    except ModuleNotFoundError as missing:
        if missing.name not in {"torch", "transformers"}:
            raise
        raise BadInputError(
            f"Hugging Face models need {missing.name}, which is not installed: "
            "pip install 'stagecut[run]' 'transformers>=5'"
        ) from missing
    return split(source, architecture=architecture, sequence_length=sequence_length)
