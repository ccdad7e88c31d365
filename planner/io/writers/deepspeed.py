"""Plans for DeepSpeed's pipeline engine.

A `PipelineModule` splits its list of layers at the bounds `parts`: stage s has the layers
[parts[s], parts[s + 1]). It computes these bounds itself, so a subclass has to set them. The only schedule is 1F1B,
all stages share one activation checkpoint interval, and ranks are numbered as the axes of a `ProcessTopology` say.
"""

from stagecut.planner.core.frameworks import Framework, RankOrder
from stagecut.planner.core.plan import Plan
from stagecut.planner.core.precision import Precision
from stagecut.planner.core.problem import Problem
from stagecut.planner.core.schedule import Schedule
from stagecut.planner.io.documents.canonical import Tree, TreeValue, format_json
from stagecut.planner.io.writers.launch import Export, folder_files
from stagecut.planner.io.writers.uniform_plan import UniformPlan, cuts_of, is_tied, uniform_plan

PLAN, MODULE = "plan.json", "cut_module.py"
SCHEDULES = {Schedule.ONE_F_ONE_B: "1F1B"}
AXES = {RankOrder.STAGES_LAST: ("pipe", "data", "model"), RankOrder.COPIES_LAST: ("data", "pipe", "model")}
"""Axes of a topology, the slowest first."""
MODULE_TEXT = '''"""The plan beside this file, as a pipeline module of DeepSpeed."""

import json
from pathlib import Path

from deepspeed.pipe import PipelineModule
from deepspeed.runtime.pipe.topology import ProcessTopology

PLAN = json.loads(Path(__file__).with_name("plan.json").read_text())
CONFIG = PLAN["config"]


class CutModule(PipelineModule):
    """A pipeline module with the stages of the plan."""

    def __init__(self, layers, **arguments):
        if len(layers) != len(PLAN["layers"]):
            raise ValueError(f"got {len(layers)} layers, but the plan cuts {len(PLAN['layers'])}: {PLAN['layers']}")
        super().__init__(
            layers,
            topology=ProcessTopology(**PLAN["topology"]),
            activation_checkpoint_interval=PLAN["activation_checkpoint_interval"],
            **arguments,
        )

    def _partition_layers(self, method="parts"):
        self.parts = PLAN["parts"]
        stage = self._topo.get_coord(self.global_rank).pipe
        self._set_bounds(start=self.parts[stage], stop=self.parts[stage + 1])
'''


def deepspeed_tree(problem: Problem, plan: Plan) -> Tree:
    """Bounds, arguments of the topology and the module, and entries of the configuration file.

    Raises the errors of :func:`stagecut.planner.io.writers.uniform_plan.uniform_plan`.
    """
    return _tree(_checked(problem, plan))


def deepspeed_files(problem: Problem, plan: Plan) -> dict[str, str]:
    """The same with a module that reads it and the commands of all hosts; raises the same errors."""
    uniform = _checked(problem, plan)
    tied = ("The weights of embedding and head are the same: build both as `TiedLayerSpec` with one key.",)
    export = Export(
        framework="DeepSpeed, read in 0.19.8",
        command="train.py",
        files={PLAN: format_json(_tree(uniform)), MODULE: MODULE_TEXT},
        meanings={
            PLAN: "stages, topology, and `config` for the configuration file",
            MODULE: "`CutModule`, a `PipelineModule` with these stages",
        },
        notes=(
            "In your `train.py`, build `CutModule(layers, loss_fn=...)` from the layers that the plan names, and add "
            "the optimizer to `CONFIG`: `deepspeed.initialize(model=module, config=CONFIG)`.",
            *(tied if is_tied(problem.model) else ()),
        ),
    )
    return folder_files(uniform, export)


def _checked(problem: Problem, plan: Plan) -> UniformPlan:
    return uniform_plan(
        problem, plan, framework=Framework.DEEPSPEED, schedules=SCHEDULES, orders=lambda _: tuple(RankOrder)
    )


def _tree(uniform: UniformPlan) -> Tree:
    sizes = {"pipe": uniform.plan.num_groups, "data": uniform.data_parallel, "model": uniform.degrees.tensor}
    axes = AXES[uniform.ranked_devices.order]
    return {
        "parts": list(cuts_of(uniform.plan)),
        "layers": [layer.name for layer in uniform.problem.model.layers],
        "topology": {"axes": list(axes), "dims": [sizes[axis] for axis in axes]},
        "activation_checkpoint_interval": int(uniform.stage.recompute),
        "devices_by_rank": list(uniform.ranked_devices.devices),
        "config": _configuration(uniform),
    }


def _configuration(uniform: UniformPlan) -> Tree:
    tree: dict[str, TreeValue] = {
        "train_batch_size": uniform.problem.job.global_batch,
        "train_micro_batch_size_per_gpu": uniform.samples_per_replica,
        "gradient_accumulation_steps": uniform.plan.num_microbatches,
    }
    if uniform.problem.job.precision is not Precision.FP32:
        tree[str(uniform.problem.job.precision)] = {"enabled": True}
    if uniform.num_state_parts > 1 or uniform.problem.job.zero1:
        tree["zero_optimization"] = {"stage": 1}
    return tree
