# Triton Gallery. `make help` lists the verbs.
#
# By default everything happens in an environment of the checkout's own, .venv. With
# PYTHON=/path/to/python that environment is used as it is, and nothing is installed.

T       ?=
DEVICE  ?= auto
FORCE   ?=
OLD     ?=
NEW     ?= recordings
PORT    ?= 8000

ifdef PYTHON
  PY     := $(PYTHON)
  RENDER :=
  RECORD :=
  TEST   :=
else
  PY     := .venv/bin/python
  RENDER := .venv/installed-render
  RECORD := .venv/installed-record
  TEST   := .venv/installed-test
endif

SPHINX   := $(PY) -m sphinx -c . -d build/doctrees -W --keep-going -q -j auto
GALLERY  := $(PY) -m gallery_recorder

.PHONY: help html record status check compare test lint linkcheck bench serve clean

help: ## list the verbs
	@grep -hE '^[a-z]+:.*## ' $(MAKEFILE_LIST) | sed -E 's/^([a-z]+):.*## /\1\t/' | \
	  awk -F'\t' '{printf "  make %-10s %s\n", $$1, $$2}'

html: $(RENDER) ## build the site into build/html, recording first what has no recording
	@mkdir -p build
	@$(GALLERY) status --check any >build/status.txt 2>&1 || $(MAKE) --no-print-directory missing
	@$(SPHINX) -b html docs build/html
	@echo "The site: file://$(CURDIR)/build/html/index.html"

.PHONY: missing
missing: $(RECORD)
	@cat build/status.txt
	$(GALLERY) record --missing --device $(DEVICE)

record: $(RECORD) ## execute tutorials and keep their outputs: T=02 for one, DEVICE=auto|cuda|cpu, FORCE=1
	$(GALLERY) record $(T) --device $(DEVICE) $(if $(FORCE),--force)

status: $(RENDER) ## say which recordings are current, stale or missing
	@$(GALLERY) status

check: $(RENDER) ## fail where a tutorial lacks a current recording of the reference device
	@$(GALLERY) status --check

compare: $(RENDER) ## the benchmarks of two recordings, or folders of them: OLD=dir NEW=dir
	@$(GALLERY) compare $(OLD) $(NEW)

test: $(TEST) lint ## run the linters and all tests
	$(PY) -m pytest

lint: $(TEST) ## run the linters alone
	$(PY) -m ruff check .
	$(PY) -m ruff format --check .
	$(PY) -m sphinxlint --enable all --disable line-too-long docs/*.rst docs/getting-started/*.rst README.md

linkcheck: $(RENDER) ## try every link that leaves the site
	$(SPHINX) -b linkcheck docs build/linkcheck

bench: $(TEST) ## measure rendering and recording; prints tables
	$(PY) -m benchmarks

serve: html ## build the site and serve it on this machine: PORT=8000
	$(PY) -m http.server --bind 127.0.0.1 --directory build/html $(PORT)

clean: ## delete everything that was built; recordings stay
	rm -rf build docs/getting-started/tutorials

# --- the checkout's own environment --------------------------------------------------------------

.venv/bin/python:
	@python3 -c 'import sys; sys.exit(sys.version_info < (3, 11))' || \
	  { echo "Python 3.11 or later is needed; python3 is $$(python3 -V). Put a newer one first in PATH."; exit 1; }
	python3 -m venv .venv
	$(PY) -m pip install --quiet --disable-pip-version-check "pip>=25.1"

.venv/installed-%: pyproject.toml requirements.txt | .venv/bin/python
	$(PY) -m pip install --quiet --disable-pip-version-check --group $* --constraint requirements.txt
	@touch $@

