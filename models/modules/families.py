"""Builds the layers of a model from its shape."""

from stagecut.models.families.bert import BertShape
from stagecut.models.families.gpt import GptShape
from stagecut.models.families.llama import LlamaShape
from stagecut.models.families.mixtral import MixtralShape
from stagecut.models.families.resnet import ResnetShape
from stagecut.models.families.synthetic import SyntheticShape
from stagecut.models.families.unet import UnetShape
from stagecut.models.families.vgg import VggShape
from stagecut.models.families.vit import VitShape
from stagecut.models.modules.bert import bert_modules
from stagecut.models.modules.gpt import gpt_modules
from stagecut.models.modules.llama import llama_modules
from stagecut.models.modules.mixtral import mixtral_modules
from stagecut.models.modules.module_chain import ModuleChain
from stagecut.models.modules.resnet import resnet_modules
from stagecut.models.modules.synthetic import synthetic_modules
from stagecut.models.modules.unet import unet_modules
from stagecut.models.modules.vgg import vgg_modules
from stagecut.models.modules.vit import vit_modules


def modules_of(name: str, shape: object, *, tokens: int, dropout: float | None) -> ModuleChain:  # noqa: PLR0911
    """The layers of one model.

    Parameters
    ----------
    tokens
        Tokens per sample; ignored by models without tokens.
    dropout
        Probability; None: the model's own. Ignored by models without dropout.
    """
    match shape:
        case GptShape():
            return gpt_modules(name, shape, tokens=tokens, dropout=dropout)
        case BertShape():
            return bert_modules(name, shape, tokens=tokens, dropout=dropout)
        case MixtralShape():
            return mixtral_modules(name, shape, tokens=tokens)
        case LlamaShape():
            return llama_modules(name, shape, tokens=tokens)
        case VitShape():
            return vit_modules(name, shape, dropout=dropout)
        case VggShape():
            return vgg_modules(name, shape, dropout=dropout)
        case ResnetShape():
            return resnet_modules(name, shape)
        case UnetShape():
            return unet_modules(name, shape)
        case SyntheticShape():
            return synthetic_modules(name, shape)
        case _:
            raise TypeError(f"model {name!r}: no layers for {shape!r}")
