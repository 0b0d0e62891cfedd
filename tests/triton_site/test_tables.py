"""Columns of numbers in the tables of a page."""

from docutils.core import publish_doctree

from triton_site.numbers import tables

TABLE = """
.. csv-table::
   :header: name, time, size, version

   one, 1.5 ms, 16384, 3.9.0
   two, 12 ms, 8, 3.10.0
   three, –, 1048576.5, 3.6.0
"""


def test_numbers_stand_at_the_right_with_separators_and_names_and_versions_do_not():
    doctree = publish_doctree(TABLE)
    tables._mark_numbers(None, doctree)
    html = doctree.pformat()
    cells = {entry.astext(): entry["classes"] for entry in doctree.findall(tables.nodes.entry)}
    right = {text for text, classes in cells.items() if "number" in classes}
    assert right == {
        *("time", "1.5 ms", "12 ms", "–"),
        *("size", "16,384", "8", "1,048,576.5"),
    }, html
