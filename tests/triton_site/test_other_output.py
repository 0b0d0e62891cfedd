"""The output of a named cell comes from the recording of the release that is asked for."""

import subprocess

import pytest
from bs4 import BeautifulSoup

from tests.fixtures import site_gallery
from triton_site.references import REFERENCE_DEVICES, SOFTWARE

DEVICE = REFERENCE_DEVICES[0]


@pytest.mark.parametrize(
    ("name", "release", "says"),
    [
        ("pi", "3.6.0", "3.14159 on nvidia-h100-80gb-hbm3/old"),
        ("pi", "3.9.0", "3.14159 on nvidia-h100-80gb-hbm3/new"),
        ("pi", "3.7.0", None),  # no recording: the page is as without the directive
        ("pie", "3.6.0", subprocess.CalledProcessError),
    ],
)
def test_a_cell_shows_what_another_release_printed(tmp_path, name, release, says):
    extensions = (*site_gallery.EXTENSIONS, "triton_site.numbers.other_output")
    root = site_gallery.make_gallery(tmp_path / "gallery", ("01-first",), extensions=extensions)
    with (root / "conf.py").open("a") as conf:
        conf.write("gallery_others = True\n")
    script = root / "tutorials" / "01-first.py"
    text = script.read_text().replace(
        "print(math.pi)", '# sphinx_gallery_name = "pi"\nprint(math.pi)'
    )
    script.write_text(f"{text}\n# %%\n# .. output-of:: {name}\n#    :release: {release}\n")
    for variant, software in (("old", "3.6.0"), ("new", "3.9.0")):
        folder = site_gallery.make_recording(root, "01-first", f"{DEVICE}/{variant}")
        site_gallery.change(folder, probes={SOFTWARE: {"triton": software}})
    if says is subprocess.CalledProcessError:
        with pytest.raises(says):
            site_gallery.render(root)
        return
    site_gallery.render(root)
    page = BeautifulSoup((root / "build/html/tutorials/01-first.html").read_text(), "lxml")
    captions = page.select(".output-of")
    assert len(captions) == (says is not None)
    for caption in captions:
        assert f"Triton {release}" in caption.text
        assert says in caption.find_next("pre").text
    if release == "3.9.0":  # on the page of its own, what the main page's release printed
        view = BeautifulSoup((root / "build/html/tutorials/01-first.new.html").read_text(), "lxml")
        (caption,) = view.select(".output-of")
        assert "Triton 3.6.0" in caption.text
