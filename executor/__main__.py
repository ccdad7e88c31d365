"""Start a training script of your own on this machine, a process for each device of a plan.

    python -m stagecut.executor [--max-restarts N] plan.json train.py [arguments of the script]

In place of torchrun, which opens ports to the network. Whatever goes wrong is told in one message.
"""

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

from stagecut.planner.core.errors import BadInputError, StagecutError
from stagecut.planner.io.files.plan_file import read_plan_file

_INTERRUPTED = 130


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the script; the exit code."""
    parser = argparse.ArgumentParser("python -m stagecut.executor", description=__doc__.partition("\n")[0])
    parser.add_argument("--max-restarts", type=int, default=0, metavar="N", help="start again so often after a fault")
    parser.add_argument("plan", type=Path, help="plan file: how many processes, and what to call them in messages")
    parser.add_argument("script", type=Path)
    parser.add_argument("arguments", nargs=argparse.REMAINDER, help="of the script")
    try:
        _launch(parser.parse_args(arguments))
    except StagecutError as fault:
        for line in str(fault).splitlines():
            print(f"Error: {line}", file=sys.stderr)
        return fault.exit_code
    except KeyboardInterrupt:
        print("Error: interrupted", file=sys.stderr)
        return _INTERRUPTED
    return 0


def _launch(chosen: argparse.Namespace) -> None:
    from stagecut.executor.play.layout import Layout
    from stagecut.executor.run.launch import launch
    from stagecut.executor.run.world import TIMEOUT_S

    if not chosen.script.is_file():
        raise BadInputError(f"{chosen.script}: there is no such script")
    plan_file = read_plan_file(chosen.plan)
    layout = Layout.of(plan_file.plan, plan_file.problem.cluster)
    launch(
        ["-m", "stagecut.executor.run.script", str(chosen.script), *chosen.arguments],
        num_ranks=layout.world_size,
        names=[str(role) for role in layout.roles],
        max_restarts=max(0, chosen.max_restarts),
        timeout_s=TIMEOUT_S,
    )


if __name__ == "__main__":
    sys.exit(main())
