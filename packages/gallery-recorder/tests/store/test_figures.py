"""What a scraper returns becomes data of a closed list; the rest is refused by its name."""

import re
import subprocess
import sys

import pytest

from gallery_recorder.store.figures import NotKeptError, figures_of
from gallery_recorder.store.format import Figure, Html, Image, Video

FILES = {"images/a.png", "images/a_2_00x.png", "images/b.png", "images/v.mp4", "images/w.html"}
SINGLE = ("sphx-glr-single-img",)
MULTI = ("sphx-glr-multi-img",)

SCRAPED = """
.. image-sg:: /@@gallery@@/images/a.png
   :alt: A title, another
   :srcset: /@@gallery@@/images/a.png, /@@gallery@@/images/a_2_00x.png 2.00x
   :class: sphx-glr-single-img
"""
ROW = """
.. rst-class:: sphx-glr-horizontal


    *

      .. image-sg:: /@@gallery@@/images/a.png
          :alt: A
          :srcset: /@@gallery@@/images/a.png
          :class: sphx-glr-multi-img

    *

      .. container:: sphx-glr-animation

          .. raw:: html

              <video>
                x
              </video>
"""


@pytest.mark.parametrize(
    ("rst", "figures"),
    [
        ("", ()),
        (
            SCRAPED,
            [
                [
                    Image(
                        "images/a.png",
                        "A title, another",
                        True,
                        {"2.00": "images/a_2_00x.png"},
                        SINGLE,
                    )
                ]
            ],
        ),
        (
            ROW,
            [
                [
                    Image("images/a.png", "A", True, {}, MULTI),
                    Html("<video>\n  x\n</video>", container=("sphx-glr-animation",)),
                ]
            ],
        ),
        (
            " .. image:: images/b.png\n     :alt:\n     :width: 50 %\n     :class: x y\n",
            [[Image("images/b.png", "", width="50%", classes=("x", "y"))]],
        ),
        (
            ".. figure:: /@@gallery@@/images/b.png\n   :scale: 50 %\n   :align: left\n"
            "   :target: https://example.org/a?b=c\n\n   A caption\n   of two lines.\n",
            [
                [
                    Image(
                        "images/b.png",
                        scale=50,
                        align="left",
                        link="https://example.org/a?b=c",
                        caption="A caption of two lines.",
                    )
                ]
            ],
        ),
        (
            ".. video:: /@@gallery@@/images/v.mp4\n   :class: sphx-glr-single-img\n"
            "   :height: 480\n   :width: 640\n   :autoplay:\n   :loop:\n\n",
            [[Video("images/v.mp4", None, SINGLE, 640, 480, autoplay=True, loop=True)]],
        ),
        (
            ".. only:: builder_html\n\n    .. container:: row\n\n        .. raw:: html\n"
            "            :file: images/w.html\n",
            [[Html(file="images/w.html", container=("row",))]],
        ),
        (".. raw:: html\n\n    <p>\n\n    :file: x\n", [[Html("<p>\n\n:file: x")]]),
        (
            ".. image:: images/a.png\n\n.. image:: images/b.png\n",
            [[Image("images/a.png")], [Image("images/b.png")]],
        ),
    ],
)
def test_images_videos_and_html_are_kept_as_data(rst, figures):
    for below in (False, True):
        assert figures_of(rst, FILES, below) == tuple(Figure(tuple(f), below) for f in figures)


@pytest.mark.parametrize(
    ("rst", "named"),
    [
        (".. plot::\n\n   open('x', 'w')\n", ".. plot::"),
        (".. automodule:: os\n", ".. automodule::"),
        (".. csv-table::\n   :url: http://example.org/\n", ".. csv-table::"),
        (".. csv-table::\n   :file: /etc/passwd\n", ".. csv-table::"),
        (".. include:: /etc/passwd\n", ".. include::"),
        (".. raw:: html\n   :url: http://example.org/\n", ":url:"),
        (".. raw:: html\n   :file: /etc/passwd\n", "/etc/passwd"),
        (".. raw:: html\n   :file: ../conf.py\n", "../conf.py"),
        (".. raw:: latex\n\n   x\n", ".. raw:: latex"),
        (".. py:function:: f\n", ".. py:function::"),
        (".. image:: https://example.org/a.png\n", "example.org"),
        (".. image:: images/gone.png\n", "images/gone.png"),
        (".. image:: images/a.png\n   :target: javascript:alert(1)\n", "https?"),
        (".. image:: images/a.png\n   :target: https://a\\u2028b\n", "https?"),
        (".. image:: images/a.png\n   :name: evil\n", ":name:"),
        (".. image:: images/a.png\n   :class: a;b\n", "regex"),
        (".. image:: images/a.png\n   :width: 1;x\n", "regex"),
        (".. image:: images/a.png\n\n   content\n", "content"),
        (".. image:: images/a.png\n   images/b.png\n", "several lines"),
        (".. figure:: images/a.png\n\n   A `link <javascript:alert(1)>`_\n", "markup"),
        (".. figure:: images/a.png\n\n   A caption.\n\n   A legend.\n", "legend"),
        ("Some text\n", "Some text"),
        (".. a comment\n", "a comment"),
        (".. |x| image:: images/a.png\n", "|x|"),
        (".. _target: javascript:alert(1)\n", "_target"),
        (".. rst-class:: other\n\n   .. image:: images/a.png\n", ".. rst-class::"),
        (".. container:: a\n\n   .. container:: b\n\n      .. plot::\n", ".. container::"),
        (".. container:: a\n\n   .. plot::\n", ".. plot::"),
        (".. only:: html\n\n   .. only:: html\n\n      .. plot::\n", ".. only::"),
        (".. video:: images/v.mp4\n   :onerror: x\n", ":onerror:"),
    ],
)
def test_anything_else_is_refused_by_its_name(rst, named):
    with pytest.raises(NotKeptError) as error:
        figures_of(rst, FILES)
    assert re.search(re.escape(named), str(error.value)) or re.search(named, str(error.value))
    assert "\n" not in str(error.value)


def test_reading_recordings_imports_neither_sphinx_nor_sphinx_gallery():
    code = (
        "import sys; from gallery_recorder.store import migrations, figures, reading, images\n"
        "print([m for m in ('sphinx', 'sphinx_gallery', 'docutils') if m in sys.modules])"
    )
    made = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert made.stdout == "[]\n"
