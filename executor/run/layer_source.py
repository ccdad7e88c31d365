"""The torch layers of a plan's model: from the catalogue, or from a user's function."""

from stagecut.executor.measure.chain_source import user_chain
from stagecut.executor.play.build import chain_of
from stagecut.models import build_modules
from stagecut.models.measured_profiles import MEASURED_ON
from stagecut.models.modules.module_chain import ModuleChain
from stagecut.planner.core.messages.errors import BadInputError
from stagecut.planner.core.model import ModelProfile


def layers_of(profile: ModelProfile, *, source: str | None = None, dropout: float | None = None) -> ModuleChain:
    """Layers that match a profile, name by name; not yet built.

    Parameters
    ----------
    source
        `package.module:function`, see :func:`stagecut.executor.measure.chain_source.user_chain`; None: the
        catalogue model that the profile is named after.
    dropout
        Dropout probability for catalogue models; None: their own.

    Raises
    ------
    BadInputError
        If there is no such model or function, its layers do not match the profile, or it has no loss or batch
        function.
    """
    chain = _catalogue_chain(profile, dropout) if source is None else user_chain(source)
    for field in ("loss", "batch"):
        if getattr(chain, field) is None:
            raise BadInputError(f"model {chain.name!r} has no {field}; give its ModuleChain a {field} function")
    return chain_of(chain, profile)


def _catalogue_chain(profile: ModelProfile, dropout: float | None) -> ModuleChain:
    name = profile.name.partition(MEASURED_ON)[0]
    try:
        return build_modules(name, sequence_length=profile.sequence_length, dropout=dropout)
    except BadInputError as fault:
        hint = "for a model of your own, name a function that returns its layers: --layers package.module:function"
        raise BadInputError(f"{fault}; {hint}") from None
