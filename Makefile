# Each target installs what is missing, and nothing the second time.

PYTHON ?= python3
export STRICT
BIN := .venv/bin
.DEFAULT_GOAL := help

##@ Try it
.PHONY: demo
demo: packages venv ## Run unmodified sbatch scripts as pods on a private Slurm, then remove everything
	@$(BIN)/penstock demo

##@ Check it
.PHONY: test
test: packages test-packages dev-venv ## All tests: units, dev cluster, end to end on a lab; failures are rerun alone, but not with STRICT=1
	@$(BIN)/python -m scripts.run_tests tests

.PHONY: test-k8s
test-k8s: packages k8s-packages dev-venv ## The end-to-end and conformance tests on a real Kubernetes built here
	@$(BIN)/python -m scripts.test_kubernetes

.PHONY: smoke-k8s
smoke-k8s: packages k8s-packages dev-venv ## The forty of them that test every promise once, in three minutes
	@$(BIN)/python -m scripts.test_kubernetes --smoke

.PHONY: test-matrix
test-matrix: packages k8s-packages dev-venv ## The end-to-end tests on every release of Slurm and Kubernetes; CELL=slurm-24.11 for one
	@$(BIN)/python -m scripts.matrix $(CELL)

.PHONY: lint
lint: dev-venv ## Style, types, layers, file sizes
	@$(BIN)/ruff check .
	@$(BIN)/ruff format --check --quiet .
	@$(BIN)/mypy
	@$(BIN)/lint-imports --no-cache > .lint-imports.log 2>&1 || { cat .lint-imports.log; rm -f .lint-imports.log; exit 1; }
	@rm -f .lint-imports.log
	@$(BIN)/python scripts/check_sizes.py

.PHONY: storm
storm: packages dev-venv ## All tests of outages and of known bugs of similar projects, including the long ones
	@PENSTOCK_TEST_STORM=1 $(BIN)/python -m scripts.run_tests --strict tests/e2e/test_outages_api.py tests/e2e/test_outages_slurm.py tests/e2e/test_regressions.py

.PHONY: soak
soak: packages dev-venv ## Random test for MINUTES=10, replayed with SEED=...: jobs, outages, faults, with the invariants checked throughout; ONCE=1: jobs that may not run twice
	@$(BIN)/python -m tests.soak --minutes $(or $(MINUTES),10) $(if $(SEED),--seed $(SEED)) $(if $(ONCE),--once)

.PHONY: fuzz
fuzz: packages dev-venv ## Property tests with EXAMPLES=1000 new examples of each; add a test for what they find
	@grep -rl "from hypothesis" tests/unit tests/sbatch tests/results tests/sitefile tests/install --include='test_*.py' | PENSTOCK_TEST_EXPLORE=$(or $(EXAMPLES),1000) xargs $(BIN)/python -m pytest -q -p no:cacheprovider --numprocesses=2

.PHONY: bench
bench: packages dev-venv ## Measure what Penstock costs against baselines in the same run; fails if a budget is missed
	@$(BIN)/python scripts/bench_validate.py
	@$(BIN)/python -m benchmarks

.PHONY: crash
crash: packages dev-venv ## Kill a process at every labelled step of the protocol; prints a table
	@PENSTOCK_TEST_CRASH=all $(BIN)/python -m scripts.run_tests --strict tests/crash --dist=load

##@ Keep house
.PHONY: requirements
requirements: dev-venv ## Pin requirements/*.in again, with hashes
	@$(PYTHON) scripts/pin_requirements.py

.PHONY: clean
clean: ## Remove the virtual environment and caches
	rm -rf .venv .pytest_cache .mypy_cache .ruff_cache .import_linter_cache .hypothesis dist
	find . -name __pycache__ -type d -prune -exec rm -rf {} +

.PHONY: help
help: ## Show this
	@awk 'BEGIN { FS = ":.*##" } /^##@/ { printf "\n%s\n", substr($$0, 5) } \
		/^[a-z0-9-]+:.*##/ { printf "  make %-14s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

.PHONY: packages test-packages k8s-packages venv dev-venv
packages:
	@$(PYTHON) scripts/bootstrap.py packages
test-packages:
	@$(PYTHON) scripts/bootstrap.py test-packages || echo "penstock: continuing without them"
k8s-packages:
	@$(PYTHON) scripts/bootstrap.py k8s-packages || echo "penstock: continuing without them"
venv:
	@$(PYTHON) scripts/bootstrap.py venv
dev-venv:
	@$(PYTHON) scripts/bootstrap.py dev-venv
