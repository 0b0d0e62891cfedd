"""Sphinx settings of the site."""

from pathlib import Path

from triton_site.pages.assemble import assemble_gallery
from triton_site.pages.exercises import write_checker
from triton_site.references import REFERENCE_DEVICES, REFERENCES, SOFTWARE

project = "Triton Gallery"
author = "the Triton Gallery authors"
copyright = author
# One setting for the links "edit this page" and "open in Colab".
repository = "triton-gallery/triton-gallery"
branch = "main"

# --- what is built ---------------------------------------------------------------------------

extensions = [
    "sphinx_gallery.gen_gallery",
    "gallery_recorder",
    "gallery_recorder.publish.release",
    "triton_site.pages",
    "triton_site.numbers",
    "triton_site.kernels",
    "sphinx.ext.autodoc",
    "sphinx.ext.napoleon",
    "sphinx_copybutton",
    "sphinxcontrib.bibtex",
]
templates_path = ["docs/_templates"]
exclude_patterns = [
    "_templates",
    "**/GALLERY_HEADER.rst",
    "**/__pycache__",  # of the scripts in docs/_static
    "programming-guide/chapter-*/index.rst",
]
nitpicky = True
autodoc_typehints = "none"
napoleon_attr_annotations = False
html_math_renderer = "mathml"
bibtex_bibfiles = ["docs/programming-guide/references.bib"]
bibtex_default_style = "plain"
bibtex_reference_style = "author_year"

# --- tutorials and their recordings ------------------------------------------------------------

# Without a GPU, Triton's interpreter executes the tutorials. Their results are right, their times
# are meaningless, and git does not keep such recordings.
gallery_recordings = ["recordings", "build/recordings"]
gallery_environment = {
    "cpu": {"TRITON_INTERPRET": "1", "OMP_NUM_THREADS": "1", "MKL_NUM_THREADS": "1"},
    # The default of every release; 3.9 warns at each kernel if it is not set.
    "gpu": {"TRITON_DEFAULT_FP_FUSION": "1"},
}
gallery_untimed = {"cpu": "interpreter"}
gallery_devices = [*REFERENCES, *REFERENCE_DEVICES]
gallery_unrecorded = "stale"  # for who has no GPU; `make publish` refuses such a build
gallery_others = True  # a page for each other recording, such as that of an older Triton
gallery_menus = "titles"  # triton_site/pages/frame.py
gallery_variant = "triton_site.probes.triton_release"
gallery_probes = [SOFTWARE, "triton_site.xray.kernels"]
gallery_variables = ["TRITON_*", "TORCH_*", "PYTORCH_*"]
gallery_data = ["*"]
gallery_stderr = "apart"
gallery_filters = [
    "gallery_recorder.run.text.mask_addresses",
    "gallery_recorder.run.text.name_paths",
]
# Scripts as readers download them, with their shared code. Each folder of guide/ is a chapter.
_root = Path(__file__).resolve().parent
_galleries = {
    _root / "tutorials": "getting-started/tutorials",
    **{f: f"programming-guide/{f.name}" for f in sorted(_root.glob("guide/chapter-*"))},
}
assembled_sources = {
    str(assemble_gallery(f, _root / "build/galleries" / f.name, _root / "tutorials/shared")): str(f)
    for f in _galleries
}
gallery_sources = assembled_sources
# What a page of a kernel imports of the package counts as its code.
gallery_inputs = ["packages/gallery-kernels/src"]
sphinx_gallery_conf = {
    "examples_dirs": list(assembled_sources),
    "gallery_dirs": list(_galleries.values()),
    "filename_pattern": "",
    "within_subsection_order": "triton_site.pages.path.PathSortKey",
    "image_scrapers": ("triton_site.pages.scraper.svg_scraper",),
    "copyfile_regex": r".*\.svg",  # drawings beside the scripts, made by `python -m docs.figures`
    "remove_config_comments": True,
    # Its page of execution times loads scripts from other hosts.
    "write_computation_times": False,
    "show_signature": False,  # the footer has it
    "default_thumb_file": "docs/_static/no-figure.svg",
    # Names in code link to the API reference, and its entries to tutorials.
    "doc_module": ("triton",),
    "backreferences_dir": "gen_modules/backreferences",
}

# --- how it looks ------------------------------------------------------------------------------

html_theme = "sphinx_rtd_theme"
html_theme_options = {"navigation_depth": 3}
html_static_path = [
    "docs/_static",
    str(write_checker(_root, _root / "build/checker/exercise.pyz")),
    str(_root / "build/checker/exercise.py"),
]
html_css_files = ["custom.css", "frame.css", "reading.css", "reference.css"]
html_js_files = [
    ("site.js", {"defer": ""}),
    ("tiles.js", {"defer": ""}),
    ("occupancy.js", {"defer": ""}),
    ("xray.js", {"defer": ""}),
    ("plots.js", {"defer": ""}),
    ("versions.js", {"defer": ""}),
]
html_logo = "docs/_static/logo.svg"
html_show_sphinx = False  # the footer names it
html_favicon = "docs/_static/favicon.svg"
html_title = "Triton Gallery"
# The address of the stable version; the other versions are beside it.
html_baseurl = "https://triton-gallery.github.io/triton-gallery/stable/"
html_context = {
    "repository": repository,
    "branch": branch,
    "card": f"{html_baseurl}_static/card.png",  # for link previews
}
html_copy_source = False  # each page links to its source on GitHub
copybutton_selector = "div:not(.sphx-glr-script-out) > div.highlight > pre"
copybutton_exclude = ".linenos, .gp, .go"

# --- make linkcheck ----------------------------------------------------------------------------

linkcheck_ignore = [
    # Written by `make html`; links to it are tested there.
    r"(\.\./)*_static/exercise\.pyz?",
    r"https://doi\.org/10\.1145/.*",  # ACM answers programs with 403; compared by hand
]
