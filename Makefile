# SPDX-License-Identifier: MIT
# A small front: Meson and Ninja do the building, in build/.
BUILD      := build
ASAN_BUILD := build-asan
FUZZ_BUILD := build-fuzz
NICE       := nice -n 5
MESON_ARGS ?=
PREFIX     ?= /usr/local
FUZZ_SECONDS ?= 60
# Those whose cases do something more often, or with all variants, when they may take longer.
LONG_GROUPS := abi atf attach budget callgrind changes crash detail equal exclude export flight follow graph itrace lanes last light losses maxsize mcp passover patterns pieces \
	powercut programs readers signals sql steps steps_calls steps_sql triggers typed unit use values witness_values

.PHONY: all setup build test unit bench asan fuzz demo torture format install clean help
all: build

help:
	@echo "make [build]   build/contrail"
	@echo "make setup     install the missing Debian packages"
	@echo "make demo      set-up, build, record a real program, report"
	@echo "make test      set-up, build, all tests (TESTS='unit fixtures ...' for some of them)"
	@echo "make torture   hours: all kinds of programs, other projects' test-suites, untraced and traced; docs/transparency.md"
	@echo "make unit      the unit and static tests only"
	@echo "make asan      the unit tests under AddressSanitizer and UndefinedBehaviorSanitizer"
	@echo "make fuzz      the fuzz targets, FUZZ_SECONDS=$(FUZZ_SECONDS) each (FUZZ='elf plan ...' for some of them)"
	@echo "make coverage  docs/coverage.md: which functions of this machine's programs are hooked"
	@echo "make bench     the benchmarks, as ratios"
	@echo "make format    clang-format over the sources"
	@echo "make install   into PREFIX ($(PREFIX))"

setup:
	@tools/setup.sh

build:
	@tools/sources.sh
	@test -f $(BUILD)/build.ninja || meson setup --prefix $(PREFIX) $(MESON_ARGS) $(BUILD) >$(BUILD).log 2>&1 || \
	  { cat $(BUILD).log; rm -f $(BUILD).log; exit 1; }
	@rm -f $(BUILD).log
	@$(NICE) ninja -C $(BUILD) --quiet >$(BUILD)/ninja.log || { cat $(BUILD)/ninja.log; exit 1; }

test: setup build
	@$(NICE) tests/all.py $(TESTS)

torture: setup build
	@tools/torture.sh $(BUILD)
	@$(NICE) tests/run.py --long
	@$(NICE) tests/kinds.py --long
	@$(NICE) tests/killed.py --long
	@$(NICE) tests/fuzz/run.py --seconds 60
	@$(NICE) tests/differential/run.py
	@$(NICE) tests/all.py --long $(LONG_GROUPS)
	@$(NICE) tests/mcp.py --filter 'killed*' --moments 200
	@$(NICE) tests/mcpattack.py --filter killed --moments 200
	@$(NICE) tests/transparency.py --long --keep --json $(BUILD)/torture.json
	@$(NICE) tests/transparency.py --translated --once
	@$(NICE) tests/transparency.py --records --once

unit: build
	@$(NICE) tests/all.py static unit

asan:
	@tools/sources.sh
	@test -f $(ASAN_BUILD)/build.ninja || \
	  meson setup -Db_sanitize=address,undefined -Db_lundef=false $(MESON_ARGS) $(ASAN_BUILD) >/dev/null
	@$(NICE) ninja -C $(ASAN_BUILD) --quiet >$(ASAN_BUILD)/ninja.log || { cat $(ASAN_BUILD)/ninja.log; exit 1; }
	@$(NICE) tests/all.py --build $(ASAN_BUILD) unit

fuzz:
	@$(NICE) tests/fuzz/run.py --seconds $(FUZZ_SECONDS) $(FUZZ)

bench: setup build
	@bench/run.sh

coverage: build
	@tools/coverage.py >$(BUILD)/coverage.md && mv $(BUILD)/coverage.md docs/coverage.md

demo: setup build
	@tools/demo.sh

format:
	@git ls-files '*.c' '*.h' | xargs clang-format-16 -i

install: build
	@meson install -C $(BUILD)

clean:
	rm -rf $(BUILD) $(ASAN_BUILD) $(FUZZ_BUILD)
