"""What is added to a page before it is parsed: navigation, generated parts, and links to files outside of docs/."""

import re
from collections.abc import Callable, Mapping
from pathlib import Path

from sphinx.application import Sphinx

from .commands import command_reference
from .schemas import schema_reference

GENERATED: Mapping[str, Callable[[], str]] = {
    "reference/commands": command_reference,
    "reference/schemas": schema_reference,
}
"""Pages to which something is added that the program says about itself."""


def _read(app: Sphinx, page: str, source: list[str]) -> None:
    folder = (Path(app.srcdir) / page).parent
    text = source[0]
    if page == "index":
        text += _navigation(text)
    if page in GENERATED:
        text += GENERATED[page]()
    source[0] = re.sub(r"\]\((\.\./[^)#\s]+)\)", lambda link: f"]({_target(link[1], folder, Path(app.srcdir))})", text)


def _navigation(index: str) -> str:
    """A table of contents for every heading of the index, of the pages listed below it."""
    trees = []
    for part in index.split("\n## ")[1:]:
        heading, _, listed = part.partition("\n")
        pages = "\n".join(re.findall(r"\]\(((?!\.\.)[^)]+)\.md\)", listed))
        trees.append(f"\n```{{toctree}}\n:hidden:\n:caption: {heading}\n\n{pages}\n```\n")
    return "".join(trees)


def _target(link: str, folder: Path, root: Path) -> str:
    """A link out of the documentation leads to a copy of the file, or of the README of a folder."""
    file = (folder / link).resolve()
    if file.is_relative_to(root.resolve()):
        return link
    return f"path:{link.rstrip('/')}/README.md" if file.is_dir() else f"path:{link}"


def setup(app: Sphinx) -> dict[str, bool]:
    """Add to the pages as they are read."""
    app.connect("source-read", _read)
    return {"parallel_read_safe": True}
