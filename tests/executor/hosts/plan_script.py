"""`plan` as a script that returns, as torchrun expects of ranks that it has forked."""

from stagecut.planner.cli.main import main

if __name__ == "__main__":
    main(prog_name="plan", standalone_mode=False)
