/* launch.cuh -- how kernels are launched and how one waits for the kernel before it.
 * Every kernel of the forward pass waits for its predecessor, grid_wait(), and only then lets its successor start,
 * grid_release(), which may run ahead up to its own grid_wait().  So when a kernel starts, everything before its
 * predecessor is complete: it may read that before it waits, weights too, but nothing that the predecessor writes, and
 * it may write nothing.  (Releasing first and waiting then was tried: results were wrong now and then.) */
#ifndef CUDA_LAUNCH_CUH
#define CUDA_LAUNCH_CUH

#include "cuda/gpu.h"

#include <cuda_runtime.h>

__device__ __forceinline__ void grid_wait()
{
#if __CUDA_ARCH__ >= 900
    cudaGridDependencySynchronize();
#endif
}

__device__ __forceinline__ void grid_release()
{
#if __CUDA_ARCH__ >= 900
    cudaTriggerProgrammaticLaunchCompletion();
#endif
#ifdef CUDA_TEST_LATE
    /* Up to 8 us of doing nothing: the successor is on the card by now, and what it reads too early is still the old. */
    __nanosleep(((unsigned)clock() ^ (blockIdx.x + 31 * blockIdx.y) * 2654435761u) % 8192);
#endif
}

/* early: it may start while its predecessor runs; otherwise when everything before it is done. */
template <typename... P, typename... A>
static enum err_code launch(const struct gpu *g, const char *name, void (*kernel)(P...), dim3 grid, int threads,
                            size_t smem, bool early, struct err *e, A... args)
{
    cudaLaunchAttribute attr;
    cudaLaunchConfig_t cfg = {};

    cfg.gridDim = grid;
    cfg.blockDim = dim3(threads);
    cfg.dynamicSmemBytes = smem;
    cfg.stream = g->stream;
    cfg.attrs = &attr;
    if (g->overlap && early) {
        attr.id = cudaLaunchAttributeProgrammaticStreamSerialization;
        attr.val.programmaticStreamSerializationAllowed = 1;
        cfg.numAttrs = 1;
    }
    return gpu_launched(g, cudaLaunchKernelEx(&cfg, kernel, P(args)...), name, e);
}

#endif
