"""All models of the catalogue, by name."""

from stagecut.models.families import bert, gpt, llama, mixtral, resnet, unet, vgg, vit
from stagecut.models.families.entry import ModelEntry
from stagecut.models.families.synthetic import NAME as SYNTHETIC
from stagecut.models.families.synthetic import is_synthetic, synthetic_entry
from stagecut.models.measured_profiles import MEASURED_ON, is_measured, measured_model, measured_names
from stagecut.models.modules.module_chain import ModuleChain
from stagecut.planner.core.messages.checks import require
from stagecut.planner.core.messages.errors import BadInputError
from stagecut.planner.core.messages.names import unknown_name
from stagecut.planner.core.model import ModelProfile
from stagecut.planner.core.precision import Precision

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
    """Names of models with analytic costs; `synthetic` also takes `synthetic:SEED:LAYERS`."""
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
    raise unknown_name("model", name, (*model_names(), *measured_names()))


def build_model(name: str, *, precision: Precision | None = None, sequence_length: int | None = None) -> ModelProfile:
    """A catalogue model as a layer chain with analytic costs, or with measured ones (`NAME@DEVICE`).

    Parameters
    ----------
    precision
        Precision in which bytes are counted; None: fp16, or that of the measurement.
    sequence_length
        Tokens per sample; None: the model's default.

    Raises
    ------
    BadInputError
        If the name is unknown, or the model does not support the sequence length or precision.
    """
    if is_measured(name):
        return measured_model(name, precision=precision, sequence_length=sequence_length)
    return model_entry(name).profile(precision=precision or Precision.FP16, sequence_length=sequence_length)


def build_modules(name: str, *, sequence_length: int | None = None, dropout: float | None = None) -> ModuleChain:
    """A catalogue model as a chain of torch modules, whose layers match those of :func:`build_model`.

    Parameters
    ----------
    sequence_length
        Tokens per sample; None: the model's default.
    dropout
        Probability; None: the model's own. Ignored by models without dropout.

    Raises
    ------
    BadInputError
        If the name is unknown, the model does not support the sequence length, the probability is not in [0, 1), or
        torch is not installed.
    """
    entry = model_entry(name)
    tokens = entry.num_tokens(sequence_length)
    require(dropout is None or 0 <= dropout < 1, f"model {name!r}", "dropout", "from 0 to below 1", dropout)
    try:
        from stagecut.models.modules.families import modules_of
    except ModuleNotFoundError as missing:
        if missing.name != "torch":
            raise
        raise BadInputError(
            f"model {name!r}: building its layers needs torch: pip install 'stagecut[run]'"
        ) from missing
    return modules_of(entry.name, entry.shape, tokens=tokens or 0, dropout=dropout)


def describe_model(name: str) -> str:
    """One line on the architecture, and the device it was measured on.

    Raises
    ------
    BadInputError
        If the name is unknown.
    """
    architecture, _, device = name.partition(MEASURED_ON)
    summary = model_entry(architecture).summary
    return f"{summary}; measured on {device}" if device else summary
