"""The torch layers of a plan's model: of the catalogue by name, or from a function of the user's."""

import importlib
import sys
from pathlib import Path

from executor.play.build import chain_of
from models import build_modules
from models.measured_profiles import MEASURED_ON
from models.module_chain import ModuleChain
from planner.core.errors import BadInputError
from planner.core.model import ModelProfile


def layers_of(profile: ModelProfile, *, source: str | None = None, dropout: float | None = None) -> ModuleChain:
    """Layers that agree with a profile, name by name; none is built yet.

    Parameters
    ----------
    source
        `package.module:function`, a function without arguments that returns a chain; None: the
        catalogue's model that the profile is named after.
    dropout
        For models of the catalogue: the probability; None: their own.

    Raises
    ------
    BadInputError
        If there is no such model or function, its layers are others than the profile's, or it has
        no loss or no batches.
    """
    chain = _catalogue_chain(profile, dropout) if source is None else _own_chain(source)
    for field in ("loss", "batch"):
        if getattr(chain, field) is None:
            raise BadInputError(f"model {chain.name!r} has no {field}; give its ModuleChain a function for it")
    return chain_of(chain, profile)


def _catalogue_chain(profile: ModelProfile, dropout: float | None) -> ModuleChain:
    name = profile.name.partition(MEASURED_ON)[0]
    try:
        return build_modules(name, sequence_length=profile.sequence_length, dropout=dropout)
    except BadInputError as fault:
        hint = "for a model of your own, name a function that gives its layers: --layers package.module:function"
        raise BadInputError(f"{fault}; {hint}") from None


def _own_chain(source: str) -> ModuleChain:
    module, _, name = source.partition(":")
    folder = str(Path.cwd())
    if folder not in sys.path:
        sys.path.insert(0, folder)
    try:
        chain = getattr(importlib.import_module(module), name)()
    except (ImportError, AttributeError, ValueError) as fault:
        reason = f"{type(fault).__name__}: {fault}"
        raise BadInputError(f"--layers {source}: must be package.module:function of a chain, got {reason}") from fault
    if not isinstance(chain, ModuleChain):
        got = type(chain).__name__
        raise BadInputError(f"--layers {source}: must return a models.module_chain.ModuleChain, got a {got}")
    return chain
