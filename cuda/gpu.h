/* gpu.h -- the card and its stream, as every launch wrapper sees them.
 * Thread: one, the engine's.  Everything runs on one stream, in order.
 * Errors: a CUDA error becomes ERR_DEVICE, act ERR_STOP, here and nowhere else. */
#ifndef CUDA_GPU_H
#define CUDA_GPU_H

#ifdef __cplusplus
extern "C" {
#endif

#include "base/err.h"

#include <cuda_runtime_api.h>

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

typedef uint16_t bf16; /* C has no __nv_bfloat16 */

struct gpu {
    int index, sms, major, minor;
    size_t smem_block; /* most shared memory of one block, bytes */
    bool overlap;      /* programmatic dependent launch: a kernel may start while the one before it drains */
    bool wgmma;        /* compute capability 9.0: warpgroup products */
    int force;    /* measuring: the product's variant, 100 width + 10 warpgroups + blocks a multiprocessor; 0: chosen */
    bool careful; /* synchronize and check after every launch */
    cudaStream_t stream;
};

/* Opens card `index`: refuses what is older than compute capability 8.0. */
MUST_CHECK enum err_code gpu_open(struct gpu *g, int index, struct err *e);
void gpu_close(struct gpu *g);

MUST_CHECK enum err_code gpu_check(cudaError_t rc, const char *what, struct err *e);
/* After a launch: its own error, and with g->careful that of its run. */
MUST_CHECK enum err_code gpu_launched(const struct gpu *g, cudaError_t rc, const char *kernel, struct err *e);

/* "NVIDIA H200, driver 580.159.04 for CUDA 13.0, compute capability 9.0, 132 multiprocessors, 139.8 GiB" */
MUST_CHECK enum err_code gpu_describe(int index, char *text, size_t cap, struct err *e);

#ifdef __cplusplus
}
#endif
#endif
