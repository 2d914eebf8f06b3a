/* Which backends there are.  The table is the one piece of state: filled at start-up, and by the first request for
 * cuda; read after that. */
#include "engine/backend.h"

#include "base/log.h"

#include <dlfcn.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

enum { MAX_BACKENDS = 4 };

static const struct backend_ops *known[MAX_BACKENDS];

void backend_register(const struct backend_ops *ops)
{
    for (int i = 0; i < MAX_BACKENDS; i++)
        if (!known[i] || strcmp(known[i]->name, ops->name) == 0) {
            known[i] = ops;
            return;
        }
}

static const struct backend_ops *look_up(const char *name)
{
    for (int i = 0; i < MAX_BACKENDS && known[i]; i++)
        if (strcmp(known[i]->name, name) == 0)
            return known[i];
    return NULL;
}

enum err_code backend_load(const struct backend_ops **out, const char *path, struct err *e)
{
    *out = NULL;
    void *library = dlopen(path, RTLD_NOW | RTLD_LOCAL);
    if (!library)
        return err_set(e, ERR_UNSUPPORTED, ERR_STOP, "%s", dlerror()); /* it names the file */
    const struct backend_ops *ops = dlsym(library, "translate_worker_backend");
    if (!ops) {
        (void)dlclose(library); /* nothing to do where it fails */
        return err_set(e, ERR_UNSUPPORTED, ERR_STOP, "%s: no symbol translate_worker_backend", path);
    }
    if (ops->abi != BACKEND_ABI) {
        const unsigned abi = ops->abi;
        (void)dlclose(library);
        return err_set(e, ERR_UNSUPPORTED, ERR_STOP, "%s: backend interface %u, this program has %u", path, abi,
                       BACKEND_ABI);
    }
    *out = ops; /* the library stays: code of it may run until the end */
    return ERR_OK;
}

static enum err_code load_cuda(const struct backend_ops **out, struct err *e)
{
    static const char *const places[] = {"", "/../lib/translate-worker"};
    char self[PATH_MAX], path[PATH_MAX + 64];
    ssize_t n = readlink("/proc/self/exe", self, sizeof self);

    *out = NULL;
    while (n > 0 && self[n - 1] != '/')
        n--;
    if (n <= 0)
        return err_set(e, ERR_UNSUPPORTED, ERR_STOP, "cannot tell where this program lies, so not its libraries");
    for (size_t i = 0; i < sizeof places / sizeof places[0]; i++) {
        (void)snprintf(path, sizeof path, "%.*s%s/translate-worker-cuda.so", (int)n - 1, self, places[i]);
        if (access(path, F_OK) != 0)
            continue;
        enum err_code rc = backend_load(out, path, e);
        if (*out)
            backend_register(*out);
        return rc;
    }
    return err_set(e, ERR_UNSUPPORTED, ERR_STOP,
                   "no translate-worker-cuda.so in %.*s or ../lib/translate-worker of it: this build has no CUDA",
                   (int)n - 1, self);
}

static enum err_code find_auto(const struct backend_ops **out, struct err *e)
{
    char text[256], quoted[256];
    struct err why = {0};

    enum err_code rc = backend_find(out, "cuda", &why);
    if (*out && (rc = (*out)->probe(0, text, sizeof text, &why)) == ERR_OK) {
        log_event(LOG_INFO, "backend_chosen", "backend=cuda device=%s", log_quote(quoted, sizeof quoted, text));
        return ERR_OK;
    }
    rc = backend_find(out, "cpu", e);
    if (rc == ERR_OK)
        log_event(LOG_INFO, "backend_chosen", "backend=cpu why=%s", log_quote(quoted, sizeof quoted, why.msg));
    return rc;
}

enum err_code backend_find(const struct backend_ops **out, const char *name, struct err *e)
{
    char names[128] = "auto, cuda";

    if (strcmp(name, "auto") == 0)
        return find_auto(out, e);
    if ((*out = look_up(name)))
        return ERR_OK;
    if (strcmp(name, "cuda") == 0)
        return load_cuda(out, e);
    for (int i = 0; i < MAX_BACKENDS && known[i]; i++)
        if (strcmp(known[i]->name, "cuda") != 0)
            (void)snprintf(names + strlen(names), sizeof names - strlen(names), ", %s", known[i]->name);
    return err_set(e, ERR_UNSUPPORTED, ERR_STOP, "no backend '%s': there are %s", name, names);
}
