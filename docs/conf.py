"""How Sphinx makes a site of these pages: `make site`. The site is whole: nothing is fetched when it is read."""

import sys
from pathlib import Path

from stagecut import __version__

sys.path.insert(0, str(Path(__file__).parent))  # for _extensions

project = "stagecut"
release = __version__
html_title = f"stagecut {release}"
extensions = ["myst_parser", "sphinx.ext.githubpages", "_extensions.mathml", "_extensions.sources"]
exclude_patterns = ["_extensions"]
html_theme = "furo"
html_static_path = ["_extensions/static"]
html_css_files = ["site.css"]
html_copy_source = False
smartquotes = False
html_show_copyright = False
html_show_sphinx = False
html_use_index = False
highlight_language = "text"
myst_heading_anchors = 4
myst_fence_as_directive = ["math"]
