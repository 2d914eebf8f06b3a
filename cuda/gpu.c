#include "cuda/gpu.h"

#include <stdio.h>
#include <string.h>

enum err_code gpu_check(cudaError_t rc, const char *what, struct err *e)
{
    if (rc == cudaSuccess)
        return ERR_OK;
    return err_set(e, ERR_DEVICE, ERR_STOP, "cuda: %s: %s (%s)", what, cudaGetErrorString(rc), cudaGetErrorName(rc));
}

enum err_code gpu_launched(const struct gpu *g, cudaError_t rc, const char *kernel, struct err *e)
{
    enum cudaStreamCaptureStatus capturing = cudaStreamCaptureStatusNone;

    if (rc == cudaSuccess)
        rc = cudaPeekAtLastError();
    if (rc == cudaSuccess && g->careful) {
        rc = cudaStreamIsCapturing(g->stream, &capturing);
        if (rc == cudaSuccess && capturing == cudaStreamCaptureStatusNone)
            rc = cudaStreamSynchronize(g->stream);
    }
    return gpu_check(rc, kernel, e);
}

static enum err_code properties(int index, struct cudaDeviceProp *p, struct err *e)
{
    int count = 0;
    cudaError_t rc = cudaGetDeviceCount(&count);

    if (rc != cudaSuccess || count == 0)
        return err_set(e, ERR_UNSUPPORTED, ERR_STOP, "cuda: no usable NVIDIA card here (%s)",
                       rc == cudaSuccess ? "none is visible" : cudaGetErrorString(rc));
    if (index < 0 || index >= count)
        return err_set(e, ERR_CONFIG, ERR_STOP, "cuda: there is no card %d, there are 0 to %d", index, count - 1);
    return gpu_check(cudaGetDeviceProperties(p, index), "cannot read the card's properties", e);
}

/* "580.159.04", from the line "NVRM version: NVIDIA UNIX ... Kernel Module  580.159.04  Release Build ..."; "unknown" where
 * the kernel does not say. */
static void driver_version(char *version, size_t cap)
{
    FILE *f = fopen("/proc/driver/nvidia/version", "r");
    char line[256], word[64];

    (void)snprintf(version, cap, "unknown");
    if (f && fgets(line, sizeof line, f))
        for (const char *at = line; sscanf(at, " %63s", word) == 1; at = strstr(at, word) + strlen(word)) {
            int major, minor;
            if (sscanf(word, "%d.%d", &major, &minor) == 2) {
                (void)snprintf(version, cap, "%s", word);
                break;
            }
        }
    if (f)
        (void)fclose(f); /* it was only read */
}

enum err_code gpu_describe(int index, char *text, size_t cap, struct err *e)
{
    struct cudaDeviceProp p;
    char version[64];
    int driver = 0;
    enum err_code rc = properties(index, &p, e);

    if (rc == ERR_OK)
        rc = gpu_check(cudaDriverGetVersion(&driver), "cannot read the driver's version", e);
    if (rc != ERR_OK)
        return rc;
    if (p.major < 8)
        return err_set(e, ERR_UNSUPPORTED, ERR_STOP,
                       "cuda: %s has compute capability %d.%d, at least 8.0 is needed (bf16 products)", p.name, p.major,
                       p.minor);
    driver_version(version, sizeof version);
    (void)snprintf(text, cap, "%s, driver %s for CUDA %d.%d, compute capability %d.%d, %d multiprocessors, %.1f GiB",
                   p.name, version, driver / 1000, driver % 1000 / 10, p.major, p.minor, p.multiProcessorCount,
                   (double)p.totalGlobalMem / (1 << 30));
    return ERR_OK;
}

enum err_code gpu_open(struct gpu *g, int index, struct err *e)
{
    struct cudaDeviceProp p;
    char text[256];
    enum err_code rc;

    memset(g, 0, sizeof *g);
    if ((rc = gpu_describe(index, text, sizeof text, e)) != ERR_OK || (rc = properties(index, &p, e)) != ERR_OK)
        return rc;
    if ((rc = gpu_check(cudaSetDevice(index), "cannot use the card", e)) != ERR_OK)
        return rc;
    g->index = index;
    g->sms = p.multiProcessorCount;
    g->major = p.major;
    g->minor = p.minor;
    g->smem_block = p.sharedMemPerBlockOptin;
    g->overlap = p.major >= 9;
    g->wgmma = p.major == 9 && p.minor == 0;
    return gpu_check(cudaStreamCreateWithFlags(&g->stream, cudaStreamNonBlocking), "cannot make a stream", e);
}

void gpu_close(struct gpu *g)
{
    if (g->stream)
        (void)cudaStreamDestroy(g->stream); /* the process is about to end or the card is gone: nothing to do */
    g->stream = NULL;
}
