"""How Sphinx makes a site of these pages: `make site`. Everything is in the site; nothing is fetched when it is read."""

import sys
from pathlib import Path

sys.path[:0] = [str(Path(__file__).parent), str(Path(__file__).parents[1])]

from stagecut import __version__

project = "stagecut"
release = __version__
html_title = f"stagecut {release}"
extensions = ["myst_parser", "sphinx.ext.githubpages", "_extensions.mathml", "_extensions.sources"]
exclude_patterns = ["_extensions"]
html_theme = "furo"
html_static_path = ["_extensions/static"]
html_css_files = ["site.css"]
html_copy_source = False
html_show_copyright = False
html_show_sphinx = False
highlight_language = "text"
myst_heading_anchors = 4
myst_fence_as_directive = ["math"]
