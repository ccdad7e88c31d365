"""What all ranks must have in common."""

from functools import partial

import pytest
import torch
from torch import nn

from stagecut.executor import Team
from stagecut.executor.execution_plan import Training
from stagecut.executor.manual_plan import plan_of
from stagecut.executor.play.agreement import fingerprint
from stagecut.planner.core.messages.errors import BadInputError

FOUR = plan_of((0, 1, 2), replicas=(2, 2), micro_batch=2, num_microbatches=2)
"""Four ranks, batches of four samples."""
NUMBERS = torch.arange(12.0).reshape(4, 3)


def team(**options) -> Team:
    torch.manual_seed(0)
    sgd = partial(torch.optim.SGD, lr=0.1)
    training = Training(loss_fn=nn.functional.mse_loss, optimizer=sgd, **options)
    return Team(FOUR, [nn.Linear(3, 3), nn.Linear(3, 3)], training)


def each_steps_on(own_team: Team, *batches: tuple[torch.Tensor, torch.Tensor]) -> None:
    """A batch for every rank."""
    own_team.each(lambda pipeline: pipeline.step(batches[pipeline.role.rank]))


def test_rank_with_other_numbers_is_named() -> None:
    """One number of the targets of rank 2."""
    other = NUMBERS.clone()
    other[3, 1] += 1
    batches = [(NUMBERS, NUMBERS)] * 2 + [(NUMBERS, other), (NUMBERS, NUMBERS)]
    with pytest.raises(BadInputError, match=r"ranks 0, 1 and 3 and rank 2 have different values"):
        each_steps_on(team(), *batches)


def test_batches_of_other_shapes_and_types_are_told() -> None:
    """Shapes that would leave the ranks waiting for each other, or reading other numbers than were sent."""
    wide, whole = torch.zeros(4, 5), NUMBERS.long()
    with pytest.raises(BadInputError) as fault:
        each_steps_on(team(), (NUMBERS, NUMBERS), (wide, NUMBERS), (NUMBERS, NUMBERS), (whole, NUMBERS))
    assert "ranks 0 and 2: inputs (4, 3) float32, targets (4, 3) float32" in str(fault.value)
    assert "; rank 1: inputs (4, 5) float32, targets (4, 3) float32" in str(fault.value)
    assert "; rank 3: inputs (4, 3) int64, targets (4, 3) float32" in str(fault.value)


def test_rank_without_a_batch_is_named() -> None:
    """One that believes that it needs none, and one with too few samples: every rank is told of both."""
    batch = NUMBERS, NUMBERS
    with pytest.raises(BadInputError, match="rank 3: inputs NoneType, targets NoneType"):
        each_steps_on(team(), batch, batch, batch, None)
    with pytest.raises(BadInputError, match=r"rank 1: inputs \(2, 3\) float32, targets \(2, 3\) float32"):
        each_steps_on(team(), batch, (NUMBERS[:2], NUMBERS[:2]), batch, batch)


def test_ranks_that_call_different_methods_are_told() -> None:
    """Rank 0 looks, as in `if rank == 0: pipeline.evaluate(...)`."""

    def work(pipeline):
        return pipeline.evaluate if pipeline.role.rank == 0 else pipeline.step

    with pytest.raises(BadInputError, match="ranks 1, 2 and 3 called step; rank 0 called evaluate"):
        team().each(lambda pipeline: work(pipeline)((NUMBERS, NUMBERS)))


def test_weights_stay_as_they_were_when_batches_differ() -> None:
    """It is found before anything is computed."""
    own = team()
    before = [value.clone() for pipeline in own.pipelines for value in pipeline.named_parameters().values()]
    with pytest.raises(BadInputError):
        each_steps_on(own, *[(NUMBERS + rank, NUMBERS) for rank in range(4)])
    after = [value for pipeline in own.pipelines for value in pipeline.named_parameters().values()]
    assert all(torch.equal(old, new) for old, new in zip(before, after, strict=True))
    assert all(pipeline.num_steps == 0 for pipeline in own.pipelines)


def test_check_can_be_left_out() -> None:
    """Ranks without inputs or targets of their own may be given anything of the right size."""
    other = torch.zeros(4, 3)
    mixed = [(NUMBERS, other)] * 2 + [(other, NUMBERS)] * 2
    losses = team(check_batches=False).each(lambda pipeline: pipeline.evaluate(mixed[pipeline.role.rank]))
    assert losses == [team().evaluate((NUMBERS, NUMBERS))] * 4


def distinct(*tensors: torch.Tensor) -> bool:
    return len({fingerprint([tensor]) for tensor in tensors}) == len(tensors)


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.bfloat16, torch.int64, torch.uint8, torch.bool])
def test_every_change_of_the_contents_changes_the_fingerprint(dtype: torch.dtype) -> None:
    """A single element anywhere in 20,001; two of them exchanged; all of them moved on; the halves exchanged."""
    generator = torch.Generator().manual_seed(0)
    start = torch.randint(0, 2, (20001,), generator=generator).to(dtype)
    changed = [start.clone() for _ in range(40)]
    for place, tensor in enumerate(changed):
        tensor[place * 500] = 1 - tensor[place * 500].to(torch.int64)
    first, last = int(start.nonzero()[0]), int((start == 0).nonzero()[-1])
    exchanged = start.clone()
    exchanged[first], exchanged[last] = start[last], start[first]
    turned = [start.roll(by) for by in (1, 1024, 8192, 10000)]
    assert distinct(start, exchanged, *turned, *changed)


def test_fingerprint_is_that_of_the_contents_only() -> None:
    """Strides, place in memory and alignment do not matter."""
    table = torch.randint(256, (300, 301), dtype=torch.uint8)
    expected = fingerprint([table.clone()])
    assert fingerprint([table.t().contiguous().t()]) == expected
    for offset in (1, 7, 8):
        shifted = torch.cat([torch.zeros(offset, dtype=torch.uint8), table.reshape(-1)])[offset:]
        assert fingerprint([shifted]) == expected
    assert fingerprint([torch.tensor(3.0)]) != fingerprint([torch.tensor(4.0)])
    assert fingerprint([torch.empty(0)]) == fingerprint([torch.empty(0, 3)])
