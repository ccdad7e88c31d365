"""A simulated run of virtual workers as a tree of plain values, ready for JSON."""

import math

from stagecut.planner.core.waves import local_staleness
from stagecut.planner.cost.waves.wave_costs import WorkerCosts
from stagecut.planner.report.summary import SCHEMA, values_of
from stagecut.planner.simulator.waves.timeline import WaveTimeline


def wave_simulation_summary(timeline: WaveTimeline) -> dict[str, object]:
    """Throughput in the long run, staleness, and what each worker and stage does and waits for."""
    plan, steady = timeline.costs.plan, timeline.steady
    return {
        "schema": SCHEMA,
        "samples_per_s": timeline.samples_per_s,
        "bytes_across_hosts_per_minibatch": timeline.bytes_across_hosts,
        "steady_state": values_of(steady, "first_wave", "num_waves", "period_s", "wave_s", "is_exact"),
        **{name: str(getattr(plan, name)) for name in ("local_step", "carrier", "shards")},
        **values_of(plan, "clock_distance", "samples_per_wave"),
        "workers": [_worker(timeline, number) for number in range(len(plan.workers))],
    }


def _worker(timeline: WaveTimeline, number: int) -> dict[str, object]:
    plan, costs = timeline.costs.plan, timeline.costs.workers[number]
    staleness = plan.staleness_of_others(number)
    reduces_s = timeline.costs.all_reduce_s(number).tolist()
    return {
        **values_of(costs.worker, "minibatch", "in_flight", "wave"),
        "local_staleness": local_staleness(costs.worker.in_flight),
        "global_staleness": max(staleness),
        "staleness_of_others": staleness,
        "waits_per_wave": values_of(timeline.steady.waits[number], "gate_s", "pipeline_s", "link_s"),
        "stages": [
            {**_stage(costs, index), "all_reduce_s": reduce_s, "busy_share": busy}
            for index, (busy, reduce_s) in enumerate(zip(timeline.busy_share[number], reduces_s, strict=True))
        ],
    }


def _stage(costs: WorkerCosts, index: int) -> dict[str, object]:
    stage, limit_bytes = costs.worker.stages[index], float(costs.limit_bytes[index])
    return {
        "layers": [stage.start, stage.stop],
        **values_of(stage, "devices", "recompute", "warmup_depth"),
        **{name: float(getattr(costs, name)[index]) for name in ("forward_s", "backward_s", "update_s")},
        "transfer_s": float(costs.transfer_s[index]) if index + 1 < costs.worker.num_stages else None,
        "exchanges": [
            values_of(each, "owner", "push_s", "pull_s", "push_bytes", "pull_bytes") for each in costs.exchanges[index]
        ],
        "memory_bytes": float(costs.memory_bytes[index]),
        "limit_bytes": limit_bytes if math.isfinite(limit_bytes) else None,
    }
