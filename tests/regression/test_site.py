"""The documentation builds as a site without a warning, and the site is whole without a network."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

for library in ("sphinx", "furo", "myst_parser", "latex2mathml"):
    pytest.importorskip(library)

ROOT = Path(__file__).parents[2]
DOCS = ROOT / "docs"
LOADED = re.compile(
    r"""<(?:script|img|iframe|source)\b[^>]*\bsrc=["'](https?:[^"']*)|<link\b(?![^>]*rel="canonical")[^>]*\bhref=["'](https?:[^"']*)"""
)
FORMULA = re.compile(r"^ *```math$", re.MULTILINE)

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def site(tmp_path_factory):
    """The folder of the built site; a warning, such as a dead link, fails the build."""
    folder = tmp_path_factory.mktemp("site")
    command = [sys.executable, "-m", "sphinx", "-q", "--fail-on-warning", "--keep-going"]
    done = subprocess.run(
        [*command, str(DOCS), str(folder), "-d", str(tmp_path_factory.mktemp("doctrees"))],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return folder


def _page(site, name):
    return (site / f"{name}.html").read_text(encoding="utf-8")


def test_every_page_is_in_the_navigation(site):
    """The sidebar of the first page leads to every page of docs/."""
    sidebar = _page(site, "index").partition('class="sidebar-tree"')[2].partition("</aside>")[0]
    pages = {str(page.relative_to(DOCS).with_suffix(".html")) for page in DOCS.rglob("*.md")} - {"index.html"}
    assert pages <= set(re.findall(r'href="([^"#]+)"', sidebar))


def test_nothing_is_fetched_from_elsewhere(site):
    """No page loads a script, a style, a font or a picture over the network; nor does a style sheet."""
    assert [found for page in site.rglob("*.html") for found in LOADED.findall(page.read_text(encoding="utf-8"))] == []
    styles = "".join(style.read_text(encoding="utf-8") for style in site.rglob("*.css"))
    assert re.findall(r"(?:url\(|@import)\s*[\"']?https?:", styles) == []


def test_formulas_are_drawn(site):
    """Every formula of a page is one in MathML, and none is left as text."""
    for page in DOCS.rglob("*.md"):
        count = len(FORMULA.findall(page.read_text(encoding="utf-8")))
        text = _page(site, page.relative_to(DOCS).with_suffix(""))
        assert text.count('<div class="formula"><math') == count, page
    assert "<mi>M</mi>" in _page(site, "bounds")


def test_every_command_and_option_is_in_the_reference(site):
    """Taken from click when the site is built: solve has --gap, models has show."""
    text = _page(site, "reference/commands")
    for name in ("plan solve", "plan models show", "plan clusters new", "--gap", "--time-limit", "[default: 60]"):
        assert name in text
    assert 'id="plan-solve"' in text


def test_every_key_of_a_file_is_in_the_reference(site):
    """Taken from pydantic when the site is built: a device type of a cluster has memory_bytes."""
    text = _page(site, "reference/schemas")
    for name in (
        "memory_bytes",
        "Device type",
        "Profile files",
        "Cluster files",
        "Job files",
        "Plan files",
        "Run files",
    ):
        assert name in text


def test_links_out_of_the_documentation_lead_to_copies(site):
    """The index links to CONTRIBUTING.md, which is beside docs/."""
    (copy,) = re.findall(r'href="(_downloads/[^"]+/CONTRIBUTING\.md)"', _page(site, "index"))
    assert (site / copy).read_bytes() == (ROOT / "CONTRIBUTING.md").read_bytes()
