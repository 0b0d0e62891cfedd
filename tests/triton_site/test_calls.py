"""The table of calls has what every page of the reference recorded, as text."""

from tests.fixtures import site_gallery

CALLS = """function,provider,unit,median,p20,p80
add <b>,triton,µs,12.34,12,13
add <b>,torch,µs,4,4,4
"""


def test_each_function_has_its_times(tmp_path):
    extensions = (*site_gallery.EXTENSIONS, "triton_site.numbers.calls")
    root = site_gallery.make_gallery(tmp_path / "gallery", extensions=extensions)
    (root / "docs" / "index.rst").write_text(f"{site_gallery.INDEX}\n.. calls::\n")
    site_gallery.make_recording(root, "01-first", speed=CALLS, file="calls.csv")
    site_gallery.make_recording(root, "02-second")
    site_gallery.render(root)
    page = (root / "build" / "html" / "index.html").read_text()
    assert page.count("<table") == 1
    assert "add &lt;b&gt;" in page
    for cell in ("12.3", "4.0", "–"):
        assert f"<td><p>{cell}</p></td>" in page
