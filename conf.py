"""Sphinx settings of the site."""

from pathlib import Path

from triton_site.pages.assemble import assemble_gallery
from triton_site.probes import REFERENCE, REFERENCE_DEVICE, SOFTWARE

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
    "triton_site.pages.software",
    "triton_site.numbers.performance",
    "triton_site.pages.mathml",
    "triton_site.pages.menu",
    "triton_site.pages.chapters",
    "triton_site.pages.bundle",
    "triton_site.pages.garbage",
    "triton_site.pages.lean",
    "triton_site.pages.tables",
    "triton_site.pages.thumbnails",
    "triton_site.pages.links",
    "triton_site.numbers.ladder",
    "triton_site.numbers.claims",
    "triton_site.pages.switch",
    "triton_site.kernels.kernel_diff",
    "triton_site.pages.folds",
    "triton_site.pages.exercises",
    "triton_site.pages.figures",
    "triton_site.pages.tiles",
    "triton_site.pages.notebooks",
    "triton_site.kernels.xray_pages",
    "triton_site.kernels.reference",
    "triton_site.pages.glossary",
    "triton_site.numbers.kernel_map",
    "triton_site.numbers.releases",
    "triton_site.pages.search",
    "triton_site.pages.settings",
    "triton_site.pages.solutions",
    "gallery_recorder.publish.release",
    "sphinx.ext.autodoc",
    "sphinx.ext.napoleon",
    "sphinx_copybutton",
    "triton_site.pages.twins",
    "sphinxcontrib.bibtex",
    "sphinxext.opengraph",
]
templates_path = ["docs/_templates"]
exclude_patterns = ["_templates", "**/GALLERY_HEADER.rst", "programming-guide/chapter-*/index.rst"]
nitpicky = True
autodoc_typehints = "none"
napoleon_attr_annotations = False
html_math_renderer = "mathml"
bibtex_bibfiles = ["docs/programming-guide/references.bib"]
bibtex_default_style = "plain"
bibtex_reference_style = "author_year"

# --- tutorials and their recordings ------------------------------------------------------------

# Without a GPU, Triton's interpreter executes the tutorials: what they compute is right, their
# times say nothing, and such recordings are not kept in git.
gallery_recordings = ["recordings", "build/recordings"]
gallery_environment = {
    "cpu": {"TRITON_INTERPRET": "1", "OMP_NUM_THREADS": "1", "MKL_NUM_THREADS": "1"},
    # What every release did so far; 3.9 warns at each kernel where it is not said.
    "gpu": {"TRITON_DEFAULT_FP_FUSION": "1"},
}
gallery_untimed = {"cpu": "interpreter"}
gallery_devices = [REFERENCE, REFERENCE_DEVICE]
gallery_others = True  # for triton_site.pages.switch
gallery_variant = "triton_site.probes.triton_release"
gallery_probes = [SOFTWARE, "triton_site.xray.kernels"]
gallery_variables = ["TRITON_*", "TORCH_*", "PYTORCH_*"]
gallery_writable = ["~/.triton", "~/.nv", "$TRITON_HOME"]
gallery_data = ["*"]
gallery_stderr = "apart"
gallery_filters = [
    "gallery_recorder.run.text.mask_addresses",
    "gallery_recorder.run.text.name_paths",
]
# Scripts as readers download them: what they share is in each, whole. A folder of guide/ is a
# chapter; nothing has to be listed.
_root = Path(__file__).resolve().parent
_galleries = {
    _root / "tutorials": "getting-started/tutorials",
    **{f: f"programming-guide/{f.name}" for f in sorted(_root.glob("guide/chapter-*"))},
}
assembled_sources = {
    str(assemble_gallery(f, _root / "build/galleries" / f.name, _root / "tutorials/shared")): str(f)
    for f in _galleries
}
sphinx_gallery_conf = {
    "examples_dirs": list(assembled_sources),
    "gallery_dirs": list(_galleries.values()),
    "filename_pattern": "",
    "within_subsection_order": "triton_site.pages.solutions.ExerciseOrder",
    "image_scrapers": ("triton_site.pages.scraper.svg_scraper",),
    "remove_config_comments": True,
    # Its page of execution times loads scripts from other hosts; recordings.rst says more.
    "write_computation_times": False,
    "show_signature": False,  # the footer says it
    "default_thumb_file": "docs/_static/no-figure.svg",
    # Names in code lead to the API reference, and entries of the reference to tutorials.
    "doc_module": ("triton",),
    "backreferences_dir": "gen_modules/backreferences",
}

# --- how it looks ------------------------------------------------------------------------------

html_theme = "sphinx_rtd_theme"
# Pygments' classes of names, modules, operators, punctuation and space look like text here.
gallery_plain_tokens = ("n", "nn", "o", "p", "w")
html_theme_options = {
    "navigation_with_keys": True,
    "prev_next_buttons_location": None,  # our layout has them, with titles
}
html_static_path = ["docs/_static"]
html_css_files = ["custom.css", "layout.css", "versions.css", "reference.css"]
html_css_files += ["reading.css", "switch.css"]
html_js_files = [
    "menu.js",
    "versions.js",
    "switch.js",
    "scroll.js",
    "layout.js",
    "reading.js",
    "xray.js",
    "figures.js",
    "tiles.js",
    "terms.js",
]
html_logo = "docs/_static/logo.svg"
html_favicon = "docs/_static/favicon.svg"
html_title = "Triton Gallery"
# Where the stable version is served; the other versions are beside it.
html_baseurl = "https://triton-gallery.github.io/triton-gallery/stable/"
# Link previews: title, description and the site's picture; cards drawn per page need matplotlib.
ogp_site_url = html_baseurl
ogp_image = "_static/card.png"
ogp_image_alt = "Triton Gallery"
ogp_social_cards = {"enable": False}
html_context = {"repository": repository, "branch": branch}
html_copy_source = True
copybutton_selector = "div:not(.sphx-glr-script-out) > div.highlight > pre"
copybutton_exclude = ".linenos, .gp, .go"

# --- make linkcheck ----------------------------------------------------------------------------

linkcheck_ignore = [
    # Written by `make html`; links to them are tested there.
    r"(\.\./)*_static/reproduce/.*",
    r"(\.\./)*_static/(exercise\.py|(performance|claims)\.(schema\.)?json)",
    r"https://doi\.org/10\.1145/.*",  # ACM answers programs with 403; compared by hand
]
