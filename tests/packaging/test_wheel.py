"""The wheel, installed into an environment of its own, beside somebody else's folders of the same names."""

import os
import subprocess
import sys
import tarfile
import zipfile
from pathlib import Path

import pytest

pytest.importorskip("torch")

ROOT = Path(__file__).parents[2]
BUILD = "import sys; from hatchling.cli import hatchling; sys.exit(hatchling())"
"""The build backend itself: pip would fetch another one."""


def _output(command, folder, **environment):
    cleared = {name: value for name, value in os.environ.items() if name not in ("PYTHONPATH", "PYTHONHOME")}
    done = subprocess.run(
        command, cwd=folder, env={**cleared, **environment}, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def _build(target, folder, into):
    _output([sys.executable, "-c", BUILD, "build", "-t", target, "-d", str(into)], folder)
    (built,) = into.iterdir()
    return built


@pytest.fixture(scope="module")
def sdist(tmp_path_factory):
    return _build("sdist", ROOT, tmp_path_factory.mktemp("sdist"))


@pytest.fixture(scope="module")
def wheel(sdist, tmp_path_factory):
    """Built as an index builds it: from the sdist, where the links of the repository are gone."""
    unpacked = tmp_path_factory.mktemp("unpacked")
    with tarfile.open(sdist) as archive:
        archive.extractall(unpacked, filter="data")
    (source,) = unpacked.iterdir()
    return _build("wheel", source, tmp_path_factory.mktemp("wheel"))


@pytest.fixture(scope="module")
def installed(wheel, tmp_path_factory):
    """The interpreter of an environment with the wheel; dependencies are those of the tests."""
    folder = tmp_path_factory.mktemp("environment")
    _output([sys.executable, "-m", "venv", "--without-pip", str(folder)], folder)
    python = folder / "bin" / "python"
    _output([sys.executable, "-m", "pip", "--python", str(python), "install", "--no-deps", str(wheel)], folder)
    (site,) = (folder / "lib").glob("python*/site-packages")
    ours = [path for path in sys.path if path.endswith("site-packages")]  # an environment may stand on others
    (site / "dependencies.pth").write_text("\n".join(ours))
    return python


@pytest.fixture
def project(tmp_path):
    """A training project with folders called like ours."""
    for name in ("models", "planner", "executor"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "__init__.py").write_text("raise RuntimeError('imported by mistake')\n")
    return tmp_path


def test_wheel_puts_one_package_at_the_top_level(wheel):
    top_level = {name.partition("/")[0] for name in zipfile.ZipFile(wheel).namelist()}
    assert {name for name in top_level if not name.endswith(".dist-info")} == {"stagecut"}


def test_wheel_holds_every_module_of_the_repository(wheel):
    real = {path for folder in ("planner", "executor", "models") for path in (ROOT / folder).rglob("*.py")}
    ours = {"stagecut/__init__.py", "stagecut/__main__.py", *(f"stagecut/{path.relative_to(ROOT)}" for path in real)}
    assert {name for name in zipfile.ZipFile(wheel).namelist() if name.endswith(".py")} == ours


def test_wheel_from_the_repository_is_the_wheel_from_the_sdist(wheel, tmp_path):
    direct = _build("wheel", ROOT, tmp_path)
    assert sorted(zipfile.ZipFile(direct).namelist()) == sorted(zipfile.ZipFile(wheel).namelist())


def test_editable_install_is_the_repository_alone(tmp_path):
    """A path file and the description of the package; a copy of a module would only become stale."""
    editable = zipfile.ZipFile(_build("wheel:editable", ROOT, tmp_path))
    files = [name for name in editable.namelist() if ".dist-info/" not in name]
    assert files == ["_stagecut.pth"]
    assert editable.read("_stagecut.pth").decode() == str(ROOT)


def test_sdist_holds_the_real_folders_once(sdist):
    with tarfile.open(sdist) as archive:
        names = [name.partition("/")[2] for name in archive.getnames()]
    assert [name for name in names if name.endswith("planner/core/plan.py")] == ["planner/core/plan.py"]


def test_plans_are_made_and_run_in_a_project_with_folders_of_the_same_names(installed, project):
    """Every way to start the program, with the project first on the path, as `PYTHONPATH=.` puts it."""
    plan, cluster = installed.parent / "plan", project / "one_device.yaml"
    cluster.write_text((ROOT / "examples/train_gpt/two_devices.yaml").read_text().replace("count: 2", "count: 1"))
    size = ["--global-batch", "2", "--sequence-length", "8", "--precision", "fp32"]
    problem = ["--model", "gpt-mini", "--cluster", cluster.name, *size]
    assert "proven optimal" in _output([plan, "solve", *problem, "-o", "plan.json"], project, PYTHONPATH=".")
    assert (project / "plan.json").is_file()
    run = ["run", "plan.json", "--steps", "1", "--device", "cpu"]
    alone = {"PYTHONPATH": ".", "OMP_NUM_THREADS": "1"}
    assert "predicted" in _output([installed, "-m", "stagecut", *run], project, **alone)
    torchrun = [installed, "-m", "torch.distributed.run", "--nproc-per-node", "1", "-m", "stagecut", *run]
    assert "predicted" in _output(torchrun, project, **alone)


def test_users_import_one_namespace(installed, project):
    code = (
        "from stagecut import __version__, executor, models; from stagecut.planner.core.problem import Problem;"
        "print(__version__, executor.load.__module__, len(models.model_names()) > 0, Problem.__module__)"
    )
    told = _output([installed, "-c", code], project, PYTHONPATH=".").split()
    assert told == ["0.1.0", "stagecut.executor.loading", "True", "stagecut.planner.core.problem"]
