"""What the site must not forget; that it builds without a warning is a step of .ci/run."""

import re
import runpy
from pathlib import Path

import pytest

import dask_mcsvm

DOCS = Path(__file__).parents[1] / "docs"


@pytest.mark.parametrize("name", [n for n in dask_mcsvm.__all__ if not n.startswith("_")])
def test_every_public_method_is_in_the_reference(name):
    text = (DOCS / "api.md").read_text("utf-8")
    (members,) = re.findall(rf"autoclass:: dask_mcsvm\.{name}\n   :members: (.*)\n", text)
    ours = {
        method
        for parent in getattr(dask_mcsvm, name).__mro__
        if parent.__module__.startswith("dask_mcsvm")
        for method, value in vars(parent).items()
        if not method.startswith("_")
        # Methods that are there only sometimes are descriptors with a check.
        and (callable(value) or isinstance(value, classmethod) or hasattr(value, "check"))
    }
    assert set(members.split(", ")) == ours


def test_the_gallery_is_of_the_examples_there_are():
    gallery = runpy.run_path(str(DOCS / "make_gallery.py"))
    again = "type python docs/make_gallery.py"
    assert (DOCS / "examples.md").read_text("utf-8") == gallery["page"](), again
    drawn = sorted(path.stem for path in (DOCS / "images" / "examples").glob("*.png"))
    assert drawn == gallery["names"](), again
    assert set(gallery["DRAWN"]) <= set(drawn)


def test_every_example_and_every_page_is_on_the_site():
    shown = re.findall(r"\.\./examples/(\w+\.py)", (DOCS / "examples.md").read_text("utf-8"))
    assert shown == sorted(path.name for path in (DOCS.parent / "examples").glob("*.py"))
    index = (DOCS / "index.md").read_text("utf-8")
    listed = re.findall(r"^(?:.*<)?([\w/-]+)>?$", index, re.MULTILINE)
    assert "\ndecisions/*\n" in index
    for page in DOCS.glob("*.md"):
        assert page.stem in (*listed, "index"), f"docs/index.md does not list {page.stem}"


def test_the_citation_is_of_this_version():
    text = (DOCS.parent / "CITATION.cff").read_text("utf-8")
    assert f"version: {dask_mcsvm.__version__}\n" in text
