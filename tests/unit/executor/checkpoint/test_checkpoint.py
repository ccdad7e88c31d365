"""Checkpoints of a single process."""

import json
from functools import partial

import pytest
import torch
from torch import nn

from stagecut.executor import Team, checkpoint, load
from stagecut.executor.execution_plan import Training
from stagecut.executor.manual_plan import plan_of
from stagecut.planner.core.messages.errors import BadInputError, OutputError

ADAMW = partial(torch.optim.AdamW, lr=0.1, weight_decay=0.01)
BATCH = (torch.ones(4, 2), torch.zeros(4, 2))


def layers(*, width=3, norm=True):
    """Two products, and a normalisation that keeps statistics between them."""
    return [
        lambda: nn.Linear(2, width),
        *([lambda: nn.BatchNorm1d(width)] if norm else []),
        lambda: nn.Linear(width, 2),
    ]


def pipeline_of(own=None, *, optimizer=ADAMW, seed=0):
    own = own or layers()
    return load(plan_of((0, len(own)), num_microbatches=2), own, nn.functional.mse_loss, optimizer, seed=seed)


def trained(steps=1, **options):
    pipeline = pipeline_of(**options)
    for _ in range(steps):
        pipeline.step(BATCH)
    return pipeline


def contents(pipeline):
    """All numbers that training changes."""
    return {
        "parameters": [parameter.tolist() for parameter in pipeline.named_parameters().values()],
        "buffers": [buffer.tolist() for buffer in pipeline.named_buffers().values()],
        "states": [
            {key: value.tolist() if isinstance(value, torch.Tensor) else value for key, value in state.items()}
            for state in pipeline.optimizer.state_dict()["state"].values()
        ],
        "settings": pipeline.optimizer.state_dict()["param_groups"],
        "steps": pipeline.num_steps,
    }


def refusal(pipeline, folder, kind=BadInputError):
    with pytest.raises(kind) as caught:
        checkpoint.restore(pipeline, folder)
    assert len(str(caught.value).splitlines()) == 1
    return str(caught.value)


def test_what_was_saved_comes_back_whatever_the_model_had_been_before(tmp_path):
    """Another seed, and steps that are taken back; the statistics of the normalisation are of the checkpoint too."""
    saved = trained(3)
    place = checkpoint.save(saved, tmp_path)
    assert place == tmp_path / "step-000003"
    other = trained(5, seed=1)
    assert contents(other) != contents(saved)
    checkpoint.restore(other, place)
    assert contents(other) == contents(saved)


def test_extra_values_come_back_as_they_were(tmp_path):
    generator = torch.Generator().manual_seed(7)
    extra = {"generator": generator.get_state(), "best": (0.5, [1, None]), "text": {"name": True}}
    checkpoint.save(trained(), tmp_path, extra=extra)
    restored = checkpoint.restore(pipeline_of(), tmp_path)
    assert torch.equal(restored.pop("generator"), extra.pop("generator"))
    assert restored == extra


def test_newest_checkpoint_is_taken_and_the_oldest_go(tmp_path):
    pipeline = pipeline_of()
    for _ in range(4):
        pipeline.step(BATCH)
        checkpoint.save(pipeline, tmp_path, keep=2)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["step-000003", "step-000004"]
    checkpoint.restore(other := pipeline_of(), tmp_path)
    assert other.num_steps == 4


def test_saving_a_step_again_replaces_it(tmp_path):
    pipeline = trained()
    checkpoint.save(pipeline, tmp_path, extra={"time": 1})
    checkpoint.save(pipeline, tmp_path, extra={"time": 2})
    assert checkpoint.restore(pipeline_of(), tmp_path) == {"time": 2}
    assert [path.name for path in tmp_path.iterdir()] == ["step-000001"]


def test_checkpoint_before_the_first_step_has_no_optimizer_state(tmp_path):
    """The state that the pipeline had is dropped."""
    checkpoint.save(pipeline_of(), tmp_path)
    pipeline = trained(2)
    checkpoint.restore(pipeline, tmp_path)
    assert not pipeline.optimizer.state
    assert pipeline.num_steps == 0


@pytest.mark.parametrize(
    "optimizer",
    [
        partial(torch.optim.SGD, lr=0.1),
        partial(torch.optim.SGD, lr=0.1, momentum=0.9),
        partial(torch.optim.Adagrad, lr=0.1),
        partial(torch.optim.NAdam, lr=0.1),
        partial(torch.optim.Adafactor, lr=0.1),
        partial(torch.optim.Rprop, lr=0.1),
    ],
)
def test_any_optimizer_goes_on_as_without_interruption(tmp_path, optimizer):
    expected = trained(4, optimizer=optimizer)
    checkpoint.save(trained(2, optimizer=optimizer), tmp_path)
    pipeline = pipeline_of(optimizer=optimizer)
    checkpoint.restore(pipeline, tmp_path)
    for _ in range(2):
        pipeline.step(BATCH)
    assert contents(pipeline) == contents(expected)


def test_groups_of_parameters_keep_their_settings(tmp_path):
    """A factory that decays matrices only; the learning rate of one group has been changed since."""

    def two_groups(groups):
        parameters = [parameter for group in groups for parameter in group["params"]]
        matrices = {"params": [parameter for parameter in parameters if parameter.ndim > 1], "weight_decay": 0.5}
        vectors = {"params": [parameter for parameter in parameters if parameter.ndim == 1], "weight_decay": 0.0}
        return torch.optim.AdamW([matrices, vectors], lr=0.1)

    saved = trained(optimizer=two_groups)
    saved.optimizer.param_groups[1]["lr"] = 0.25
    checkpoint.save(saved, tmp_path)
    checkpoint.restore(pipeline := pipeline_of(optimizer=two_groups), tmp_path)
    settings = [(group["lr"], group["weight_decay"]) for group in pipeline.optimizer.param_groups]
    assert settings == [(0.1, 0.5), (0.25, 0.0)]
    message = refusal(pipeline_of(), tmp_path)
    assert "'layer0.weight' and 'layer0.bias' are in one parameter group" in message


def test_masks_after_a_restore_are_not_those_of_the_first_steps(tmp_path):
    checkpoint.save(trained(), tmp_path)
    pipeline = pipeline_of()
    first = torch.rand(3)
    pipeline = pipeline_of()
    checkpoint.restore(pipeline, tmp_path)
    assert not torch.equal(first, torch.rand(3))


@pytest.mark.parametrize(
    ("own", "message"),
    [
        (layers(norm=False), "layer 2 is 'layer2' there and missing here"),
        (layers(width=4), "'layer0.weight' is of shape [3, 2] there and of shape [4, 2] here"),
        (
            [*layers()[:2], lambda: nn.Linear(3, 2, bias=False)],
            "'layer2.bias' is of shape [2] there and missing here",
        ),
    ],
)
def test_checkpoint_of_another_model_is_refused_by_the_first_difference(tmp_path, own, message):
    checkpoint.save(trained(), tmp_path)
    pipeline = pipeline_of(own)
    before = contents(pipeline)
    assert message in refusal(pipeline, tmp_path)
    assert contents(pipeline) == before


def test_checkpoint_of_another_optimizer_is_refused(tmp_path):
    checkpoint.save(trained(), tmp_path)
    message = refusal(pipeline_of(optimizer=torch.optim.SGD), tmp_path)
    assert "the optimizer is AdamW there and SGD here" in message


def test_folder_without_a_checkpoint_is_refused(tmp_path):
    assert "contains no complete checkpoint" in refusal(pipeline_of(), tmp_path / "nowhere")


@pytest.mark.parametrize("name", ["values.pt", ".metadata", "__0_0.distcp", "checkpoint.json"])
def test_damaged_checkpoint_is_refused(tmp_path, name):
    place = checkpoint.save(trained(), tmp_path)
    (place / name).write_bytes(b"damaged")
    assert "cannot be read" in refusal(pipeline_of(), place)


def test_checkpoint_of_a_later_version_is_refused(tmp_path):
    path = checkpoint.save(trained(), tmp_path) / "checkpoint.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), "schema": 3}))
    assert "schema must be 1 or 2, got 3" in refusal(pipeline_of(), tmp_path)


def test_folder_that_cannot_be_written_is_refused(tmp_path):
    (tmp_path / "file").write_text("in the way")
    with pytest.raises(OutputError, match=r"cannot be written: .*; earlier checkpoints are intact"):
        checkpoint.save(trained(), tmp_path / "file")


def test_extra_that_could_not_be_read_back_is_refused(tmp_path):
    with pytest.raises(BadInputError, match="extra must consist of tensors, numbers, text"):
        checkpoint.save(trained(), tmp_path, extra={"pipeline": BadInputError("no")})
    assert not any(tmp_path.iterdir())


def test_threads_of_a_team_are_refused(tmp_path):
    team = Team(plan_of((0, 1, 3)), layers(), Training(loss_fn=nn.functional.mse_loss))
    with pytest.raises(BadInputError, match=r"threads of a Team .* torchrun --nproc-per-node 2"):
        checkpoint.save(team.pipelines[0], tmp_path)
