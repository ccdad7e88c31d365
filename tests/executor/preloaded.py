"""What ranks of tests need, loaded once in the process that they are forked from: libraries, and a compiled loop.

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


def check_schedule():
    """Every rank does it first, and plays the actions without times."""
    from stagecut.executor.manual_plan import plan_of
    from stagecut.executor.schedule.checker import check_lists
    from stagecut.planner.simulator.action_lists import plan_actions

    plan = plan_of((0, 1))
    check_lists(plan_actions(plan), plan)


gc.disable()
for name in LIBRARIES:
    importlib.import_module(name)
check_schedule()
gc.enable()
gc.freeze()
