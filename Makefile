# SPDX-License-Identifier: Apache-2.0
# Every command works from a fresh checkout: scripts/bootstrap installs and builds what is missing.
.DEFAULT_GOAL := help
.PHONY: help demo test test-full test-bare bench gpu-pack test-gpu bench-gpu docs lint format
SHARD ?= 1/1

help:
	@echo "make demo               record, commit and verify a training run and its cheats; writes a report"
	@echo "make test               C++, Python, attack, documentation and install tests"
	@echo "make test-full          the long tests; SHARD=i/n runs a part of them"
	@echo "make test-bare          make demo and make test in a fresh Debian 12 (needs root)"
	@echo "make bench              benchmarks; STEM=hash for one of them, FULL=1 for long runs"
	@echo "make test-gpu           tests that need a CUDA device; make gpu-pack first if that machine has no network"
	@echo "make bench-gpu          the same for benchmarks"
	@echo "make docs               the documentation site in build/site; broken links and undocumented names fail"
	@echo "make lint               formatters in check mode, linters, types, layers"
	@echo "make format             rewrite sources in the house format"

demo:
	@scripts/bootstrap build
	@scripts/demo

test:
	@scripts/bootstrap build test
	@scripts/test

test-full:
	@scripts/bootstrap build test
	@scripts/test-full "$(SHARD)"

test-bare:
	@scripts/test-bare

bench:
	@scripts/bootstrap build test bench
	@scripts/bench "$(STEM)" "$(FULL)"

gpu-pack:
	@scripts/gpu pack

test-gpu:
	@scripts/gpu test

bench-gpu:
	@scripts/gpu bench

docs:
	@scripts/docs

lint:
	@scripts/bootstrap build lint
	@scripts/lint

format:
	@scripts/bootstrap build lint
	@scripts/format
