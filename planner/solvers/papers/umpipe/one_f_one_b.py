"""1F1B with a flush, PipeDream's schedule (Narayanan et al., SOSP 2019) with equal sizes: the other baseline.

Forwards and backwards take turns, so it is no choice of sizes of the searches' problem, where all backwards come after
the forwards, and may end before the best of them. Release times are not asked for.
"""

from stagecut.planner.core.messages.checks import require
from stagecut.planner.simulator.action_lists import Action, Op, stage_actions
from stagecut.planner.sublots.process_chain import ProcessChain


def one_f_one_b(forward: ProcessChain, backward: ProcessChain) -> tuple[float, int]:
    """Least time of an iteration with one of the sizes that all processes have, and that size.

    Both lines in the order of time, computations of stages and messages in turn.

    Raises
    ------
    BadInputError
        If no size is common to all.
    """
    own = [process.sizes for line in (forward, backward) for process in line.processes]
    common = set(own[0]).intersection(*own[1:])
    require(len(common) > 0, "1F1B", "sizes", "one at least that all processes have", own)
    return min((iteration_s(forward, backward, size), size) for size in sorted(common))


def iteration_s(forward: ProcessChain, backward: ProcessChain, size: int) -> float:
    """Time of an iteration; a stage keeps as many micro-batches as there are stages from it to the last one."""
    last = len(forward.processes) // 2
    lengths = [min(size, forward.num_samples - begin) for begin in range(0, forward.num_samples, size)]
    waiting = [
        stage_actions(stage, lengths, lengths, depth=(last + 1 - stage) * size)[::-1] for stage in range(last + 1)
    ]
    arrived_s = {(Op.FORWARD, 0, action.lo): 0.0 for action in waiting[0] if action.op is Op.FORWARD}
    free_s: dict[tuple[str, int], float] = {}

    def take(name: str, place: int, ready_s: float, needed_s: float) -> float:
        """Occupy a device or a link from when it is free."""
        free_s[name, place] = max(ready_s, free_s.get((name, place), 0.0)) + needed_s
        return free_s[name, place]

    def play(stage: int, action: Action) -> None:
        line, index, to = (forward, 2 * stage, stage + 1)
        if action.op is Op.BACKWARD:
            line, index, to = (backward, 2 * (last - stage), stage - 1)
        samples = action.hi - action.lo
        end_s = take("device", stage, arrived_s[action.op, stage, action.lo], line.processes[index].seconds[samples])
        if 0 <= to <= last:
            message_s = line.processes[index + 1].seconds[samples]
            arrived_s[action.op, to, action.lo] = take(f"{action.op} messages from", stage, end_s, message_s)
        elif action.op is Op.FORWARD:
            arrived_s[Op.BACKWARD, last, action.lo] = end_s

    while any(waiting):
        for stage, actions in enumerate(waiting):
            while actions and (actions[-1].op, stage, actions[-1].lo) in arrived_s:
                play(stage, actions.pop())
    return float(max(free_s.values()))
