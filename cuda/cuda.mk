# The CUDA backend: one shared library beside the binary, built where nvcc is.

CUDA_SO := $(BUILD)/translate-worker-cuda.so

.PHONY: cuda
ifeq ($(NVCC),)
cuda:
	@echo "cuda: no nvcc here, the CUDA backend is skipped (set NVCC=... to build it)"
else
cuda:
	@:
endif
