"""Training through waves: virtual workers of different shape, continuous pipelines, bounded staleness.

What it offers, on top of a :class:`stagecut.planner.core.virtual_workers.wave_plan.WavePlan`:

- :func:`stagecut.executor.waves.loading.load_waves`: one rank of several processes, a
  :class:`~stagecut.executor.waves.loading.WaveRank`. All ranks, parameter servers included, call `train(data,
  num_waves=...)`, which returns a :class:`~stagecut.executor.waves.setting.report.WaveReport` (losses, clock, staleness
  seen and allowed, waits by cause, spans), and `global_weights()`. Between two calls every pipeline is empty, all that
  was to be pushed has been, and nothing is under way: training in several calls is training in one.
- its `state()` and `restore(state)`, exact on the same rank of the same plan, and `start_from(weights, states)` by
  global names for any plan (:mod:`stagecut.executor.waves.state`).
- :class:`stagecut.executor.waves.team.WaveTeam`: the same with all ranks as threads of one process.
- :func:`stagecut.executor.waves.setting.data.sharded`: a data set divided among the workers.
- a pace and wrapped channels (`WaveTeam(..., pace=, channel=)`), for dilated mode.
- :mod:`stagecut.executor.waves.setting.schemes`: BSP, SSP, WSP, synchronous waves, local SGD, DiLoCo.
- :mod:`stagecut.executor.waves.evaluation`: outputs and loss of the whole model with given weights.

A stage (`stage_worker`) plays a fixed order of forwards and backwards (`setting.order`), each with a version of the
weights of its own (`weights`), which is checked (`setting.staleness`). At the end of a wave it pushes, and at a gate it
merges (`exchange`), over a parameter server or a delayed all-reduce (`carriers`).
"""
