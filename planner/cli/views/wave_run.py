"""A run through waves as people read it."""

import click

from stagecut.planner.cli.views.run import DILATED
from stagecut.planner.core.messages.visible import visible
from stagecut.planner.core.run_record import RunMode
from stagecut.planner.core.virtual_workers.wave_run_record import WaveRunRecord
from stagecut.planner.report.labels import percent_label
from stagecut.planner.report.run_tables import check_label
from stagecut.planner.report.text_table import print_table
from stagecut.planner.report.waves.wave_run_table import HEADING, drop_labels, wave_run_table


def print_wave_run(run: WaveRunRecord) -> None:
    """Predicted beside measured, in one table."""
    click.echo(f"{visible(run.model)} on {visible(run.cluster)}, {run.mode} on {visible(run.device)}")
    error = "" if run.error is None else f", error {percent_label(run.error)}"
    click.echo(f"{run.num_measured} waves after {run.warmup} to warm up{error}")
    click.echo(f"{HEADING}\n")
    print_table(wave_run_table(run))
    if run.check is not None:
        click.echo(f"\ncheck {check_label(run.check)}")
    for line in drop_labels(run):
        click.echo(f"\n{visible(line)}")
    if run.mode is RunMode.DILATED:
        click.echo(f"\n{DILATED}")
