"""Notes: what a command ignores or assumes, on stderr and in its JSON."""

import click

from stagecut.planner.core.messages.visible import visible

_NOTES = "stagecut.notes"


def note(text: str) -> None:
    """Say once on stderr what is ignored or assumed, unless the command is to be quiet; :func:`notes` has it anyway."""
    context = click.get_current_context()
    said: list[str] = context.meta.setdefault(_NOTES, [])
    if text in said:
        return
    said.append(text)
    if not context.params.get("quiet"):
        click.echo(f"note: {visible(text)}", err=True)


def notes() -> list[str]:
    """The notes of the running command so far, in the order in which they were made."""
    return list(click.get_current_context().meta.get(_NOTES, ()))
