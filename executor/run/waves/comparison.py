"""A wave of synchronous workers compared with a step of a single process."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace

import torch
from torch import Tensor
from torch.optim import Optimizer

from stagecut.executor.play.reference import Reference, reference_step
from stagecut.executor.ranks.world import World
from stagecut.executor.run.comparison import compare, double_precision, refuse_batch_norm
from stagecut.executor.run.options import RunOptions
from stagecut.executor.run.waves.loop import wave_data, whole_batch
from stagecut.executor.run.waves.record import losses_of
from stagecut.executor.waves.loading import load_waves
from stagecut.executor.waves.setting.execution import WaveTraining
from stagecut.executor.waves.setting.report import WaveReport
from stagecut.executor.waves.stage_worker import StageWorker
from stagecut.executor.waves.state import optimizer_states
from stagecut.executor.waves.team import WaveTeam
from stagecut.models.modules.module_chain import ModuleChain
from stagecut.planner.core.messages.errors import BadInputError
from stagecut.planner.core.run_record import CheckRecord
from stagecut.planner.core.virtual_workers.wave_plan import WavePlan
from stagecut.planner.core.waves import LocalStep
from stagecut.planner.io.files.wave_plan_file import WavePlanFile

NO_CHECK = (
    "--check: virtual workers that step after each minibatch, or are waves apart, compute with weights of different "
    "age, as no single process does; omit --check, or plan with --local-step wave and --clock-distance 0"
)


def check_checkable(plan: WavePlan) -> None:
    """Refuse plans that no single process computes the same as.

    Raises
    ------
    BadInputError
        Unless workers make one step a wave together: then they train synchronously.
    """
    if plan.local_step is not LocalStep.WAVE or plan.clock_distance > 0:
        raise BadInputError(NO_CHECK)


def check_wave(
    plan_file: WavePlanFile, options: RunOptions, *, world: World, device: torch.device
) -> CheckRecord | None:
    """Compare loss and every worker's gradients of the first wave with a single process: see `check_step`.

    Raises
    ------
    BadInputError
        If the model has batch normalisation, whose statistics depend on the minibatch.
    """
    with double_precision():
        chain = options.chain(plan_file)
        rank = load_waves(
            plan_file.plan,
            chain,
            optimizer=KeptGradients,
            seed=options.seed,
            check_finite=False,
            problem=plan_file.problem,
            device=device,
            world=world,
            timeout_s=options.timeout_s,
        )
        engine = rank.engine
        if isinstance(engine, StageWorker):
            refuse_batch_norm([engine.module])
        report = replace(rank.train(wave_data(plan_file, chain, options), num_waves=1), spans=(), transfers=())
        gathered = world.gather((report, _gradients(rank.optimizer_states())), classes=(WaveReport,))
        return None if gathered is None else _compared(plan_file, options, chain, gathered, device=device)


def check_wave_team(plan_file: WavePlanFile, options: RunOptions, *, device: torch.device) -> CheckRecord:
    """The same for stages that are threads of this process.

    Raises
    ------
    BadInputError
        See :func:`check_wave`.
    """
    with double_precision():
        chain = options.chain(plan_file)
        training = WaveTraining(optimizer=KeptGradients, seed=options.seed, check_finite=False)
        team = WaveTeam(plan_file.plan, chain, training, problem=plan_file.problem, device=device)
        refuse_batch_norm([worker.module for worker in team.workers])
        reports = team.train(wave_data(plan_file, chain, options), num_waves=1)
        gradients = [_gradients(optimizer_states(worker)) for worker in team.workers]
        return _compared(plan_file, options, chain, list(zip(reports, gradients, strict=True)), device=device)


class KeptGradients(Optimizer):
    """Keeps in its state what it should step with."""

    def __init__(self, parameters: Iterable[Tensor]) -> None:
        super().__init__(parameters, {})

    def step(self, closure: Callable[[], float] | None = None) -> None:  # type: ignore[override]
        """See :class:`torch.optim.Optimizer`; weights stay as they are."""
        assert closure is None
        for group in self.param_groups:
            for parameter in group["params"]:
                self.state[parameter]["gradient"] = parameter.grad.clone()


def _gradients(states: Mapping[str, Mapping[str, Tensor]]) -> dict[str, Tensor]:
    return {name: state["gradient"] for name, state in states.items()}


def _compared(
    plan_file: WavePlanFile,
    options: RunOptions,
    chain: ModuleChain,
    gathered: Sequence[tuple[WaveReport, Mapping[str, Tensor]]],
    *,
    device: torch.device,
) -> CheckRecord:
    """The comparison of the worker that differs most: each of them steps with the gradients of all."""
    assert chain.loss is not None  # checked by `layers_of`
    batch = whole_batch(plan_file, chain, options)
    reference = _with_copies(chain, reference_step(chain, batch, chain.loss, seed=options.seed, device=device))
    (loss,) = losses_of(plan_file.plan, [report for report, _ in gathered])
    records = []
    for worker in range(len(plan_file.plan.workers)):
        own = [gradients for report, gradients in gathered if report.worker == worker]
        found = {name: gradient for part in own for name, gradient in part.items()}
        used = {name: each for name, each in found.items() if name in reference.gradients or each.any()}
        records.append(compare(reference, loss=float("nan") if loss is None else loss, gradients=used))
    return max(records, key=lambda record: record.largest_gradient_difference)


def _with_copies(chain: ModuleChain, reference: Reference) -> Reference:
    """The same with gradients of tied weights under the names of all their copies."""

    def name(place: tuple[int, str]) -> str:
        return f"{chain.layers[place[0]].name}.{place[1]}"

    copies = {name(tie.copy): reference.gradients[name(tie.owner)] for tie in chain.ties}
    return replace(reference, gradients=reference.gradients | copies)
