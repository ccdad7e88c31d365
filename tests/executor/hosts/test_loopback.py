"""Nobody outside this machine can connect to a run that has all its ranks on it."""

import json
import os
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path

import pytest

pytest.importorskip("torch")

from tests.executor.hosts.namespaces import two_hosts
from tests.executor.hosts.sockets import children, descendants, listeners

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="looks into /proc")

ROOT = Path(__file__).parents[3]
LEAN = ROOT / "tests" / "executor" / "failures" / "lean"
STUB = ("-m", "tests.executor.rank_stub")
LAYERS = "tests.executor.tiny_layers:chain"
WATCHDOG_S = 120
NUM_RANKS = 2


@pytest.fixture
def started():
    """Start something in the background; it ends with the test."""
    processes = []

    def begin(command, **variables):
        environment = {**os.environ, "PYTHONPATH": str(ROOT), **variables}
        process = subprocess.Popen(command, cwd=ROOT, env=environment, stderr=subprocess.PIPE, text=True)
        processes.append(process)
        return process

    yield begin
    for process in processes:
        process.send_signal(signal.SIGTERM)
        process.communicate(timeout=WATCHDOG_S)


def stub(folder):
    """A launcher whose last rank hangs while the others wait for it."""
    arguments = [*STUB, "hung", "600", str(folder)]
    code = f"import os; os.environ['PYTHONPATH'] = '{ROOT}{os.pathsep}{LEAN}'\n"
    code += f"from stagecut.executor.ranks.launch import launch; launch({arguments!r}, num_ranks={NUM_RANKS})"
    return [sys.executable, "-c", code]


def pids_of(folder):
    """Process ids of the stub's ranks, once all of them are at work."""
    files = [folder / f"pid{rank}" for rank in range(NUM_RANKS)]
    until(lambda: all(file.exists() and file.read_text() for file in files))
    return [int(file.read_text()) for file in files]


def until(happened):
    end = time.monotonic() + WATCHDOG_S
    while not happened():
        assert time.monotonic() < end, "did not happen in time"
        time.sleep(0.05)


def check_loopback_only(launcher, *, talking):
    """Those that talk to others listen, for gloo does; and nobody listens beyond loopback."""
    found = listeners([launcher, *descendants(launcher)])
    assert all(found[pid] for pid in talking), found
    assert all(listener.address.is_loopback for own in found.values() for listener in own), found


def another_interface():
    return next((name for _, name in socket.if_nameindex() if name not in {"lo", "lo0"}), "lo")


REACHED = """
import json, socket, sys
host, *ports = sys.argv[1:]
def answers(port):
    with socket.socket() as probe:
        probe.settimeout(5)
        return probe.connect_ex((host, int(port))) == 0
print(json.dumps([int(port) for port in ports if answers(port)]))
"""
OPEN = "import socket, sys; s = socket.create_server(('', 0)); print(s.getsockname()[1], flush=True); sys.stdin.read()"


def test_another_host_reaches_no_port_of_a_run(tmp_path, started):
    """All ports that processes of the run listen on, and one that is open to show that the cable works."""
    with two_hosts() as (victim, attacker):
        launcher = started(victim.command(*stub(tmp_path)))
        pids = pids_of(tmp_path)
        found = listeners([launcher.pid, *descendants(launcher.pid)])
        assert all(found[pid] for pid in pids)
        with subprocess.Popen(
            victim.command(sys.executable, "-c", OPEN), stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        ) as server:
            public = int(server.stdout.readline())
            ports = {listener.port for own in found.values() for listener in own}
            probe = attacker.command(sys.executable, "-c", REACHED, victim.address, *map(str, ports | {public}))
            done = subprocess.run(probe, capture_output=True, text=True, check=True)
            server.stdin.close()
        assert json.loads(done.stdout) == [public]
        launcher.send_signal(signal.SIGTERM)
        launcher.wait(WATCHDOG_S)


def test_plan_run_listens_on_loopback_only_while_it_trains(two_stages, started, tmp_path):
    """Checked first, and dilated: groups for sums, and a folder that the ranks share.

    The interface that is named is meant for runs on several hosts. The launcher itself listens on nothing.
    """
    options = ("--mode", "dilated", "--own-processes", "--check", "--steps", "1000000", "--warmup", "0")
    others = ("--layers", LAYERS, "--history", str(tmp_path / "runs.jsonl"))
    command = [sys.executable, "-m", "stagecut", "run", str(two_stages), *options, *others]
    launcher = started(command, GLOO_SOCKET_IFNAME=another_interface())
    assert any(line.startswith("step 1 of") for line in launcher.stderr)
    (server,) = children(launcher.pid)
    ranks = children(server)
    assert len(ranks) == NUM_RANKS
    assert listeners([launcher.pid])[launcher.pid] == set()
    check_loopback_only(launcher.pid, talking=ranks)


def test_link_profile_listens_on_loopback_only(started, tmp_path):
    """The processes are inspected while they measure, which would take minutes if they were left alone."""
    choices = ("--processes", str(NUM_RANKS), "--repetitions", "100000", "-o", str(tmp_path / "cluster.yaml"))
    launcher = started([sys.executable, "-m", "stagecut", "profile", "links", "--device", "cpu", *choices])
    until(lambda: sum(bool(own) for own in listeners(descendants(launcher.pid)).values()) >= NUM_RANKS)
    check_loopback_only(launcher.pid, talking=())
