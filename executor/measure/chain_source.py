"""Where the layers to measure come from: the catalogue, or a user's function."""

import importlib
import sys
from dataclasses import dataclass, replace
from pathlib import Path

from torch import nn

from stagecut.executor.play.build import chain_of
from stagecut.models import build_model, build_modules
from stagecut.models.modules.module_chain import ModuleChain
from stagecut.planner.core.messages.errors import BadInputError
from stagecut.planner.core.model import ModelProfile
from stagecut.planner.core.precision import Precision


@dataclass(frozen=True, slots=True, kw_only=True)
class ChainSource:
    """Either the name of a catalogue model, or `layers` as `module:function`; each process builds the layers itself."""

    name: str | None = None
    layers: str | None = None
    sequence_length: int | None = None

    def chain(self) -> ModuleChain:
        """The layers.

        Raises
        ------
        BadInputError
            If there is no such model or function.
        """
        if self.name is not None:
            return build_modules(self.name, sequence_length=self.sequence_length)
        assert self.layers is not None
        return user_chain(self.layers)

    def analytic_profile(self, precision: Precision) -> ModelProfile | None:
        """The catalogue's profile; None for a user's layers."""
        if self.name is None:
            return None
        return build_model(self.name, precision=precision, sequence_length=self.sequence_length)


def user_chain(reference: str) -> ModuleChain:
    """The layers returned by a user's function: a ModuleChain, or a list of modules or of functions that build them.

    Parameters
    ----------
    reference
        `package.module:function`; modules in the current folder are found too.

    Raises
    ------
    BadInputError
        If there is no such function, it fails, or returns something else.
    """
    module_name, _, function_name = reference.partition(":")
    if not module_name or not function_name:
        raise BadInputError(f"--layers {reference}: must be package.module:function")
    if str(Path.cwd()) not in sys.path:
        sys.path.insert(0, str(Path.cwd()))
    try:
        made = getattr(importlib.import_module(module_name), function_name)()
    except BadInputError:
        raise
    except Exception as fault:
        raise BadInputError(f"--layers {reference}: {type(fault).__name__}: {fault}") from fault
    if isinstance(made, ModuleChain):
        return made
    if not isinstance(made, list | tuple | nn.Sequential | nn.ModuleList):
        given = type(made).__name__
        raise BadInputError(f"--layers {reference}: must return a ModuleChain or a list of modules, not a {given}")
    return replace(chain_of(list(made)), name=function_name)
