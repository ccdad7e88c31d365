"""Checkpoints that any plan for the same model can resume from.

from stagecut.executor import checkpoint

checkpoint.save(pipeline, "run")
checkpoint.restore(pipeline, checkpoint.latest("run"))

`save_waves` and `restore_waves` do the same for a rank of virtual workers that train through waves.
"""

from stagecut.executor.checkpoint.folder import latest
from stagecut.executor.checkpoint.save_restore import restore, save
from stagecut.executor.checkpoint.waves import restore_waves, save_waves

__all__ = ["latest", "restore", "restore_waves", "save", "save_waves"]
