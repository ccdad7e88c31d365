"""Run a plan on torch.

`load`, `Pipeline` and `Team` are imported on first use, because importing torch takes seconds.
"""

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from stagecut.executor.loading import load
    from stagecut.executor.pipeline import Pipeline
    from stagecut.executor.team import Team

__all__ = ["Pipeline", "Team", "load"]

_HOMES = {"load": "loading", "Pipeline": "pipeline", "Team": "team"}


def __getattr__(name: str) -> object:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{_HOMES[name]}"), name)
