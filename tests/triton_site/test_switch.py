"""What the switch exchanges makes of a page the page of another recording; two devices work."""

from __future__ import annotations

import json
import re
import shutil

import pytest
from bs4 import BeautifulSoup

from tests.fixtures import two_devices
from tests.fixtures.two_devices import DEVICE, GALLERY, OLDER, REAL, SECOND
from triton_site.pages import switch

PAGE = """<p class="gallery-provenance">Recorded on A</p>
<section id="top" class="a"><h1>Title<a href="#top">¶</a></h1>
<p>Prose &lt; and <br /> a <img src="x.svg" alt="a > b"> in it</p>
<div class="out"><pre>1 &amp; 2</pre></div>
<section id="one"><h2>One</h2><p>text</p><svg><line x1="1"/></svg>{one}</section>
<section id="two"><h2>Two</h2>{two}<p>end</p></section>
</section>
"""


def exchanged(shown: str, other: str) -> str:
    """The page *shown* after the exchanges, as the browser carries them out."""
    page = BeautifulSoup(shown, "html.parser")
    for section, first, end, html in switch.exchanges(shown, other):
        place = page.find(id=section) if section else page
        children = place.find_all(recursive=False)
        new = list(BeautifulSoup(html, "html.parser").children)
        if first < len(children):
            children[first].insert_before(*new)
        else:
            place.extend(new)
        for child in children[first:end]:
            child.extract()
    return plain(str(page))


def plain(html: str) -> str:
    return re.sub(r">\s+<", "><", str(BeautifulSoup(html, "html.parser"))).strip()


@pytest.mark.parametrize(
    ("one", "two"),
    [
        (("", ""), ("", "")),
        (("<p>a</p>", "<p>b</p>"), ("", "")),
        (("<p>a</p>", ""), ("", "<p>b</p><p>c</p>")),
        (("", "<table><tr><td>1</td></tr></table>"), ("<p>x</p><p>y</p>", "<p>y</p>")),
        (("<p>same</p>",) * 2, ("<pre>1\n2</pre>", "<pre>1\n3</pre>")),
    ],
)
def test_a_page_becomes_the_other_one(one, two):
    shown, other = (PAGE.format(one=a, two=b) for a, b in zip(one, two, strict=True))
    other = other.replace("Recorded on A", "Recorded on B")
    assert exchanged(shown, other) == plain(other)
    assert len(switch.exchanges(shown, other)) == 1 + sum(a != b for a, b in (one, two))
    assert switch.exchanges(shown, shown) == []


def views(site, page: str) -> dict[str, dict]:
    """What the files beside a page hold, by place."""
    found = {}
    for path in (site / page).parent.glob(f"{(site / page).stem}.*.js"):
        text = path.read_text(encoding="utf-8")
        place, data = re.fullmatch(
            r"galleryView\((\"[^\"]+\"), (.*)\);\n", text, re.DOTALL
        ).groups()
        found[json.loads(place)] = json.loads(data)
    return found


def test_each_page_has_a_file_for_each_other_recording(two_devices_site):
    assert views(two_devices_site, f"{GALLERY}/01-vector-add.html").keys() == {OLDER, SECOND}
    assert views(two_devices_site, f"{GALLERY}/02-fused-softmax.html").keys() == {SECOND}
    assert views(two_devices_site, "performance.html").keys() == {OLDER}


def test_a_page_offers_all_places_the_reference_first(two_devices_site):
    for name, missing in (("01-vector-add", []), ("02-fused-softmax", [OLDER])):
        html = (two_devices_site / GALLERY / f"{name}.html").read_text(encoding="utf-8")
        box = BeautifulSoup(html, "html.parser").select_one(".gallery-switch")
        assert box.has_attr("hidden"), "without a script there is nothing to choose"
        options = box.select("option")
        assert [option["value"] for option in options] == [REAL, OLDER, SECOND]
        assert [o["value"] for o in options if o.has_attr("disabled")] == missing
        assert [o["value"] for o in options if o.has_attr("selected")] == [REAL]


def test_outputs_tables_plots_xray_and_notebook_follow(two_devices_site):
    page = (two_devices_site / GALLERY / "01-vector-add.html").read_text(encoding="utf-8")
    for place, data in views(two_devices_site, f"{GALLERY}/01-vector-add.html").items():
        html = "".join(part[3] for part in data["exchanges"])
        name = place.replace("/", "-")
        for figure in set(re.findall(r'src="([^"]+\.svg)"', html)):
            assert name in figure
            assert (two_devices_site / GALLERY / figure).is_file()
        for code in set(re.findall(r'data-source="([^"]+)"', html)):
            assert name in code
            assert (two_devices_site / GALLERY / code).is_file()
        assert 'class="gallery-ladder' in html
        assert name in html[: html.index("full record")]
        notebook = two_devices_site / "_downloads" / data["notebook"]
        assert data["notebook"] not in page
        recorded = json.loads(notebook.read_text(encoding="utf-8"))["metadata"]["recorded"]
        assert recorded["device"] == (DEVICE if place == SECOND else "NVIDIA H200")
        assert place.endswith(recorded["triton"])


def test_the_performance_page_has_both_devices(two_devices_site):
    html = (two_devices_site / "performance.html").read_text(encoding="utf-8")
    page = BeautifulSoup(html, "html.parser")
    charts = [caption.text for caption in page.select(".gallery-chart figcaption")]
    assert (
        sum(DEVICE in text for text in charts) == sum("NVIDIA H200" in text for text in charts) > 0
    )
    assert f"{DEVICE}, Triton 3.9.0" in page.select_one("table.gallery-claims").text
    data = json.loads((two_devices_site / "_static/performance.json").read_text())
    assert {item["device"] for item in data["benchmarks"]} == {"NVIDIA H200", DEVICE}


def test_a_claim_that_fails_on_the_second_device_is_shown_where_it_stands(two_devices_site):
    claims = json.loads((two_devices_site / "_static/claims.json").read_text())["claims"]
    failed = [claim for claim in claims if claim["device"] == DEVICE and not claim["held"]]
    assert {claim["page"] for claim in failed} == {
        f"{GALLERY}/{name}.html" for name in two_devices.NAMES
    }
    for claim in failed:
        html = (two_devices_site / claim["page"]).read_text(encoding="utf-8")
        section = BeautifulSoup(html, "html.parser").find(id=claim["anchor"])
        notes = [note.text for note in section.select(".gallery-claim-failed")]
        assert any(f"did not hold on {DEVICE} with Triton 3.9.0" in note for note in notes)


def test_a_device_that_is_gone_is_gone_from_all_pages_of_the_next_build(tmp_path):
    folder = two_devices.project(tmp_path / "project")
    two_devices.build(folder)
    shutil.rmtree(folder / "recordings" / SECOND.partition("/")[0])
    site = two_devices.build(folder)
    assert views(site, f"{GALLERY}/01-vector-add.html").keys() == {OLDER}
    assert views(site, f"{GALLERY}/02-fused-softmax.html") == {}
    for name in ("01-vector-add", "02-fused-softmax"):
        assert SECOND not in (site / GALLERY / f"{name}.html").read_text(encoding="utf-8")
