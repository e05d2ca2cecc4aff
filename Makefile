PYTHON ?= python3
BIN := .venv/bin
AT_ONCE ?= 4
INSTALL := $(BIN)/python -m pip install --quiet --disable-pip-version-check --require-hashes

.PHONY: venv demo demo-pages demo-cluster quick test docs image-test terraform-test bench img2dataset check lock audit clean

venv: .venv/.runtime

.venv/.runtime: requirements.lock
	$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "Python 3.11 or newer is needed: make PYTHON=python3.12")'
	test -x $(BIN)/python || $(PYTHON) -m venv .venv
	$(INSTALL) -r requirements.lock
	touch $@

.venv/.dev: .venv/.runtime requirements-dev.lock
	$(INSTALL) -r requirements-dev.lock
	touch $@

demo: .venv/.runtime
	$(BIN)/python -m demo

demo-pages: .venv/.runtime
	$(BIN)/python -m demo pages

demo-cluster: .venv/.runtime
	$(BIN)/python -m demo cluster

# Most tests wait: several at a time keep two cores busy (see tests/conftest.py). They start hundreds of processes:
# without bytecode each would compile the project anew.
test: export PYTHONDONTWRITEBYTECODE =
test: .venv/.dev
	$(BIN)/python -m pytest -n $(AT_ONCE)

# For the inner loop, under a minute on two quiet cores: no whole crawls, commands, browsers or brokers, nor what waits for
# clocks (marker `slow`, see tests/conftest.py). The last line counts what has passed and what was left out.
quick: export PYTHONDONTWRITEBYTECODE =
quick: .venv/.dev
	$(BIN)/python -m pytest -n $(AT_ONCE) -m "not slow"

# The Dockerfile built, and deploy/compose.yaml started with its image, seven minutes: in the Docker engine that answers, or
# in a private one (docs/deploy.md says what that takes).
image-test: .venv/.dev
	IMAGE_TEST=1 $(BIN)/python -m pytest -v -rs -s tests/deploy/test_image.py

# The modules of deploy/terraform: validated, planned, one of them applied to an imitation of AWS; some minutes. Loads
# Terraform's provider for AWS, 700 MB, unless it is in the folder TERRAFORM_PLUGINS.
terraform-test: .venv/.dev
	TERRAFORM_TEST=1 $(BIN)/python -m pytest -v -rs tests/deploy/test_terraform.py

# How much of its rate each source gets, and that none ever gets more: the politeness harness in full, half an hour
# on a machine that does nothing else. benchmarks/README.md has the others, such as `python -m benchmarks.chaos`.
bench: .venv/.dev
	$(BIN)/python -m benchmarks.politeness

# What crawlproject is held against (benchmarks/README.md), in an environment of its own: it needs other versions.
THEIRS := .crawl/benchmarks/img2dataset
img2dataset: $(THEIRS)/.installed

$(THEIRS)/.installed: benchmarks/img2dataset.lock
	test -x $(THEIRS)/bin/python || $(PYTHON) -m venv $(THEIRS)
	$(THEIRS)/bin/python -m pip install --quiet --disable-pip-version-check --require-hashes -r benchmarks/img2dataset.lock
	touch $@

# The documents as a site, in .crawl/site/index.html; a link that leads nowhere is an error.
docs: .venv/.dev
	NO_MKDOCS_2_WARNING=1 DISABLE_MKDOCS_2_WARNING=true $(BIN)/mkdocs build --quiet  # takes up to a minute
	@echo "The documents are in .crawl/site/index.html"

check: .venv/.dev
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy
	$(BIN)/lint-imports

# After a change of a requirements file: everything that they need in turn, for all platforms and versions of Python, by
# version and hash. What is locked already stays as it is; `make lock UPGRADE=--upgrade` takes what is newest. Asks PyPI.
LOCK := $(BIN)/uv pip compile --quiet --no-config --universal --python-version 3.11 --generate-hashes \
	--custom-compile-command "make lock" $(UPGRADE)

lock: .venv/.dev
	$(LOCK) requirements-build.txt --output-file requirements-build.lock
	$(LOCK) requirements.txt --output-file requirements.lock
	$(LOCK) requirements-kafka.txt --output-file requirements-kafka.lock
	$(LOCK) requirements-dev.txt --constraints requirements.lock --output-file requirements-dev.lock
	$(LOCK) benchmarks/img2dataset.txt --output-file benchmarks/img2dataset.lock

# Known vulnerabilities of what is locked for workers and the image. Asks PyPI's advisory database; what that does not know, as where a
# mirror stands for PyPI, is no pass (--strict).
audit: .venv/.dev
	@$(BIN)/pip-audit --strict --progress-spinner off --require-hashes --disable-pip \
		--requirement requirements.lock --requirement requirements-kafka.lock || { \
		echo "make audit: not passed. If no vulnerable packages are listed above, the advisories at https://pypi.org" \
			"could not be asked from here: nothing is known." >&2; exit 1; }

clean:
	rm -rf .venv .crawl build dist *.egg-info
