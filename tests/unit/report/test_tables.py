"""Tables: the right cells, whatever the drawing looks like."""

import io
import re
from dataclasses import replace

import pytest
from rich.table import Table

from stagecut.planner.core.catalogue import LinkUse, NamedLink
from stagecut.planner.core.cluster import Cluster, DeviceType, Island, Link, Server
from stagecut.planner.core.model import Layer, ModelProfile, SkipEdge
from stagecut.planner.core.operators.strategy import LayerStrategy, StageSharding, Strategy
from stagecut.planner.core.precision import Precision
from stagecut.planner.core.result import Result, Shortage, Status
from stagecut.planner.report.stage_tables import stage_tables
from stagecut.planner.report.tables import (
    cluster_table,
    comparison_table,
    critical_path_table,
    device_type_table,
    layer_table,
    link_table,
    model_table,
    shortage_table,
)
from stagecut.planner.report.text_table import print_table

MODEL = ModelProfile(
    name="tiny",
    layers=(
        Layer(name="embedding", kind="embedding", params_bytes=4e6, output_bytes=1e3),
        Layer(name="[red]head", forward_flops=5e9, saved_bytes=2e3),
    ),
    skip_edges=(SkipEdge(source=0, target=1, num_bytes=500.0),),
    sequence_length=128,
)
CLUSTER = Cluster(
    name="two",
    device_types=(
        DeviceType(name="big", peak_flops_per_s=((Precision.FP16, 1e14),), memory_bytes=24e9, source="vendor sheet"),
        DeviceType(name="small", peak_flops_per_s=((Precision.FP16, 5e13),), memory_bytes=6e9),
    ),
    servers=(
        Server(name="a", islands=(Island(device_type="big", count=4),), count=2),
        Server(
            name="b",
            islands=(Island(device_type="small", count=2, fabric=Link(bandwidth_bytes_per_s=15.75e9)),),
            nic=Link(bandwidth_bytes_per_s=7e9),
        ),
    ),
)


def _column(table: Table, header: str) -> list[str]:
    column = next(column for column in table.columns if str(column.header) == header)
    return [str(cell) for cell in column.cells]


def _result(solver: str, *, objective_s: float | None) -> Result:
    status = Status.NO_PLAN if objective_s is None else Status.FEASIBLE
    return Result(status=status, solver=solver, seconds=1.0, objective_s=objective_s, bound_s=0.09)


def test_comparison_is_against_the_best_time():
    """0.15 / 0.1 = 1.5; the gap of the best is (0.1 - 0.09) / 0.1."""
    results = [_result("even", objective_s=0.15), _result("milp", objective_s=0.1), _result("dp", objective_s=None)]
    table = comparison_table(results)
    assert _column(table, "solver") == ["even", "milp", "dp"]
    assert _column(table, "x slower than best") == ["1.500", "1.000", "-"]
    assert _column(table, "gap")[1] == "10.00 %"


def test_comparison_without_any_plan_is_a_table_of_dashes():
    assert _column(comparison_table([_result("dp", objective_s=None)]), "time") == ["-"]


def test_times_of_zero_compare_as_equal():
    table = comparison_table([_result("even", objective_s=0.0), _result("milp", objective_s=0.0)])
    assert _column(table, "x slower than best") == ["1.000", "1.000"]


def test_shortage_names_layers_and_missing_memory():
    shortage = Shortage(device_type="small", layers=(0, 2), needed_bytes=9e9, limit_bytes=6e9, remedy="recompute")
    table = shortage_table(MODEL, [shortage])
    assert _column(table, "layers") == ["0-1  embedding .. [red]head"]
    assert _column(table, "short by") == ["3 GB"]


def test_layer_table_shows_what_crosses_behind_each_layer():
    """Behind layer 0 its output of 1 kB and the skip edge of 0.5 kB cross; nothing leaves the last layer."""
    table = layer_table(MODEL)
    assert _column(table, "passed on") == ["1.5 kB", "0 B"]
    assert _column(table, "parameters") == ["2 M", "0"]


def test_names_from_files_are_not_read_as_markup():
    stream = io.StringIO()
    print_table(layer_table(MODEL), stream=stream)
    assert "[red]head" in stream.getvalue()
    assert "\x1b" not in stream.getvalue()


def test_lines_are_not_cut_where_the_output_is_no_terminal():
    stream = io.StringIO()
    wide = ModelProfile(name="wide", layers=(Layer(name="x" * 300),))
    print_table(layer_table(wide), stream=stream)
    assert "x" * 300 in stream.getvalue()


def test_models_are_listed_with_their_size():
    table = model_table([MODEL])
    assert _column(table, "model") == ["tiny"]
    assert _column(table, "parameters") == ["2 M"]
    assert _column(table, "tokens per sample") == ["128"]


def test_clusters_are_listed_by_server_class():
    table = cluster_table([CLUSTER])
    assert _column(table, "cluster") == ["two", ""]
    assert _column(table, "devices") == ["10", ""]
    assert _column(table, "servers") == ["2 x (4 x big 24 GB)", "1 x (2 x small 6 GB)"]
    assert _column(table, "fabric") == ["unlimited", "15.8 GB/s"]


def test_device_types_show_their_source():
    table = device_type_table(CLUSTER.device_types)
    assert _column(table, "source") == ["vendor sheet", ""]
    assert _column(table, "peak") == ["fp16 100 TFLOP/s", "fp16 50 TFLOP/s"]


def test_links_of_the_catalogue_show_their_use_and_source():
    link = Link(bandwidth_bytes_per_s=12e9, latency_s=1e-5, source="vendor sheet")
    table = link_table([NamedLink(name="bus", link=link, use=LinkUse.FABRIC, shared=True)])
    assert _column(table, "use") == ["fabric, shared"]
    assert (_column(table, "bandwidth"), _column(table, "latency")) == (["12 GB/s"], ["10 us"])
    assert _column(table, "source") == ["vendor sheet"]


def test_stage_table_shows_where_what_and_how_long(problem, plan, costs, timeline):
    """Stage 1 keeps one micro-batch of 2 samples x 2 layers x 1 GB, and computes 12 s of 16."""
    table = stage_tables(problem, plan, costs=costs, timeline=timeline)[0]
    assert _column(table, "layers") == ["0  embedding", "1-2  block .. head"]
    assert _column(table, "devices") == ["a-0/0", "a-1/0"]
    assert _column(table, "device type") == ["gpu", "gpu"]
    assert _column(table, "F") == ["1 s", "2 s"]
    assert _column(table, "B") == ["2 s", "4 s"]
    assert _column(table, "transfer") == ["500 ms", "-"]
    assert _column(table, "memory used") == ["4 GB", "4 GB"]
    assert _column(table, "limit") == ["8 GB", "8 GB"]
    assert _column(table, "busy") == ["37.50 %", "75.00 %"]


def test_critical_path_adds_up_to_the_iteration(timeline):
    """F0 1 + send 0.5 + stage 1 computes 2 (2 + 4) + send 0.5 + B1 2 = 16 s."""
    table = critical_path_table(timeline)
    rows = zip(_column(table, "on the critical path"), _column(table, "stage"), _column(table, "takes"), strict=True)
    assert list(rows) == [
        ("backward", "1", "8 s"),
        ("forward", "1", "4 s"),
        ("backward", "0", "2 s"),
        ("forward", "0", "1 s"),
        ("send forward", "0", "500 ms"),
        ("send backward", "1", "500 ms"),
    ]


def test_long_critical_path_is_cut_with_a_remainder(timeline):
    table = critical_path_table(timeline, max_rows=2)
    assert _column(table, "on the critical path")[-1] == "everything else"
    assert _column(table, "takes")[-1] == "4 s"


class _Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


@pytest.mark.parametrize("width", [80, 100, 140, 200])
def test_stage_table_is_whole_on_terminals_of_every_width(problem, plan, costs, timeline, monkeypatch, width):
    """No line is longer than the terminal and no figure is cut, however many columns are left out."""
    monkeypatch.setenv("COLUMNS", str(width))
    table, *narrower = stage_tables(problem, plan, costs=costs, timeline=timeline)
    stream = _Terminal()
    print_table(table, *narrower, stream=stream)
    drawn = re.sub(r"\x1b\[\d*m", "", stream.getvalue())
    assert max(map(len, drawn.splitlines())) <= width
    for figure in ("a-0/0", "a-1/0", "1 s", "4 s", "75.00 %"):
        assert figure in drawn


def test_narrow_stage_tables_have_fewer_columns(problem, plan, costs, timeline):
    """The last keeps numbers of layers, devices, replicas, times, memory and the busy share."""
    tables = stage_tables(problem, plan, costs=costs, timeline=timeline)
    assert [len(table.columns) for table in tables] == [12, 9, 9, 7]
    assert _column(tables[-1], "layers") == ["0", "1-2"]
    assert _column(tables[-1], "memory / limit") == ["4 GB / 8 GB", "4 GB / 8 GB"]


def test_devices_that_share_a_replica_get_a_column(problem, plan, costs, timeline):
    """The column is shown only where there are such devices."""
    assert "tensor parallel" not in [
        column.header.plain for column in stage_tables(problem, plan, costs=costs, timeline=timeline)[0].columns
    ]
    wide = replace(problem, cluster=replace(problem.cluster, servers=(replace(problem.cluster.servers[0], count=3),)))
    first, second = plan.stages
    shared = replace(second, devices=("a-1/0", "a-2/0"), tensor_parallel=2)
    changed = replace(plan, pipelines=(replace(plan.pipelines[0], stages=(first, shared)),))
    tables = stage_tables(wide, changed, costs=costs, timeline=timeline)
    assert _column(tables[0], "tensor parallel") == ["1", "2"]
    assert [_column(table, "tp") for table in tables[1:]] == [["1", "2"]] * 3


def test_lines_of_a_file_end_without_spaces():
    stream = io.StringIO()
    print_table(layer_table(MODEL), stream=stream)
    assert all(line == line.rstrip() for line in stream.getvalue().splitlines())


def test_sharded_stages_name_their_strategies_in_place_of_a_degree(problem, plan, costs, timeline):
    """Layers of unknown make divide samples over both devices."""
    first, second = plan.stages
    own = LayerStrategy(operators=(Strategy(splits=("sample",)),))
    sharding = StageSharding(mesh=(2,), layers=(own, own))
    shared = replace(second, devices=("a-1/0", "a-2/0"), tensor_parallel=2, sharding=sharding)
    changed = replace(plan, pipelines=(replace(plan.pipelines[0], stages=(first, shared)),))
    wide = replace(problem, cluster=replace(problem.cluster, servers=(replace(problem.cluster.servers[0], count=3),)))
    for table in stage_tables(wide, changed, costs=costs, timeline=timeline):
        assert _column(table, "strategy") == ["-", "data 2"]
        assert not {"tensor parallel", "tp"} & {column.header.plain for column in table.columns}
