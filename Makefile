# Everything a developer types. Two of these set up a fresh machine: `make demo` and `make test`.

SHELL := bash
.SHELLFLAGS := -eu -o pipefail -c
.DEFAULT_GOAL := help

# Labelled requests: a folder for each set, with tools.jsonl and queries.dev.jsonl (docs/search.md).
TOOLSEARCH_DATA ?= ../shared/toolsearch/data

.PHONY: help setup build demo test test-faults test-simulation test-peers bench-sandbox bench-codemode bench-nodes bench-search bench-servers fuzz clean

help: ## List the targets
	@grep -hE '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/^([a-z-]+):.*## (.*)/  \1\t\2/' | expand -t 18

setup: ## Install what a build needs and this machine lacks
	@scripts/setup
	@scripts/embedding/make

build: setup ## Release binaries, in target/release
	cargo build --release --locked --package cellmate

demo: setup ## Build, then run a cell that a newcomer can read
	@cargo build --locked --package cellmate
	@scripts/demo

test: setup ## Every check and test, cheap ones first; each stage prints its time
	@scripts/test

test-faults: setup ## The fault tests, many times as long: kills, races, restarts, lost answers, full disks
	@scripts/test-faults

test-simulation: setup ## 5,000 simulated histories of nodes that die, stand still and lose answers (SIM_HISTORIES)
	@CELLMATE_SIM_HISTORIES=$${SIM_HISTORIES:-5000} \
		cargo test --locked --workspace --test it simulation:: -- --nocapture --test-threads 1

test-peers: ## With clients and servers of others, installed into target/peers (PEERS chooses some)
	@scripts/test-peers $(PEERS)

bench-sandbox: setup ## Ours beside npm quickjs-wasi, in one run
	@scripts/bench-sandbox

bench-codemode: setup ## Whole runs, with their journal in a file
	@cargo build --release --locked --package cellmate-bench
	@target/release/cellmate-bench codemode

bench-nodes: setup ## Runs suspended on one node, resumed on another, in a file and on Postgres
	@scripts/setup-postgres
	@cargo build --release --locked --package cellmate-bench
	@cargo build --locked --package cellmate-testkit --bin with-postgres
	@target/debug/with-postgres target/release/cellmate-bench nodes

bench-search: setup ## How well and how fast tools are found, beside plain BM25 and the incumbent (TOOLSEARCH_DATA)
	@cargo build --release --locked --package cellmate-bench-search
	@TOOLSEARCH_DATA=$(TOOLSEARCH_DATA) target/release/cellmate-bench-search

bench-servers: setup ## What 64 MCP servers with 2,000 tools cost behind one `cellmate mcp`
	@cargo build --release --locked --package cellmate --package cellmate-mcp --package cellmate-bench-servers
	@target/release/cellmate-bench-servers

fuzz: setup ## Each fuzz target for FUZZ_SECONDS (default 120)
	@scripts/fuzz

clean:
	cargo clean
