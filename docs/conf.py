"""Settings of the site: `make docs` builds it into build/docs.

The source folder is the repository itself, so that the links of README.md, docs/ and experiments/README.md are the same
on the site and in the repository.
"""

import re
from pathlib import Path
from typing import Any

from docutils import nodes
from latex2mathml.converter import convert
from sphinx import addnodes
from sphinx.application import Sphinx
from sphinx.util import logging
from sphinx.writers.html5 import HTML5Translator

import certirl

project, author, release = "certirl", "The certirl developers", certirl.__version__
copyright = author
extensions = [
    "myst_parser",
    "sphinx.ext.autodoc",
    "sphinx.ext.napoleon",
    "sphinx_copybutton",
]
root_doc = "docs/index"
include_patterns = ["*.md", "docs/**.md", "experiments/README.md"]
exclude_patterns = [".*", "build", "dist", "src", "tests", "benchmarks"]
# A link, an anchor or a picture that does not exist is a warning, and `make docs` makes warnings errors. Types of other
# libraries in signatures are not looked up: that would take a network.
nitpicky = True
nitpick_ignore_regex = [("py:.*", ".*")]

myst_heading_anchors = 4
myst_enable_extensions = ["dollarmath"]
myst_dmath_allow_space = myst_dmath_allow_digits = (
    False  # prices and ranges are no formulas
)
html_math_renderer = "mathml"  # by every browser itself: no script, no network
highlight_language = "text"
copybutton_prompt_text, copybutton_prompt_is_regexp = r"\$ |>>> |\.\.\. ", True
default_role = "py:obj"
autodoc_member_order = "bysource"
autodoc_typehints = "signature"
autodoc_preserve_defaults = True
maximum_signature_line_length = 88
napoleon_google_docstring, napoleon_numpy_docstring, napoleon_use_ivar = (
    True,
    False,
    True,
)
napoleon_attr_annotations = False

html_theme = "furo"
html_title = "certirl"
html_static_path = ["static"]
html_css_files, html_js_files = ["site.css"], ["site.js"]
html_search_scorer = str(
    Path(__file__).with_name("static") / "scorer.js"
)  # headings first
html_copy_source = False
html_show_copyright = False
html_theme_options = {"navigation_with_keys": True}
pygments_style, pygments_dark_style = "friendly", "monokai"

ARRAY = re.compile(
    r"(?:~?numpy\.)?ndarray\[tuple\[(?:~?typing\.)?Any, \.\.\.\], (?:~?numpy\.)?dtype\[[^\[\]]*\]\]"
)
FETCHED = re.compile(
    r"""<(?:script|img|link|iframe|source)\b[^>]*?\b(?:src|href)=["'](?:https?:)?//[^"']+["']"""
)


def finish(app: Sphinx, error: Exception | None) -> None:
    """Lead from the folder to the first page, and warn of pages that would load something from a network."""
    if error or app.builder.format != "html":
        return
    folder = Path(app.outdir)
    first = app.builder.get_target_uri(root_doc)
    (folder / "index.html").write_text(
        f'<!doctype html><meta http-equiv="refresh" content="0; url={first}">\n'
    )
    for page in folder.rglob("*.html"):
        for tag in FETCHED.findall(page.read_text()):
            logging.getLogger(__name__).warning(
                "%s loads from a network: %s", page.relative_to(folder), tag
            )


PAGE = re.compile(r"\bdocs/([\w/]+)\.md(?:#[\w-]+)?")


def escape(
    app: Sphinx, what: str, name: str, value: object, options: object, lines: list[str]
) -> None:
    """Keep the bars of |x|, which are no substitutions, and the colon of a property, which is not after its type.

    The names of pages become links.
    """
    if what in ("property", "attribute") and lines:
        lines[0] = lines[0].replace(": ", " – ")
    for number, line in enumerate(lines):
        if line.strip() == "Example:":
            break
        parts = line.split("``")
        parts[::2] = [
            PAGE.sub(r":doc:`/docs/\1`", part.replace("|", "\\|"))
            for part in parts[::2]
        ]
        lines[number] = "``".join(parts)


def shorten(
    app: Sphinx,
    what: str,
    name: str,
    value: object,
    options: object,
    *signature: str | None,
) -> Any:
    """Write ndarray for arrays, whose shapes are in the text."""
    return tuple(text and ARRAY.sub("ndarray", text) for text in signature)


# What a search for a word finds first: the section of a page.
FIRST = {
    "tail": ("docs/certificates", "where-to-get-a-tail"),
    "checker": ("docs/certificates", "checking-a-file"),
}


def lead(app: Sphinx, page: nodes.document) -> None:
    """Give the sections of `FIRST` an entry in the index, which the search of the site looks through first."""
    for word, (name, section) in FIRST.items():
        found = [
            part
            for part in page.findall(nodes.section)
            if section in part["ids"] and app.env.docname == name
        ]
        if app.env.docname == name and not found:
            logging.getLogger(__name__).warning("%s has no section %s", name, section)
        for part in found:
            part.insert(
                0, addnodes.index(entries=[("single", word, section, "main", None)])
            )


TAG = re.compile(r"\\tag\{([^}]*)\}")


def inline_math(self: HTML5Translator, node: nodes.math) -> None:
    """Write a formula within a line as MathML."""
    self.body.append(convert(node.astext()))
    raise nodes.SkipNode


def displayed_math(self: HTML5Translator, node: nodes.math_block) -> None:
    """Write a displayed formula as MathML, with its number at the end of the line."""
    number = TAG.search(node.astext())
    formula = convert(TAG.sub("", node.astext()).strip(), display="block")
    label = f'<span class="eqno">({number[1]})</span>' if number else ""
    self.body.append(f'<div class="formula">{formula}{label}</div>\n')
    raise nodes.SkipNode


def setup(app: Sphinx) -> None:
    """Register formulas, and the steps before the docstrings are read and after the build."""
    app.add_html_math_renderer("mathml", (inline_math, None), (displayed_math, None))
    app.connect("doctree-read", lead)
    app.connect("autodoc-process-docstring", escape, priority=100)
    app.connect("autodoc-process-signature", shorten)
    app.connect("build-finished", finish)
