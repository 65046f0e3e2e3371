"""Settings of the site: `sphinx-build -W -b html docs docs/_build`.

Sphinx with numpydoc reads the docstrings as they are written, and MyST the pages as they are; the
theme is that of NumPy, pandas and scikit-learn, so that a reader knows where to look.
"""

from pygments.lexers.special import TextLexer
from sphinx.highlighting import lexers

import dask_mcsvm

project = "dask-mcsvm"
version = release = dask_mcsvm.__version__
html_title = f"dask-mcsvm {release}"

extensions = ["sphinx.ext.autodoc", "sphinx.ext.autosummary", "numpydoc", "myst_parser"]
exclude_patterns = ["_build"]
html_static_path = ["_static"]
html_css_files = ["site.css"]
html_theme = "pydata_sphinx_theme"
html_theme_options = {
    "show_toc_level": 2,
    "navigation_with_keys": False,
    "icon_links": [],
    # More would take a second line of the head.
    "header_links_before_dropdown": 4,
}
html_sidebars = {"**": []}
html_show_copyright = False
html_show_sourcelink = False

# Headings are link targets, as where the pages are read as files.
myst_heading_anchors = 4
myst_enable_extensions = ["colon_fence"]
# Pages link to files of the repository that are not pages; tests/test_readme.py follows them.
suppress_warnings = ["myst.xref_missing"]
lexers["mermaid"] = TextLexer()  # drawings of the architecture stay text: no script is loaded

autosummary_generate = False
autodoc_typehints = "none"  # docstrings have them, with shapes
numpydoc_show_class_members = False
numpydoc_xref_param_type = False


def to_pages(app, name, source):
    """What is a file above docs/ in the repository is a page here."""
    source[0] = source[0].replace("](../CHANGELOG.md", "](changes.md")


def setup(app):
    """Called by Sphinx."""
    app.connect("source-read", to_pages)
