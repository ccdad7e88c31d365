"""Links, anchors and paths in the documentation lead somewhere, and the index names every page."""

import re
from itertools import chain
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
DOCS = ROOT / "docs"
PAGES = sorted((ROOT / "README.md", ROOT / "CONTRIBUTING.md", *DOCS.rglob("*.md"), *ROOT.glob("examples/*/README.md")))
FENCED = re.compile(r"^```.*?^```", re.MULTILINE | re.DOTALL)
LINK = re.compile(r"\]\(([^)\s]+)\)")
CODE = re.compile(r"`([^`\n]+)`")
IMPORT = re.compile(r"^[> ]*from (stagecut[\w.]*) import (\w+(?:, \w+)*)", re.MULTILINE)
PATH = re.compile(r"[\w.*-]+(/[\w.*-]+)*/?")
FOLDERS = ("stagecut/", "planner/", "executor/", "models/", "tests/", "benchmarks/", "examples/", "docs/", ".ci/")
README_LIMIT = 6_000

each_page = pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))


def _prose(page):
    """The page without its code blocks."""
    return FENCED.sub("", page.read_text(encoding="utf-8"))


def _anchors(page):
    """Anchors of the headings, as GitHub makes them: lower case, hyphens for spaces, no other punctuation."""
    headings = re.findall(r"^#+ +(.+)$", _prose(page), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


@each_page
def test_relative_links_lead_somewhere(page):
    """Every link leads to a file that exists, and an anchor to one of its headings."""
    for target in LINK.findall(_prose(page)):
        if not target.startswith(("http:", "https:")):
            name, _, anchor = target.partition("#")
            file = (page.parent / name).resolve() if name else page
            assert file.exists(), target
            assert not anchor or anchor in _anchors(file), target


@each_page
def test_paths_on_the_page_exist(page):
    """Every path in code type that begins with a folder of this repository, and every module by its file name."""
    for text in CODE.findall(_prose(page)):
        if text.startswith(FOLDERS) and PATH.fullmatch(text):
            assert list(ROOT.glob(text.rstrip("/"))), text
        elif PATH.fullmatch(text) and text.endswith(".py"):
            assert any(next((ROOT / folder).glob(f"**/{text}"), None) for folder in FOLDERS), text


@each_page
def test_module_names_on_the_page_exist(page):
    """Every dotted name in code type below `stagecut`: the module is there, and defines what follows it."""
    for text in CODE.findall(_prose(page)):
        if re.fullmatch(r"stagecut(\.\w+)+", text):
            assert _is_defined(text.split(".")), text


@each_page
def test_imports_on_the_page_work(page):
    """Every name that code on the page imports from `stagecut`, be it a session, a script or a fragment of one."""
    for module, names in IMPORT.findall(page.read_text(encoding="utf-8")):
        for name in names.split(", "):
            assert _is_defined([*module.split("."), name]), f"{module}.{name}"


def _is_defined(parts):
    """Whether a file or a folder of the repository is called so, or defines or imports the last name."""
    file = ROOT.joinpath(*parts[1:])
    if file.is_dir() or file.with_suffix(".py").exists():
        return True
    source = next(
        (path for path in (file.parent.with_suffix(".py"), file.parent / "__init__.py") if path.exists()), None
    )
    return source is not None and re.search(rf"\b{parts[-1]}\b", source.read_text(encoding="utf-8")) is not None


def test_index_names_every_page_once():
    listed = LINK.findall((DOCS / "index.md").read_text(encoding="utf-8"))
    pages = {str(page.relative_to(DOCS)) for page in DOCS.rglob("*.md")} - {"index.md"}
    assert sorted(target for target in listed if not target.startswith("..")) == sorted(pages)


def test_readme_is_short():
    assert len((ROOT / "README.md").read_text(encoding="utf-8")) < README_LIMIT


def test_no_page_is_left_out():
    """The pages above are all Markdown files of the repository but the changelog."""
    found = chain(ROOT.glob("*.md"), DOCS.rglob("*.md"), ROOT.glob("examples/*/*.md"))
    assert sorted(page for page in found if page.name != "CHANGELOG.md") == PAGES
