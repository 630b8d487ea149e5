# Drives CMake. `make run` and `make test` work on a fresh Debian 12 or Ubuntu 24.04 machine with git and make.
.PHONY: all release test-release sign site run sources test test-medium test-long test-cuda kernels check pictures sheets seeds check-cuda-env install windows test-windows cross test-cross clang macos-check asan tsan fuzz fuzz-folders format clean help \
    build-release build-kernelc venv
.DEFAULT_GOAL := all

SHELL := /bin/bash
PREFIX ?= /usr/local
DATA ?=
FUZZ_SECONDS ?= 30
FOLDER_SECONDS ?= 120
SANITIZED ?= asan
RUN_ARGS ?=
OTHER := $(if $(filter x86_64,$(shell uname -m)),linux-aarch64,linux-x86_64)

# $(call cmake,PRESET[,TARGETS]): configures once, builds what changed, and says how far it is.
define cmake
	@test -e build/$(1)/build.ninja || { mkdir -p build && tools/progress.sh "configuring $(1)" build/$(1).log cmake --preset $(1) || { rm -f build/$(1)/build.ninja; exit 1; }; }
	@$(if $(VERBOSE),,tools/progress.sh "building $(1)" build/$(1)/build.log) cmake --build build/$(1) $(if $(2),--target $(2)) $(if $(VERBOSE),-- -v)
endef

all: build-release ## build build/release/mlxcel

build-release:
	@tools/setup.sh build
	$(call cmake,release)

run: build-release ## set up, build and run the built-in model
	@tools/run.sh build/release/mlxcel $(RUN_ARGS)

venv:
	@tools/venv.sh

sources: ## fetch the source archives of all libraries into build/downloads, for machines that cannot
	@tools/setup.sh build
	@cmake -P cmake/sources.cmake

test: build-release ## set up, build and run the short tests (DATA=DIR: folder of large test material)
	@tools/setup.sh test
	@tools/venv.sh
	@python3 tests/run_tests.py --build build/release $(if $(DATA),--data "$(DATA)")

test-medium: build-release ## what takes longer than the short tests and is run before a push: every family, products of real sizes
	@tools/setup.sh test
	@tools/venv.sh
	@python3 tests/run_tests.py --build build/release --cost medium $(if $(DATA),--data "$(DATA)")

test-long: build-release ## all tests: also big oracles, load, fuzzing
	@tools/setup.sh test
	@tools/venv.sh
	$(call cmake,asan,mlxcel)
	@python3 tests/run_tests.py --build build/release --cost all --timeout 14400 $(if $(DATA),--data "$(DATA)")
	@$(MAKE) --no-print-directory fuzz FUZZ_SECONDS=300

test-cuda: build-release ## everything that a GPU must show; says why not where there is none (DATA=DIR as above)
	@tools/setup.sh test
	@python3 tests/cuda/test_cuda.py build/release "$(or $(DATA),../shared)"

build-kernelc:
	@tools/setup.sh build
	$(call cmake,release,kernelc)

kernels: build-kernelc ## compile the CUDA kernels for all architectures, with registers and spills of each; no GPU is needed
	@build/release/kernelc --build build/kernels-all/kernels.bin --cache build/kernels-cache --report

check: ## style, layers and formatting
	@tools/setup.sh check
	@python3 tools/check.py

pictures: build-release ## make the pictures of README.md anew: from recorded figures, a session in tmux, the page in Chromium
	@python3 tools/pictures.py build/release/mlxcel

sheets: build-release ## every example of CommonMark and GitHub's Markdown, the page beside the reference, as pictures into build/sheets
	@mkdir -p build/sheets
	@python3 tests/server/test_markdown.py build/release/mlxcel build/sheets

seeds: ## bring each fault of tests/people.md back in a copy of the tree, and want its test to fail (ROW="3 7": these)
	@tools/setup.sh build test
	@python3 tests/docs/seeds.py $(ROW)

format: ## format the C files
	@tools/setup.sh check
	@python3 tools/check_format.py --fix

check-cuda-env: build-release ## what the machine has for GPUs, and what is missing
	@build/release/kernelc --list || true
	@build/release/mlxcel doctor

install: build-release ## install into PREFIX (default /usr/local)
	@cmake --install build/release --prefix "$(PREFIX)"

windows: ## cross-build build/windows-x86_64/mlxcel.exe with mingw-w64
	@tools/setup.sh windows
	$(call cmake,windows-x86_64)
	@python3 tools/check_imports.py build/windows-x86_64/*.exe

test-windows: windows ## the server, the chat, the xla backend, the library, the hub and the unit tests of the Windows build under Wine
	@tools/setup.sh windows-test
	@python3 tests/cli/test_chat.py build/windows-x86_64/mlxcel.exe
	@python3 tests/run_tests.py --build build/windows-x86_64 --list tests/lists/windows.list --cost all

cross: ## cross-build for the other Linux architecture
	@tools/setup.sh cross
	$(call cmake,$(OTHER))

test-cross: cross ## its unit tests under qemu
	@tools/setup.sh cross-test
	@python3 tests/run_tests.py --build build/$(OTHER) --list tests/lists/cross.list

clang: ## build with clang and its sanitizers, warnings as errors; what asan runs, and op lists and programs must be those of the other compiler
	@tools/setup.sh build fuzz
	$(call cmake,clang)
	@python3 tests/run_tests.py --build build/clang --list tests/lists/asan.list --list tests/lists/clang.list $(if $(DATA),--cost all --data "$(DATA)")

macos-check: ## compile for macOS with zig's clang; nothing is run
	@tools/setup.sh macos
	@tools/macos_check.sh

asan: ## unit tests and own fixtures under the address and undefined behaviour sanitizers (DATA=DIR: every family, too)
	@tools/setup.sh build
	$(call cmake,asan,unit_tests golden_tests)
	@python3 tests/run_tests.py --build build/asan --list tests/lists/asan.list $(if $(DATA),--cost all --data "$(DATA)")

tsan: ## what runs in threads under the thread sanitizer (DATA=DIR: every family, too; that takes half an hour)
	@tools/setup.sh build
	$(call cmake,tsan,unit_tests golden_tests)
	@build/tsan/golden_tests tests/golden/quant $(if $(DATA),"$(DATA)/golden")
	@build/tsan/unit_tests -template -tokenizer -kernelc $(if $(DATA),,-every_family)

fuzz: ## each fuzz target for FUZZ_SECONDS (default 30) seconds
	@tools/setup.sh build fuzz
	$(call cmake,clang,fuzz_targets)
	@tools/fuzz.sh $(FUZZ_SECONDS)

fuzz-folders: build-release ## damaged model folders for FOLDER_SECONDS (default 120) seconds (SANITIZED=clang: by the program that make clang builds)
	$(call cmake,$(SANITIZED),mlxcel)
	@python3 tests/file/fuzz_folders.py build/release/mlxcel --sanitized build/$(SANITIZED)/mlxcel --seconds $(FOLDER_SECONDS) --seed "$$(git rev-parse --short HEAD 2>/dev/null)"

release: ## every artifact that is published, into dist/ (RELEASE_ARGS=--no-cuda: without kernels)
	@packaging/release.sh $(RELEASE_ARGS)

sign: ## pack the Windows artifacts of dist/ again, signed (packaging/sign.sh names the settings)
	@tools/setup.sh release sign
	@packaging/release.sh --sign

site: ## the documents as pages with search, into build/site
	@tools/setup.sh site
	@python3 tools/site.py mkdocs build/site

test-release: ## unpack, install and run what is in dist/
	@tools/setup.sh windows-test cross-test release sign
	@python3 tests/release/test_release.py

clean: ## remove the build folder
	rm -rf build

help: ## this list
	@grep -hE '^[a-z-]+:.*##' Makefile | sed -E 's/:.*## /\t/' | sort | awk -F'\t' '{printf "  make %-16s %s\n", $$1, $$2}'
