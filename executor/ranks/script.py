"""Runs a user's script as one rank: `python -m stagecut.executor.ranks.script train.py [arguments]`."""

import runpy
import sys
from pathlib import Path

from stagecut.executor.ranks.rank_process import become_rank


def main() -> None:
    """Run the script as Python would, after becoming a rank."""
    become_rank()
    from stagecut.executor.ranks.excepthook import install_excepthook

    install_excepthook()
    del sys.argv[0]
    sys.path[0] = str(Path(sys.argv[0]).resolve().parent)
    runpy.run_path(sys.argv[0], run_name="__main__")


if __name__ == "__main__":
    main()
