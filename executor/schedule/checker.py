"""Checks action lists before anything starts."""

from collections.abc import Sequence

from stagecut.executor.schedule.labels import action_label
from stagecut.executor.schedule.rank_layout import message_sizes
from stagecut.planner.core.messages.checks import require
from stagecut.planner.core.messages.errors import BadInputError
from stagecut.planner.core.plan import Plan
from stagecut.planner.simulator.action_lists import Action, Op
from stagecut.planner.simulator.compilation import compile_actions


def check_lists(lists: Sequence[Sequence[Action]], plan: Plan) -> None:
    """Refuse action lists that cannot be played, or not within the planned memory.

    Raises
    ------
    BadInputError
        If the stages are not those of the plan or are on other device groups; if the forwards or backwards of a stage
        do not cover the pipeline's samples exactly once; if a backward precedes a forward of its samples or cuts
        through one; if a split backward lacks one half; if device groups deadlock (the stuck actions are named); or if
        a stage holds more samples than its warm-up depth allows.
    """
    num_groups = len(plan.stages) // plan.chunks
    require(len(lists) == num_groups, "schedule", "action lists", f"one for each of {num_groups} groups", len(lists))
    for group, actions in enumerate(lists):
        own = set(range(group, len(plan.stages), num_groups))
        stages = {action.stage for action in actions}
        require(stages == own, f"device group {group}", "stages", f"{sorted(own)}", sorted(stages))
    # other stages wait for input gradients as for whole backwards; weight gradients are internal to the stage
    compile_actions(
        [
            [
                action._replace(op=Op.BACKWARD) if action.op is Op.INPUT_GRADIENT else action
                for action in actions
                if action.op is not Op.WEIGHT_GRADIENT
            ]
            for actions in lists
        ],
        message_sizes(plan),
    )
    num_samples = plan.num_samples
    for actions in lists:
        for stage in sorted({action.stage for action in actions}):
            own_actions = [action for action in actions if action.stage == stage]
            last = max(action.hi for action in own_actions)
            require(last == num_samples, f"stage {stage}", "last sample", f"{num_samples}, as planned", last)
            _check_unions(own_actions)
            _check_halves(own_actions)
            _check_buffers(own_actions, plan)


def _check_unions(actions: Sequence[Action]) -> None:
    """A backward covers whole forwards: autograd cannot split a graph by samples."""
    forwards = [action for action in actions if action.op is Op.FORWARD]
    ends = {cut for forward in forwards for cut in (forward.lo, forward.hi)}
    for stage, lo, hi in (action[1:] for action in actions):
        for cut in {lo, hi} - ends:
            parted = next(forward for forward in forwards if forward.lo < cut < forward.hi)
            raise BadInputError(
                f"stage {stage}: backward of samples [{lo}, {hi}) cuts through the forward of "
                f"[{parted.lo}, {parted.hi}); every backward must be a union of forwards"
            )


def _check_halves(actions: Sequence[Action]) -> None:
    waiting: set[tuple[int, int]] = set()
    for action in actions:
        samples = (action.lo, action.hi)
        if action.op is Op.INPUT_GRADIENT:
            waiting.add(samples)
        elif action.op is Op.WEIGHT_GRADIENT:
            if samples not in waiting:
                raise BadInputError(f"schedule: {action_label(action)} needs an I of the same samples before it")
            waiting.remove(samples)
    if waiting:
        lo, hi = min(waiting)
        raise BadInputError(f"schedule: I of samples [{lo}, {hi}) on stage {actions[0].stage} has no W after it")


def _check_buffers(actions: Sequence[Action], plan: Plan) -> None:
    """Compare samples awaiting a backward with the warm-up depth for which memory was planned."""
    stage = plan.stages[actions[0].stage]
    allowed = stage.warmup_depth * stage.forward_micro_batch
    held = 0
    frees = Op.WEIGHT_GRADIENT if any(action.op is Op.WEIGHT_GRADIENT for action in actions) else Op.BACKWARD
    for action in actions:
        held += (action.hi - action.lo) * ((action.op is Op.FORWARD) - (action.op in (frees, Op.BACKWARD)))
        if held > max(allowed, stage.backward_micro_batch):
            raise BadInputError(
                f"schedule: with {action_label(action)} the stage holds {held} samples, but "
                f"its warm-up depth of {stage.warmup_depth} x {stage.forward_micro_batch} allows {allowed}"
            )
