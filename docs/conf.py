"""The site that `make docs` builds: the pages of this folder, and the docstrings of the package."""

from importlib.metadata import version as version_of
from typing import Any

project = "mdmt"
release = version_of("mdmt")
copyright = "the mdmt authors, MIT licence"

extensions = ["myst_parser", "sphinx.ext.autodoc"]
myst_heading_anchors = 3
smartquotes = False
html_theme = "furo"
html_title = f"mdmt {release}"
html_static_path = ["_static"]
html_css_files = ["site.css"]
html_theme_options = {"top_of_page_buttons": []}
html_show_sphinx = False
html_copy_source = False

default_role = "code"  # docstrings have names in single backticks
autodoc_member_order = "bysource"
python_maximum_signature_line_length = 80


def setup(app: Any) -> None:
    app.connect("source-read", link_to_the_site)


def link_to_the_site(app: Any, name: str, source: list[str]) -> None:
    """RESULTS.md and SECURITY.md lie outside of this folder; on the site they are pages in it."""
    for outside, page in (("RESULTS", "measured"), ("SECURITY", "security")):
        if name != page:
            source[0] = source[0].replace(f"](../{outside}.md", f"]({page}.md")
