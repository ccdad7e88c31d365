"""Options of `plan clusters new`."""

from dataclasses import dataclass
from pathlib import Path

from stagecut.planner.cli.options.outputs import AnnouncedOutputs
from stagecut.planner.cli.parameters.files import output_option
from stagecut.planner.cli.parameters.groups import option
from stagecut.planner.cli.parameters.types import plain_name


@dataclass(frozen=True, slots=True, kw_only=True)
class NewCluster(AnnouncedOutputs):
    """The cluster file to write."""

    name: str | None = option(
        "--name", type=plain_name, metavar="NAME", help="Name of the cluster.  [default: its description]"
    )
    output: Path | None = output_option("-o", "--output", text="File to write.  [default: stdout]")

    @property
    def is_json(self) -> bool:
        """Whether the name of the file asks for JSON."""
        return self.output is not None and self.output.suffix.lower() == ".json"
