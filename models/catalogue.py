"""Every model of the catalogue, by name."""

from models import bert, gpt, llama, mixtral, resnet, unet, vgg, vit
from models.entry import ModelEntry
from models.naming import unknown_name
from models.synthetic import NAME as SYNTHETIC
from models.synthetic import is_synthetic, synthetic_entry
from planner.core.model import ModelProfile
from planner.core.precision import Precision

ENTRIES: tuple[ModelEntry, ...] = (
    *gpt.ENTRIES,
    *bert.ENTRIES,
    *llama.ENTRIES,
    *mixtral.ENTRIES,
    *vit.ENTRIES,
    *vgg.ENTRIES,
    *resnet.ENTRIES,
    *unet.ENTRIES,
    synthetic_entry(SYNTHETIC),
)


def model_names() -> tuple[str, ...]:
    """Names that :func:`build_model` knows; `synthetic` also takes `synthetic:SEED:LAYERS`."""
    return tuple(entry.name for entry in ENTRIES)


def model_entry(name: str) -> ModelEntry:
    """The entry of that name.

    Raises
    ------
    BadInputError
        If there is none; the nearest name is suggested.
    """
    if is_synthetic(name):
        return synthetic_entry(name)
    for entry in ENTRIES:
        if entry.name == name:
            return entry
    raise unknown_name("model", name, model_names())


def build_model(
    name: str, *, precision: Precision = Precision.FP16, sequence_length: int | None = None
) -> ModelProfile:
    """A model of the catalogue as a layer chain with analytic costs.

    Parameters
    ----------
    sequence_length
        Tokens of one sample; None: the model's own default.

    Raises
    ------
    BadInputError
        If the name is unknown, or the model cannot have that sequence length.
    """
    return model_entry(name).profile(precision=precision, sequence_length=sequence_length)


def describe_model(name: str) -> str:
    """One line on the architecture.

    Raises
    ------
    BadInputError
        If the name is unknown.
    """
    return model_entry(name).summary
