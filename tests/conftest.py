"""Settings that every test shares."""

import fcntl
import gc
import os
import re
import signal
import sys
from pathlib import Path

from hypothesis import HealthCheck, settings
from numba.core.compiler_lock import global_compiler_lock
from numba.core.dispatcher import Dispatcher
from xdist.scheduler import LoadFileScheduling

settings.register_profile("ci", deadline=None, derandomize=True, suppress_health_check=[HealthCheck.too_slow])
settings.register_profile("explore", deadline=None, max_examples=2000, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("ci")

# A shell without job control has what it runs in the background ignore Ctrl-C, and `nohup` hang-ups; programs that
# tests start inherit that.
for number, default in ((signal.SIGINT, signal.default_int_handler), (signal.SIGHUP, signal.SIG_DFL)):
    if signal.getsignal(number) is signal.SIG_IGN:
        signal.signal(number, default)

# The tensors of tests are small: threads of torch would only wait for each other, the longer the busier the machine.
os.environ.setdefault("OMP_NUM_THREADS", "1")

# A shell may forbid Python to keep compiled modules. Programs that tests start would then compile ours again and again.
os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
sys.dont_write_bytecode = False

# What tests import never becomes garbage; searching it for cycles again and again takes a tenth of the processor time.
gc.set_threshold(20_000)
gc.disable()

TOGETHER = {
    "choice graphs": re.compile("choice_graphs"),
    "ranks": re.compile(
        r"executor/(gradients|hosts|sharding|training)/"
        r"|test_(wave_checkpoints|wave_processes|dilated|step_memory|objects|module_sharing)\.py"
    ),
}
"""Tests that run in one process: for what they compile, and for the process that ranks are forked from (`pool.py`)."""


def compiled_once(compiled):
    """Compile a loop as numba does; processes that need it at the same time wait for the one that compiles it."""

    def load_or_compile(loop, signature):
        if loop.stats.cache_path is None:
            return compiled(loop, signature)
        path = Path(loop.stats.cache_path, f"{loop.__module__}.{loop.__qualname__}.lock")
        with global_compiler_lock, path.open("w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            return compiled(loop, signature)

    return load_or_compile


if "PYTEST_XDIST_WORKER" in os.environ:
    Dispatcher.compile = compiled_once(Dispatcher.compile)


def pytest_collection_finish():
    gc.enable()
    gc.freeze()


def pytest_xdist_make_scheduler(config, log):
    """Tests of a file run in one process and share its fixtures, and so do those of some files (`TOGETHER`).

    Files keep their order, in which the ones that start processes come first: with the longest first, by number of
    tests, a few slow tests would be left for a single process at the end.
    """
    config.option.loadscopereorder = False

    class ByFile(LoadFileScheduling):
        def _split_scope(self, nodeid):
            shared = (name for name, pattern in TOGETHER.items() if pattern.search(nodeid))
            return next(shared, super()._split_scope(nodeid))

    return ByFile(config, log)
