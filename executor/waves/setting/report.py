"""What one rank has done in a number of waves."""

from dataclasses import dataclass

from stagecut.executor.waves.setting.waits import Transfer, WaveSpan


@dataclass(frozen=True, slots=True, kw_only=True)
class WaveReport:
    """One call of `train` on one rank."""

    rank: int
    worker: int | None
    """None for a parameter server, of which only clock and times are known."""
    stage: int | None = None
    first_minibatch: int = 1
    losses: tuple[float, ...] = ()
    """Mean loss of each minibatch, on the worker's last stage; empty on others."""
    clock: int
    """Number of first waves of all workers that the rank's weights hold now."""
    local_staleness: int = 0
    """Most of the worker's own earlier updates that the weights of a minibatch lacked."""
    local_bound: int = 0
    global_staleness: int = 0
    """Most earlier minibatches of another worker that the weights of a minibatch may have lacked, by their clock."""
    global_bound: int = 0
    gate_s: float = 0.0
    """Seconds waited at gates for the other workers' waves, their transfer included."""
    pipeline_s: float = 0.0
    """Seconds waited for neighbouring stages, the transfer included."""
    link_s: float = 0.0
    """Seconds waited until earlier messages had left."""
    start_s: float
    """On the clock of `time.monotonic`, which all processes of a machine share."""
    end_s: float
    dropped: tuple[tuple[int, int], ...] = ()
    """Workers that a parameter server has gone on without, each with the number of its waves that count."""
    wave_ends_s: tuple[float, ...] = ()
    """When each wave was complete on this stage."""
    spans: tuple[WaveSpan, ...] = ()
    """Forwards, backwards, updates and waits at gates in the order in which they ran."""
    transfers: tuple[Transfer, ...] = ()
    """In the order in which they ended."""
