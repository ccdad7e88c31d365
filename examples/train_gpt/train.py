"""Train a small GPT on a text: `python -m stagecut.executor plan.json train.py --plan plan.json --folder run`.

One process for each device of the plan. Started again, under the same plan or another one, it goes on
from its latest checkpoint.
"""

import argparse
import json
import os
from functools import partial
from pathlib import Path

import torch

from stagecut import executor
from stagecut.executor import checkpoint
from stagecut.executor.ranks.failures import failure_report
from stagecut.executor.ranks.rank_process import end_rank
from stagecut.executor.ranks.world import World, join_world
from stagecut.models import build_modules
from stagecut.planner.io.files.plan_file import read_plan_file

HERE = Path(__file__).parent


class Text:
    """Windows of a text, a token for each byte.

    Parameters
    ----------
    path
        Of the text.
    num_tokens
        Of a window.
    """

    def __init__(self, path: Path, *, num_tokens: int) -> None:
        self._bytes = torch.tensor(list(path.read_bytes()))
        self._offsets = torch.arange(num_tokens + 1)

    def batch(self, num_samples: int, generator: torch.Generator) -> tuple[torch.Tensor, torch.Tensor]:
        """Windows at random places, and the same windows one byte on."""
        starts = torch.randint(len(self._bytes) - len(self._offsets), (num_samples, 1), generator=generator)
        windows = self._bytes[starts + self._offsets]
        return windows[:, :-1], windows[:, 1:]


def train(options: argparse.Namespace, world: World) -> None:
    """Train this rank's part of the model, from the latest checkpoint if there is one."""
    plan_file = read_plan_file(options.plan)
    model = plan_file.problem.model
    layers = build_modules(model.name, sequence_length=model.sequence_length, dropout=0.0)
    adamw = partial(torch.optim.AdamW, lr=options.learning_rate, weight_decay=0.1)
    pipeline = executor.load(plan_file, layers, optimizer=adamw, clip_norm=1.0, device=world.device, world=world)
    print(f"{pipeline.role} is process {os.getpid()}", flush=True)

    scheduler = torch.optim.lr_scheduler.CosineAnnealingLR(pipeline.optimizer, options.steps)
    text = Text(options.text, num_tokens=model.sequence_length or 64)
    generator = torch.Generator().manual_seed(0)
    if checkpoint.latest(options.folder):
        extra = checkpoint.restore(pipeline, options.folder)
        scheduler.load_state_dict(extra["scheduler"])
        generator.set_state(extra["generator"])

    while pipeline.num_steps < options.steps:
        loss = pipeline.step(text.batch(pipeline.global_batch, generator))
        if world.rank == 0:
            log(options.folder, step=pipeline.num_steps, loss=loss, learning_rate=scheduler.get_last_lr()[0])
        scheduler.step()
        if pipeline.num_steps % options.save_every == 0:
            extra = {"scheduler": scheduler.state_dict(), "generator": generator.get_state()}
            checkpoint.save(pipeline, options.folder, extra=extra)


def log(folder: Path, **values: float) -> None:
    """Add a line to the run's losses; the last one of a step counts."""
    folder.mkdir(parents=True, exist_ok=True)
    with (folder / "losses.jsonl").open("a") as file:
        file.write(json.dumps(values) + "\n")


def parse() -> argparse.Namespace:
    """Options of the command line."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--plan", type=Path, required=True, help="plan file, for a GPT of the catalogue")
    parser.add_argument("--folder", type=Path, required=True, help="of checkpoints and losses.jsonl")
    parser.add_argument("--text", type=Path, default=HERE / "text.txt")
    parser.add_argument("--steps", type=int, default=40, help="of the whole training")
    parser.add_argument("--save-every", type=int, default=5, metavar="STEPS")
    parser.add_argument("--learning-rate", type=float, default=3e-3)
    return parser.parse_args()


def main() -> None:
    """Run one rank; when it fails, say why in one line."""
    options = parse()
    world = join_world()
    try:
        train(options, world)
        world.leave()
    except Exception as fault:
        end_rank(failure_report(fault, rank=world.rank), world)


if __name__ == "__main__":
    main()
