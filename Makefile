# The commands for developers. `make demo` and `make test` also set up a fresh machine.

SHELL := bash
.SHELLFLAGS := -eu -o pipefail -c
.DEFAULT_GOAL := help

# Labelled requests: one folder per set, with tools.jsonl and queries.dev.jsonl (docs/internals/search.md).
TOOLSEARCH_DATA ?= ../shared/toolsearch/data

.PHONY: help setup build dist demo test test-faults test-simulation test-peers bench bench-sandbox bench-codemode bench-nodes bench-search bench-servers bench-gateway bench-growth deny fuzz clean

help: ## List the targets
	@grep -hE '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/^([a-z-]+):.*## (.*)/  \1\t\2/' | expand -t 18

setup: ## Install missing build dependencies
	@scripts/setup
	@scripts/embedding/make

build: setup ## Build the release binaries, in target/release
	cargo build --release --locked --package cellmate-cli

dist: build ## Package the release binary in target/dist, then install and run each package
	@scripts/dist
	@scripts/dist-check

# Without files for incremental builds and without debug information, our crates take a quarter less work to build.
demo: setup ## Build, then run an example cell and a turn of the gateway
	@echo "demo: building the cellmate binary; the first build takes about six minutes on two cores, later ones seconds"
	@CARGO_INCREMENTAL=0 CARGO_PROFILE_DEV_DEBUG=none cargo build --locked --package cellmate-cli
	@scripts/demo

test: setup ## Run every check and test, cheap ones first; each stage prints its time
	@scripts/test

test-faults: setup ## Run the fault tests with many repetitions: kills, races, restarts, lost answers, full disks
	@scripts/test-faults

test-simulation: setup ## Simulate 5,000 histories of nodes that crash, stall and lose answers (SIM_HISTORIES)
	@CELLMATE_SIM_HISTORIES=$${SIM_HISTORIES:-5000} \
		cargo test --locked --workspace --test it simulation:: -- --nocapture --test-threads 1

test-peers: ## Test with third-party clients and servers, installed in target/peers (PEERS selects some)
	@scripts/test-peers $(PEERS)

bench: setup ## Run every benchmark and write docs/benchmarks.md (PARTS selects some); needs an idle machine
	@scripts/setup-postgres
	@npm ci --prefix bench/peer --silent --no-audit --no-fund
	@npm ci --prefix bench/peer/openclaw --silent --no-audit --no-fund --ignore-scripts
	@cargo build --release --locked --package cellmate-cli --package cellmate-mcp --package cellmate-bench \
		--package cellmate-bench-search --package cellmate-bench-servers --package cellmate-bench-gateway
	@cargo build --release --locked --package cellmate-testkit --bin scripted-model
	@cargo build --locked --package cellmate-testkit --bin with-postgres
	@TOOLSEARCH_DATA=$(TOOLSEARCH_DATA) scripts/bench $(PARTS)

bench-sandbox: setup ## Compare the sandbox with npm quickjs-wasi, in one run
	@scripts/bench-sandbox

bench-codemode: setup ## Measure whole runs, with their journal in a file
	@cargo build --release --locked --package cellmate-bench
	@target/release/cellmate-bench codemode

bench-nodes: setup ## Measure runs suspended on one node and resumed on another, in a file and on Postgres
	@scripts/setup-postgres
	@cargo build --release --locked --package cellmate-bench
	@cargo build --locked --package cellmate-testkit --bin with-postgres
	@target/debug/with-postgres target/release/cellmate-bench nodes

bench-search: setup ## Measure tool search, compared with plain BM25 and the incumbent (TOOLSEARCH_DATA)
	@cargo build --release --locked --package cellmate-bench-search
	@TOOLSEARCH_DATA=$(TOOLSEARCH_DATA) target/release/cellmate-bench-search

bench-servers: setup ## Measure 64 MCP servers with 2,000 tools behind one `cellmate mcp`
	@cargo build --release --locked --package cellmate-cli --package cellmate-mcp --package cellmate-bench-servers
	@target/release/cellmate-bench-servers

bench-gateway: setup ## Measure 200 turns at once and 10,000 waiting sessions of one gateway
	@cargo build --release --locked --package cellmate-cli --package cellmate-bench-gateway
	@cargo build --release --locked --package cellmate-testkit --bin scripted-model
	@target/release/cellmate-bench-gateway

bench-growth: setup ## Measure how times and sizes grow with tools, suspended runs, results, servers, nodes and turns
	@scripts/setup-postgres
	@cargo build --release --locked --package cellmate-cli --package cellmate-mcp --package cellmate-bench \
		--package cellmate-bench-servers --package cellmate-bench-gateway
	@cargo build --release --locked --package cellmate-testkit --bin scripted-model
	@cargo build --locked --package cellmate-testkit --bin with-postgres
	@target/debug/with-postgres target/release/cellmate-bench growth

deny: ## Check licences, sources and bans of the dependencies with cargo-deny, which is installed if missing
	@command -v cargo-deny >/dev/null 2>&1 || cargo install --locked cargo-deny
	@cargo deny --locked check bans licenses sources

fuzz: setup ## Run each fuzz target for FUZZ_SECONDS (default 120)
	@scripts/fuzz

clean:
	cargo clean
