"""Run your own training script on this machine, one process for each device of a plan.

    python -m stagecut.executor [--max-restarts N] plan.json train.py [script arguments]

Unlike torchrun, it opens no ports to the network. A failure is reported in one message.
"""

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

from stagecut.planner.core.messages.errors import BadInputError, StagecutError
from stagecut.planner.io.files.plan_file import read_plan_file

_INTERRUPTED = 130


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the script; return the exit code."""
    parser = argparse.ArgumentParser("python -m stagecut.executor", description=__doc__.partition("\n")[0])
    parser.add_argument(
        "--max-restarts", type=int, default=0, metavar="N", help="restart up to N times after a failure"
    )
    parser.add_argument("plan", type=Path, help="plan file, one process for each of its devices")
    parser.add_argument("script", type=Path, help="training script")
    parser.add_argument("arguments", nargs=argparse.REMAINDER, help="arguments passed to the script")
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
    from stagecut.executor.ranks.environment import TIMEOUT_S
    from stagecut.executor.ranks.launch import launch
    from stagecut.executor.schedule.rank_layout import RankLayout

    if not chosen.script.is_file():
        raise BadInputError(f"{chosen.script}: no such file")
    plan_file = read_plan_file(chosen.plan)
    layout = RankLayout.of(plan_file.plan, plan_file.problem.cluster)
    launch(
        ["-m", "stagecut.executor.ranks.script", str(chosen.script), *chosen.arguments],
        num_ranks=layout.world_size,
        names=layout.names,
        max_restarts=max(0, chosen.max_restarts),
        timeout_s=TIMEOUT_S,
    )


if __name__ == "__main__":
    sys.exit(main())
