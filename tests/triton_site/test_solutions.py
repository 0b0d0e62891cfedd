"""Solutions stand in the order of their exercises, and lead back to them."""

from bs4 import BeautifulSoup

from triton_site.pages.solutions import ExerciseOrder

T = "getting-started/tutorials"


def test_the_order_is_that_of_the_exercises(tmp_path):
    folder = tmp_path / "solutions"
    folder.mkdir()
    (tmp_path / "02-b.py").write_text("# :doc:`Solution\n# <solutions/02-z>`. <solutions/02-a>")
    (tmp_path / "01-a.py").write_text("# <solutions/01-x>")
    key = ExerciseOrder(str(folder))
    names = ["02-unnamed.py", "02-a.py", "01-x.py", "02-z.py"]
    assert sorted(names, key=key) == ["01-x.py", "02-z.py", "02-a.py", "02-unnamed.py"]
    assert sorted(["02-b.py", "01-a.py"], key=ExerciseOrder(tmp_path)) == ["01-a.py", "02-b.py"]


def test_a_solution_leads_back_to_the_exercises(site):
    for page in (site / T / "solutions").glob("0*.html"):
        links = [a["href"] for a in BeautifulSoup(page.read_bytes(), "html.parser").select("a")]
        back = [link for link in links if link.startswith("../") and link.endswith("#exercises")]
        assert back, page
        assert (page.parent / back[0].partition("#")[0]).is_file()


def test_the_list_is_grouped_by_tutorial(site):
    page = BeautifulSoup((site / T / "solutions" / "index.html").read_bytes(), "html.parser")
    groups = [p.text for p in page.select(".sphx-glr-thumbnails > .gallery-group")]
    assert groups[:2] == ["Vector addition", "Fused softmax"]
    assert len(groups) == len(set(groups))
