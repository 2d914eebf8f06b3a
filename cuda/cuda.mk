# The CUDA backend: one shared library beside the binary, built where nvcc is.  It needs nothing but the toolkit's
# compiler and headers: every kernel is here.  Code for 8.0 runs on 8.6 and 8.9 too; NVCC_ARCHS=90a builds for one
# kind of card only, which is quicker.  LATE=1 BUILD=build/late makes kernels that dawdle once their successor may start:
# tests of theirs find a kernel that reads before it waits.

CUDA_SO    := $(BUILD)/translate-worker-cuda.so
NVCC_ARCHS ?= 80 90a 100 120

.PHONY: cuda gpu-programs test-gpu
ifeq ($(NVCC),)
cuda:
	@echo "cuda: no nvcc here, the CUDA backend is skipped (set NVCC=... to build it)"
gpu-programs test-gpu:
	@echo "$@: no nvcc here, skipped"
else

# nvcc may be a script elsewhere: it knows where its toolkit is
CUDA_HOME ?= $(realpath $(shell $(NVCC) --dryrun -E -x cu /dev/null 2>&1 | sed -n 's/^\#$$ TOP=//p'))
CUDA_SRC  := $(wildcard cuda/*.c)
CUDA_CU   := $(wildcard cuda/*.cu)
CUDA_OBJS := $(CUDA_SRC:%.c=$(BUILD)/cuda/%.o) $(CUDA_CU:%.cu=$(BUILD)/cuda/%.o)
CUDA_LIBS := -L$(CUDA_HOME)/lib64 -lcudart_static -ldl -lrt -lpthread
CUDA_CFLAGS := $(filter-out -fsanitize%,$(CFLAGS)) -fPIC -fvisibility=hidden -isystem $(CUDA_HOME)/include
NVCC_FLAGS := -std=c++17 -O3 -lineinfo -I. -Isrc --threads 2 -Xcompiler -fPIC,-fvisibility=hidden,-fno-exceptions,-fno-threadsafe-statics,-Wall,-Wextra \
	$(if $(WERROR),-Werror all-warnings) $(if $(LATE),-DCUDA_TEST_LATE) $(foreach a,$(NVCC_ARCHS),-gencode arch=compute_$(a),code=sm_$(a))

cuda: $(CUDA_SO)

$(CUDA_SO): $(CUDA_OBJS)
	@! grep -l griddepcontrol cuda/*.cu cuda/*.cuh # the runtime's wrappers alone: they stop the compiler too
	@ptx=$$(grep -lE '^\.target sm_(9|1[0-9][0-9])' $(CUDA_CU:%.cu=$(BUILD)/cuda/%.keep/*.ptx)); \
		[ -z "$$ptx" ] || tests/gpu/waits.sh $$ptx
	$(call say,LD)$(CC) -shared -pthread $^ $(CUDA_LIBS) -lm -o $@

$(BUILD)/cuda/%.o: %.c
	@mkdir -p $(@D)
	$(call say,CC)$(CC) $(CUDA_CFLAGS) -c $< -o $@

$(BUILD)/cuda/%.o: %.cu
	@mkdir -p $(@D)
	@rm -rf $(@:.o=.keep) && mkdir $(@:.o=.keep) # the PTX is looked at before linking
	$(call say,NVCC)$(NVCC) $(NVCC_FLAGS) --keep --keep-dir $(@:.o=.keep) -MMD -MP -MF $(@:.o=.d) -c $< -o $@

# Programs for a machine with a card and nothing else: linked against what they need, not Kafka and its like.
GPU_TEST  := $(BUILD)/gpu/test-gpu
GPU_BENCH := $(BUILD)/gpu/bench-device
GPU_GOLDEN := $(BUILD)/gpu/golden
GPU_PARTS := $(patsubst %.c,$(BUILD)/obj/%.o,$(wildcard src/base/*.c src/model/*.c src/engine/*.c src/cpu/*.c tests/ref/*.c)) \
	$(patsubst %,$(BUILD)/obj/tests/support/%.o,evaluation decode)
GPU_LINK = $(CC) $(LDFLAGS) -Wl,--as-needed -Wl,-rpath,'$$ORIGIN'

gpu-programs: cuda $(GPU_TEST) $(GPU_GOLDEN) $(GPU_BENCH) $(BUILD)/gpu/product-bench $(BUILD)/gpu/attention-bench

$(BUILD)/gpu/parts.a: $(GPU_PARTS)
	@mkdir -p $(@D)
	@rm -f $@
	ar rcs $@ $^

$(GPU_TEST): $(patsubst %.c,$(BUILD)/cuda/%.o,$(wildcard tests/gpu/*.c)) $(BUILD)/gpu/parts.a $(CUDA_OBJS)
	$(GPU_LINK) $^ $(CUDA_LIBS) $(LIBS) -o $@

$(GPU_GOLDEN): $(BUILD)/obj/tests/tools/golden.o $(BUILD)/gpu/parts.a $(CUDA_SO)
	$(GPU_LINK) -Wl,--whole-archive $(BUILD)/gpu/parts.a -Wl,--no-whole-archive $< $(LIBS) -o $@
	cp $(CUDA_SO) $(@D)

$(GPU_BENCH): $(BUILD)/obj/tests/gpu/tool/bench_main.o $(BUILD)/obj/src/cli/bench_device.o $(BUILD)/gpu/parts.a $(CUDA_SO)
	$(GPU_LINK) -Wl,--whole-archive $(BUILD)/gpu/parts.a -Wl,--no-whole-archive $(filter %.o,$^) $(LIBS) -o $@

$(BUILD)/gpu/product-bench $(BUILD)/gpu/attention-bench: $(BUILD)/gpu/%-bench: $(BUILD)/cuda/tests/gpu/tool/%_bench.o $(CUDA_OBJS) $(BUILD)/gpu/parts.a
	$(GPU_LINK) $^ $(CUDA_LIBS) $(LIBS) -o $@

test-gpu: gpu-programs ## kernels and the whole backend against their references; skips where no card is
	@! $(GPU_TEST) --card || { $(GPU_TEST) && $(GPU_GOLDEN) --backend cuda --logits-tolerance 2e-2 --gap 0.5 \
		--sampling-tolerance 0.1 tests/golden/tiny-a tests/golden/tiny-b; }

-include $(CUDA_OBJS:.o=.d)
endif
