"""Sphinx: `make docs`."""

import re

project = "asterism"
author = "the asterism developers"
copyright = "2026, the asterism developers"
extensions = ["myst_parser", "sphinx.ext.autodoc", "sphinx.ext.viewcode"]
html_theme = "furo"
html_title = "asterism"
html_css_files = ["wrap.css"]
html_static_path = ["static"]
myst_enable_extensions = ["dollarmath", "deflist"]
myst_heading_anchors = 3
autodoc_member_order = "bysource"
autodoc_typehints = "signature"
exclude_patterns = ["_build"]


def as_written(app, what, name, obj, options, lines):
    """Docstrings are plain text: aligned lines (a name, blanks, what it means) are shown as they stand, the rest flows."""
    blocks = "\n".join(lines).split("\n\n")
    shown = []
    for block in blocks:
        aligned = re.search(r"^\S+ {2,}\S", block, flags=re.M) and not block.startswith(">>>")
        if aligned:
            block = ".. code-block:: text\n\n" + "\n".join("    " + line for line in block.splitlines())
        elif not block.startswith(">>>"):
            block = re.sub(r"`([^`]+)`", r"``\1``", block)
        shown.append(block)
    lines[:] = [*"\n\n".join(shown).splitlines(), ""]


def setup(app):
    app.connect("autodoc-process-docstring", as_written)
