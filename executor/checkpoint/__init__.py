"""Checkpoints that any plan for the same model can resume from.

from stagecut.executor import checkpoint

checkpoint.save(pipeline, "run")
checkpoint.restore(pipeline, checkpoint.latest("run"))
"""

from stagecut.executor.checkpoint.folder import latest
from stagecut.executor.checkpoint.save_restore import restore, save

__all__ = ["latest", "restore", "save"]
