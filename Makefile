# translate-worker -- `make` alone prints what there is.
#
# Everything is built under build/ (BUILD=...); sources are found by folder, so a new file needs no line here.

BUILD  ?= build
CC     ?= gcc
NVCC   ?= $(shell command -v nvcc 2>/dev/null)
PREFIX ?= /usr/local
MODE   ?= release
WERROR ?= $(if $(CI),-Werror)

PKGS := rdkafka avro-c libconfig libpcre2-8 libutf8proc jansson libmicrohttpd libcurl

VERSION := $(shell sed -n 's/^\#define TRANSLATE_WORKER_VERSION "\(.*\)"/\1/p' src/version.h)

CFLAGS_release := -O3 -g
CFLAGS_asan    := -O1 -g -fsanitize=address,undefined -fno-sanitize-recover=undefined -fno-omit-frame-pointer
CFLAGS_fuzz    := -O1 -g -fsanitize=fuzzer-no-link,address,undefined -fno-sanitize-recover=undefined
LDFLAGS_asan   := -fsanitize=address,undefined
LDFLAGS_fuzz   := -fsanitize=fuzzer,address,undefined

WARN := -Wall -Wextra -Wshadow -Wstrict-prototypes -Wmissing-prototypes -Wvla $(WERROR)
override CFLAGS  += -std=gnu17 $(CFLAGS_$(MODE)) $(WARN) -Isrc -I. -pthread -MMD -MP $(shell pkg-config --cflags $(PKGS) 2>/dev/null)
override LDFLAGS += $(LDFLAGS_$(MODE)) -pthread -rdynamic
LIBS := $(shell pkg-config --libs $(PKGS) 2>/dev/null) -lm -ldl

SRCS      := $(wildcard src/*/*.c)
OBJS      := $(SRCS:%.c=$(BUILD)/obj/%.o)
LIB       := $(BUILD)/libtranslate-worker.a
BIN       := $(BUILD)/translate-worker
UNIT      := $(patsubst %.c,$(BUILD)/%,$(wildcard tests/unit/*/test_*.c))
SUPPORT   := $(patsubst %.c,$(BUILD)/obj/%.o,$(wildcard tests/support/*.c))
TOOLS     := $(patsubst tests/tools/%.c,$(BUILD)/%,$(wildcard tests/tools/*.c))
FUZZERS   := $(patsubst tests/fuzz/%.c,$(BUILD)/fuzz/%,$(wildcard tests/fuzz/fuzz_*.c))
CHAOS     := $(patsubst %.c,$(BUILD)/obj/%.o,$(filter-out %/fake_engine.c,$(wildcard tests/chaos/*.c)))
FAKE      := $(patsubst %.c,$(BUILD)/pic/%.o,tests/chaos/fake_engine.c tests/support/fake_backend.c)

# A goal that installs what it needs first builds in a second make, which finds the libraries then; on all cores unless
# -j was given.
SUBMAKE = $(MAKE) --no-print-directory $(if $(findstring -j,$(MAKEFLAGS)),,-j$(shell nproc))

# One short line a file; V=1 shows the commands.
say = $(if $(V),,@echo "  $(1)  $(@:$(BUILD)/%=%)";)

.DEFAULT_GOAL := help
.PHONY: help deps build tools demo test unit integration bench bench-kafka lint asan chaos fuzz docs format install clean
.SECONDARY:
.DELETE_ON_ERROR:

help: ## this text
	@awk -F ':.*## ' '/^[a-z-]+:.*## /{printf "  make %-13s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

deps: ## install what is needed to build and test (apt, without questions)
	@ops/deps.sh

build: $(BIN) cuda ## the worker (build/translate-worker), and its CUDA backend where nvcc is

demo: ## the main job on real input: embedded broker, demo model, a few dozen sentences
	@ops/deps.sh build
	@$(SUBMAKE) build
	@ops/demo/demo.sh

test: ## all tests: unit, golden, integration (embedded and, where Java is, a real Kafka)
	@ops/deps.sh test
	@$(SUBMAKE) build tools unit-programs chaos-programs
	@tests/run.sh

tools: $(TOOLS) # build/golden and the other programs of tests/tools; they link tests/support, which needs Criterion

unit-programs: $(UNIT)

unit: $(UNIT) ## the unit tests alone
	@tests/run.sh unit

integration: build tools chaos-programs ## the integration tests alone
	@tests/run.sh integration

bench: build ## tokenizer MB/s, CPU products and tokens/s beside what the machine can do
	@$(BIN) bench

bench-kafka: build chaos-programs ## the worker with an engine that costs nothing, beside a bare loop, on a real Kafka
	@BUILD=$(BUILD) ops/bench/kafka.sh

lint: ## cppcheck, clang-tidy, format check
	@ops/deps.sh lint
	@tests/lint.sh

asan: ## unit and golden tests under the address and undefined-behaviour sanitizers
	@ops/deps.sh test
	@$(SUBMAKE) BUILD=$(BUILD)/asan MODE=asan NVCC= build tools unit-programs chaos-programs
	@BUILD=$(BUILD)/asan CHAOS_MINUTES=$(or $(CHAOS_MINUTES),0.5) tests/run.sh unit golden integration

chaos: ## faults against a real Kafka of three brokers: SEED=1 MINUTES=5 MODE=at_least_once
	@ops/deps.sh test
	@$(SUBMAKE) build chaos-programs
	@BUILD=$(BUILD) tests/chaos/run.sh

chaos-programs: $(BUILD)/chaos $(BUILD)/translate-worker-fake.so

fuzz: ## every parser of foreign bytes, SECONDS each (60)
	@ops/deps.sh lint
	@$(SUBMAKE) BUILD=$(BUILD)/fuzz-build MODE=fuzz CC=clang NVCC= fuzz-programs
	@BUILD=$(BUILD)/fuzz-build tests/fuzz/run.sh $(or $(SECONDS),60)

fuzz-programs: $(FUZZERS)

docs: $(BIN) ## the configuration reference in README.md and config/worker.cfg, from the table in the code
	@$(BIN) config --file >config/worker.cfg
	@$(BIN) config --markdown >$(BUILD)/config.md
	@sed -i -e '/<!-- config: begin -->/,/<!-- config: end -->/{/<!-- config: begin -->/r $(BUILD)/config.md' -e '/<!-- config: /!d}' README.md

format: ## clang-format in place
	clang-format -i $(shell git ls-files '*.c' '*.h' '*.cu' '*.cuh')

install: build ## to DESTDIR/PREFIX
	install -D -m 755 $(BIN) $(DESTDIR)$(PREFIX)/bin/translate-worker
	[ ! -e $(BUILD)/translate-worker-cuda.so ] || install -D -m 755 $(BUILD)/translate-worker-cuda.so \
		$(DESTDIR)$(PREFIX)/lib/translate-worker/translate-worker-cuda.so
	for f in schemas/*.avsc; do install -D -m 644 $$f $(DESTDIR)$(PREFIX)/share/translate-worker/$$f; done
	for f in config/*.cfg; do install -D -m 644 $$f $(DESTDIR)$(PREFIX)/share/translate-worker/$$f; done

clean: ## remove build/
	rm -rf $(BUILD)

$(BUILD)/obj/%.o: %.c
	@mkdir -p $(@D)
	$(call say,CC)$(CC) $(CFLAGS) -c $< -o $@

# The schemas are compiled into the binary by .incbin, which -MMD does not see.
$(BUILD)/obj/src/wire/own_schema.o: $(wildcard schemas/*.avsc)

# The inner loops: sanitizer builds need them optimized too, or their tests take minutes.
$(BUILD)/obj/src/cpu/kernels_%.o: override CFLAGS += -O3

$(LIB): $(OBJS)
	@rm -f $@
	$(call say,AR)ar rcs $@ $^

$(BIN): $(BUILD)/obj/src/main.o $(LIB)
	$(call say,LD)$(CC) $(LDFLAGS) $^ $(LIBS) -o $@

# Test programs and tools: one source each, beside the library and tests/support.
$(BUILD)/tests/unit/%: $(BUILD)/obj/tests/unit/%.o $(BUILD)/libsupport.a $(LIB)
	@mkdir -p $(@D)
	$(call say,LD)$(CC) $(LDFLAGS) $^ $(LIBS) -lcriterion -o $@

# The proof by faults: the program, the backend that the worker under test loads, and its tests.
$(BUILD)/chaos: $(CHAOS)
	$(call say,LD)$(CC) $(LDFLAGS) $^ $(LIBS) -o $@

$(BUILD)/translate-worker-fake.so: $(FAKE)
	$(call say,LD)$(CC) $(LDFLAGS) -shared $^ -o $@

$(BUILD)/pic/%.o: %.c
	@mkdir -p $(@D)
	$(call say,CC)$(CC) $(CFLAGS) -fPIC -c $< -o $@

$(patsubst %.c,$(BUILD)/%,$(wildcard tests/unit/chaos/test_*.c)): $(patsubst %,$(BUILD)/obj/tests/chaos/%.o,job nemesis verdict)

# Of tests/support, programs link what they use: the rest may need Criterion, or a part of the worker that the program
# replaces by a script of its own.
$(BUILD)/libsupport.a: $(SUPPORT)
	@rm -f $@
	$(call say,AR)ar rcs $@ $^

$(TOOLS): $(BUILD)/%: $(BUILD)/obj/tests/tools/%.o $(BUILD)/libsupport.a $(LIB)
	$(call say,LD)$(CC) $(LDFLAGS) $^ $(LIBS) -o $@

$(BUILD)/fuzz/%: $(BUILD)/obj/tests/fuzz/%.o $(LIB)
	@mkdir -p $(@D)
	$(call say,LD)$(CC) $(LDFLAGS) $^ $(LIBS) -o $@

include cuda/cuda.mk

-include $(shell find $(BUILD)/obj $(BUILD)/pic -name '*.d' 2>/dev/null)
