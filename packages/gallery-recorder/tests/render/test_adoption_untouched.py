"""The engine changes nothing but its own: an adopter's process is as Sphinx alone leaves it."""

import json
import os
import subprocess
import sys

import pytest

from gallery_recorder.testing import processes, small_gallery

#: Two builds in one process. Prints, for each moment, which functions, classes and methods of
#: Sphinx, docutils, Python's library and sphinx-gallery are other objects than before, the state
#: of the garbage collector, and which attributes of builder and environment are the engine's.
WATCHED = """
import contextlib, gc, importlib, io, json, pkgutil, shutil, sys, types, warnings
import docutils, sphinx, sphinx.ext, sphinx.builders, sphinx_gallery
import typing_extensions  # which replaces functions of typing, and comes with PyTorch

warnings.simplefilter("ignore")
for package in (docutils, sphinx, sphinx_gallery):
    for module in pkgutil.walk_packages(package.__path__, package.__name__ + "."):
        if not {"__main__", "tests"} & {*module.name.split(".")}:
            with contextlib.suppress(Exception):
                importlib.import_module(module.name)
KEPT = {"sphinx", "docutils", "sphinx_gallery", *sys.stdlib_module_names} - {"__main__"}
CODE = (type, types.FunctionType, types.BuiltinFunctionType, classmethod, staticmethod, property)


def objects(kinds):
    for name, module in list(sys.modules.items()):
        if name.partition(".")[0] in KEPT and isinstance(module, types.ModuleType):
            for key, value in list(vars(module).items()):
                if isinstance(value, kinds):
                    yield f"{name}.{key}", value
                if isinstance(value, type):
                    for inner, method in list(vars(value).items()):
                        if isinstance(method, kinds):
                            yield f"{name}.{key}.{inner}", method


before = dict(objects(CODE))
collector = (gc.isenabled(), gc.get_threshold(), gc.get_freeze_count())
moments = {}


def look(moment, *instances):
    now = dict(objects(object))
    moments.setdefault(moment, set()).update(
        name for name, value in before.items() if now.get(name) is not value
    )
    if (gc.isenabled(), gc.get_threshold(), gc.get_freeze_count()) != collector:
        moments[moment].add("gc")
    for one in instances:
        for name, value in vars(one).items():
            owner = getattr(getattr(value, "func", value), "__module__", None) or ""
            if callable(value) and owner.startswith("gallery_recorder"):
                moments[moment].add(f"{type(one).__name__}().{name}")


def watch(app):
    for event in ("builder-inited", "env-before-read-docs", "doctree-read", "env-updated",
                  "write-started", "html-page-context", "build-finished"):
        see = lambda app, *_, e=event: look(e, app, app.builder, app.env)
        if event in app.events.events:  # Sphinx 7.2 lacks one
            app.connect(event, see, priority=995)


def generating(conf, script):
    look("generating")


watching = sys.modules["watching"] = types.ModuleType("watching")
watching.setup, watching.reset_argv = watch, generating
from sphinx.cmd.build import main
for _ in range(2):
    with contextlib.redirect_stdout(io.StringIO()):
        assert main(sys.argv[1:]) == 0
    look("after")
    script = "tutorials/01-first.py"
    text = open(script).read()
    open(script, "w").write(text.replace("Prose", "Better prose"))
print(json.dumps({moment: sorted(found) for moment, found in moments.items()}))
"""

CONF = """
import watching

class Order:
    def __init__(self, folder): pass
    def __call__(self, name):
        watching.reset_argv({}, name)
        return name

extensions.append("watching")
sphinx_gallery_conf |= {"within_subsection_order": Order, "image_scrapers": (), "reset_modules": ()}
suppress_warnings = ["config.cache"]
"""


@pytest.fixture(scope="module")
def moments(tmp_path_factory):
    """What two builds change, by plain sphinx-gallery and with the engine."""
    found = []
    for extension in ("sphinx_gallery.gen_gallery", "gallery_recorder"):
        root = small_gallery.make_gallery(
            tmp_path_factory.mktemp("process") / "g", extensions=[extension]
        )
        for name in ("01-first", "02-second"):
            small_gallery.make_recording(root, name)
        if extension != "gallery_recorder":
            (root / "docs" / "recordings.rst").write_text("Recordings\n==========\n")
        with (root / "conf.py").open("a") as conf:
            conf.write(CONF)
        words = ["-q", "-c", ".", "-d", "build/doctrees", "-b", "html", "docs", "build/html"]
        done = subprocess.run(
            [sys.executable, "-c", WATCHED, *words],
            cwd=root,
            env=os.environ | {"PYTHONPATH": processes.search_path()},
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.returncode == 0, done.stderr
        found.append({moment: {*names} for moment, names in json.loads(done.stdout).items()})
    return found


def test_two_builds_replace_nothing_of_sphinx_docutils_and_python(moments):
    plain, ours = moments
    assert len(ours) >= 8
    for moment, names in ours.items():
        others = {name for name in names if not name.startswith("sphinx_gallery.")}
        assert others <= plain[moment], moment


def test_names_of_sphinx_gallery_are_replaced_while_it_makes_pages_and_put_back(moments):
    from gallery_recorder import seam

    plain, ours = moments
    allowed = {name for _, name, _, why in seam._NAMES if why == "replace"}
    replaced = {n for n in ours.pop("generating") if n.startswith("sphinx_gallery.")}
    assert {name.rpartition(".")[2] for name in replaced} <= allowed
    assert "sphinx_gallery.gen_rst.execute_script" in replaced
    for moment, names in ours.items():
        assert names <= plain[moment], moment
