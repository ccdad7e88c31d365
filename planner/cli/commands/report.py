"""`plan report`: all about a plan on one offline page."""

from pathlib import Path

import click

from stagecut.planner.cli.options.report import Answers, ReportOutputs
from stagecut.planner.cli.parameters.files import InputFile
from stagecut.planner.cli.parameters.groups import example, general_options, option_group
from stagecut.planner.cli.process.sections import SectionCommand
from stagecut.planner.cli.process.writing import print_json
from stagecut.planner.io.files.wave_plan_file import read_any_plan_file
from stagecut.planner.report.page.page import page_bytes
from stagecut.planner.report.summary import SCHEMA


@click.command(
    "report",
    cls=SectionCommand,
    epilog=example("plan report plan.json -o report.html", "plan report plan.json --run run.json -o report.html"),
)
@click.argument("path", metavar="PLAN", type=InputFile())
@option_group(Answers, argument="answers")
@option_group(ReportOutputs, argument="outputs")
@general_options
def command(path: Path, answers: Answers, outputs: ReportOutputs, *, as_json: bool) -> None:
    """Show all about a plan on one offline page for a browser.

    The page holds everything it needs: verdict, numbers, the cluster with the stages on its devices, a
    timeline with zoom, memory, links, and what limits the plan or what virtual workers wait for. Nothing is
    fetched when it is opened.
    """
    plan_file = read_any_plan_file(path)
    outputs.check()
    page = answers.page(plan_file)
    written = page_bytes(page)
    outputs.write(outputs.output, written)
    if as_json:
        print_json({"schema": SCHEMA, "report": str(outputs.output), "bytes": len(written), "verdict": page.verdict})
    else:
        click.echo(page.verdict)
