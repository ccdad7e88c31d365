"""A GPT that learns to count, by a plan."""

from functools import partial

import torch

from stagecut import executor
from stagecut.executor import checkpoint
from stagecut.executor.ranks.world import join_world
from stagecut.models import build_modules

NUM_STEPS, TOKENS = 60, 32


def counting(num_samples, generator):
    """Texts that count up in ones, twos or threes from anywhere below 64, and the same texts one token on."""
    start = torch.randint(64, (num_samples, 1), generator=generator)
    pace = torch.randint(1, 4, (num_samples, 1), generator=generator)
    text = (start + pace * torch.arange(TOKENS + 1)) % 64
    return text[:, :-1].contiguous(), text[:, 1:].contiguous()


world = join_world()
layers = build_modules("gpt-mini", sequence_length=TOKENS, dropout=0.0)
adamw = partial(torch.optim.AdamW, lr=2e-3, weight_decay=0.1)
pipeline = executor.load("plan.json", layers, optimizer=adamw, clip_norm=1.0, device=world.device, world=world)
scheduler = torch.optim.lr_scheduler.CosineAnnealingLR(pipeline.optimizer, NUM_STEPS)
samples = torch.Generator().manual_seed(0)

if checkpoint.latest("run"):
    extra = checkpoint.restore(pipeline, "run")
    scheduler.load_state_dict(extra["scheduler"])
    samples.set_state(extra["samples"])

while pipeline.num_steps < NUM_STEPS:
    loss = pipeline.step(counting(pipeline.global_batch, samples))  # put your data here
    scheduler.step()
    if pipeline.num_steps % 10 == 0:
        held_out = pipeline.evaluate(counting(pipeline.global_batch, torch.Generator().manual_seed(1)))
        if world.rank == 0:
            print(f"step {pipeline.num_steps}: loss {loss:.3f}, held out {held_out:.3f}")
        checkpoint.save(pipeline, "run", extra={"scheduler": scheduler.state_dict(), "samples": samples.get_state()})
world.leave()
