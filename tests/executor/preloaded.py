"""What ranks of tests need, imported once in the process that they are forked from.

Searching for garbage takes a fifth of that time; in the ranks it would copy the pages that they share.
"""

import gc
import importlib

LIBRARIES = (
    "torch._dynamo",  # the first optimizer imports it
    "torch.distributed.tensor.parallel",
    "torch.distributed.run",
    "numpy.ma",
    "pytest",  # of the modules that hold what ranks do
    "stagecut.executor.loading",
    "stagecut.executor.checkpoint",
    "stagecut.models",
    "stagecut.planner.cli.main",
)

gc.disable()
for name in LIBRARIES:
    importlib.import_module(name)
gc.enable()
gc.freeze()
