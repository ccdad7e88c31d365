"""What a training loop of one's own may do, and what it is stopped at: ranks as processes."""

from functools import partial

import torch

from stagecut import executor
from stagecut.executor.manual_plan import plan_of
from stagecut.executor.play.reference import reference_step
from stagecut.executor.play.tensor_parallel import whole
from stagecut.executor.ranks.failures import LossError
from stagecut.planner.core.messages.errors import BadInputError
from stagecut.planner.core.plan import Plan
from tests.executor import pool
from tests.executor.tied_chain import VOCABULARY, chain

PLAN = plan_of((0, 3, 6), replicas=(2, 1), tensor_parallel=(1, 2), num_microbatches=3)
"""Four ranks: two replicas, then two devices that share a stage."""
LENGTHS = (5, 8, 2, 5)
FROZEN = partial(torch.optim.SGD, lr=0.0)


def tokens_of(samples: int, length: int, seed: int = 0) -> tuple[torch.Tensor, torch.Tensor]:
    """A global batch of texts of that length."""
    tokens = torch.randint(VOCABULARY, (samples, length), generator=torch.Generator().manual_seed(seed))
    return tokens, tokens.flip(1)


def stopped(call, batch) -> str:
    """Return the message of the error that a call raises."""
    try:
        call(batch)
    except (BadInputError, LossError) as fault:
        return f"{type(fault).__name__}: {fault}"
    return "not stopped"


def loop(plan: Plan) -> tuple[float, list[str]]:
    """Run on one rank; return the largest difference from a single process, and the messages of what is refused."""
    torch.set_default_dtype(torch.float64)
    rank = torch.distributed.get_rank()
    pipeline = executor.load(plan, chain(), optimizer=FROZEN, seed=5)
    differences = []
    for length in LENGTHS:
        batch = tokens_of(pipeline.global_batch, length)
        expected = reference_step(chain(), batch, chain().loss, seed=5)
        differences += [abs(pipeline.evaluate(batch) - expected.loss), abs(pipeline.step(batch) - expected.loss)]
        differences += [
            float((whole(parameter.grad).cpu() - expected.gradients[name]).abs().max())
            for name, parameter in pipeline.named_parameters().items()
        ]
    messages = [
        stopped(pipeline.step, tokens_of(pipeline.global_batch, 5, seed=rank // 3)),
        stopped(pipeline.evaluate, tokens_of(pipeline.global_batch, 5 + rank)),
        stopped(pipeline.step, tokens_of(pipeline.global_batch + 2, 5)),
    ]
    with torch.no_grad():
        for name, parameter in pipeline.named_parameters().items():
            if name == "block3.norm.weight":
                parameter.fill_(float("inf"))
    messages.append(stopped(pipeline.step, tokens_of(pipeline.global_batch, 8)))
    return max(differences), messages


def test_lengths_may_change_and_faults_are_told_alike_on_all_ranks() -> None:
    """Ranks 2 and 3, on stage 1, both hold the norm of block3; a fault leaves the ranks in step for the next call."""
    answers = pool.run(loop, PLAN, world_size=4)
    assert max(difference for difference, _ in answers) < 1e-9
    ((other, lengths, samples, infinite),) = {tuple(messages) for _, messages in answers}
    assert other.startswith("BadInputError: batch: ")
    assert "ranks 0, 1 and 2 and rank 3 have different values" in other
    assert all(f"rank {rank}: inputs (6, {5 + rank}) int64" in lengths for rank in range(4))
    assert samples == "BadInputError: batch: samples of the inputs must be 6, got 8"
    assert "F of samples [0, 2) on stage 1: the loss of step 5 is nan" in infinite
    assert "the output of layer 'block3'" in infinite
