"""The program `plan`, as `python -m stagecut`."""

from stagecut.planner.cli.entry import main

main()
