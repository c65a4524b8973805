"""Sphinx: `make docs`."""

project = "asterism"
author = "the asterism developers"
copyright = "2026, the asterism developers"
extensions = ["myst_parser", "sphinx.ext.autodoc", "sphinx.ext.viewcode"]
html_theme = "furo"
html_title = "asterism"
myst_enable_extensions = ["dollarmath", "deflist"]
myst_heading_anchors = 3
autodoc_member_order = "bysource"
autodoc_typehints = "signature"
exclude_patterns = ["_build"]


def as_written(app, what, name, obj, options, lines):
    """Docstrings here are plain aligned text with examples: shown as they stand."""
    if lines and any(line.strip() for line in lines):
        lines[:] = ["::", "", *(f"    {line}" for line in lines), ""]


def setup(app):
    app.connect("autodoc-process-docstring", as_written)
