"""Train on three devices, lose one, plan again, go on with two: `python examples/train_gpt/demo.py`.

A second training that nothing interrupts shows what the losses should be.
"""

import argparse
import json
import os
import re
import signal
import subprocess
import sys
import tempfile
from pathlib import Path

HERE = Path(__file__).parent
MODEL = "gpt-mini"
TOLERANCE = 1e-3
"""Relative; fp32 sums in another order differ by some 1e-6 at first, and training makes differences grow."""
PROCESS = re.compile(r"rank 1 .* is process (\d+)")

Losses = dict[int, float]
"""By training step."""


def solve(devices: str, folder: Path, options: argparse.Namespace) -> Path:
    """Plan for a cluster file of the example."""
    path = folder / f"{devices}.json"
    choices = f"--global-batch {options.batch} --micro-batch 2 --replicas 1 --pipelines 1 --tensor-parallel 1"
    command = f"solve --model {MODEL} --cluster {HERE / devices}.yaml --sequence-length {options.tokens}"
    arguments = f"{command} {choices} --precision fp32 --quiet -o {path}".split()
    say(f"plan {' '.join(arguments)}")
    subprocess.run([sys.executable, "-m", "stagecut", *arguments], check=True, stdout=subprocess.DEVNULL)
    return path


def start(plan: Path, folder: Path, options: argparse.Namespace) -> subprocess.Popen[str]:
    """Start the training of a plan, one process for each device."""
    steps = f"--steps {options.steps} --save-every {options.save_every}"
    arguments = f"-m stagecut.executor {plan} {HERE / 'train.py'} --plan {plan} --folder {folder} {steps}".split()
    say(f"python {' '.join(arguments)}")
    return subprocess.Popen(
        [sys.executable, *arguments],
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        env={"OMP_NUM_THREADS": "1", **os.environ},
        text=True,
    )


def run(plan: Path, folder: Path, options: argparse.Namespace) -> None:
    """Train to the end."""
    training = start(plan, folder, options)
    training.communicate()
    check(training.returncode == 0, f"the training ended with code {training.returncode}")


def run_and_kill(plan: Path, folder: Path, options: argparse.Namespace) -> None:
    """Train on three devices, and kill the second one after some steps."""
    training = start(plan, folder, options)
    assert training.stdout is not None
    victim = next(int(found[1]) for line in training.stdout if (found := PROCESS.search(line)))
    while len(losses_in(folder)) < options.kill_after:
        check(training.poll() is None, "the training ended before it was to be killed")
        try:
            training.wait(0.05)
        except subprocess.TimeoutExpired:
            continue
    say(f"kill -9 {victim}")
    os.kill(victim, signal.SIGKILL)
    training.communicate()
    check(training.returncode != 0, "the training ended without a fault although a device was lost")


def losses_in(folder: Path) -> Losses:
    """Of the lines that are written; the last one of a step counts."""
    path = folder / "losses.jsonl"
    text = path.read_text() if path.exists() else ""
    lines = [json.loads(line) for line in text.splitlines(keepends=True) if line.endswith("\n")]
    return {line["step"]: line["loss"] for line in lines}


def compare(
    expected: Losses, killed: Losses, resumed: Losses, *, resumed_from: int, options: argparse.Namespace
) -> None:
    """Print the three loss curves, and check that they are one."""
    print(f"{'step':>4}  {'never interrupted':>17}  {'3 devices, killed':>17}  {'2 devices, resumed':>18}")
    for step, loss in expected.items():
        after = resumed[step] if step > resumed_from else None
        print(f"{step:>4}  {loss:>17.6f}  {_number(killed.get(step)):>17}  {_number(after):>18}")
    check(list(resumed) == list(range(1, options.steps + 1)), "steps are missing")
    worst = max(abs(loss - expected[step]) / expected[step] for step, loss in (*killed.items(), *resumed.items()))
    check(worst < TOLERANCE, f"losses differ by {worst:.1e} of themselves")
    check(expected[options.steps] < 0.8 * expected[1], "nothing was learned")
    print(f"resumed after step {resumed_from} on two devices; all losses agree within {worst:.1e} of themselves")


def say(line: str) -> None:
    """Print what a person would type."""
    print(f"$ {line}", flush=True)


def check(holds: bool, fault: str) -> None:
    """Stop with a message unless something holds."""
    if not holds:
        sys.exit(f"demo: {fault}")


def parse() -> argparse.Namespace:
    """Options of the command line."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--folder", type=Path, help="where to work; default: a temporary folder")
    parser.add_argument("--steps", type=int, default=20)
    parser.add_argument("--save-every", type=int, default=3)
    parser.add_argument("--kill-after", type=int, default=8, metavar="STEPS")
    parser.add_argument("--batch", type=int, default=12, help="samples of a step")
    parser.add_argument("--tokens", type=int, default=64, help="of a sample")
    return parser.parse_args()


def main() -> None:
    """Show it all."""
    options = parse()
    with tempfile.TemporaryDirectory() as temporary:
        folder = options.folder or Path(temporary)
        folder.mkdir(parents=True, exist_ok=True)
        interrupted = folder / "interrupted"
        three = solve("three_devices", folder, options)
        run_and_kill(three, interrupted, options)
        killed = losses_in(interrupted)
        newest = max(path.name for path in interrupted.glob("step-*"))
        two = solve("two_devices", folder, options)
        run(two, interrupted, options)
        run(three, folder / "uninterrupted", options)
        compare(
            losses_in(folder / "uninterrupted"),
            killed,
            losses_in(interrupted),
            resumed_from=int(newest.removeprefix("step-")),
            options=options,
        )


def _number(value: float | None) -> str:
    return "" if value is None else f"{value:.6f}"


if __name__ == "__main__":
    main()
