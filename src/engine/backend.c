/* Which backends there are.  The table is the one piece of state: filled at start-up, and by the first request for
 * a library; read after that. */
#include "engine/backend.h"

#include "base/log.h"

#include <dlfcn.h>
#include <glob.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#define LIBRARY_PREFIX "translate-worker-"
#define LIBRARY_SUFFIX ".so"

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
        return err_set(e, ERR_DEVICE, ERR_STOP, "%s", dlerror()); /* it names the file */
    const struct backend_ops *ops = dlsym(library, "translate_worker_backend");
    if (!ops) {
        (void)dlclose(library); /* nothing to do where it fails */
        return err_set(e, ERR_DEVICE, ERR_STOP, "%s: no symbol translate_worker_backend", path);
    }
    if (ops->abi != BACKEND_ABI) {
        const unsigned abi = ops->abi;
        (void)dlclose(library);
        return err_set(e, ERR_DEVICE, ERR_STOP, "%s: backend interface %u, this program has %u", path, abi,
                       BACKEND_ABI);
    }
    *out = ops; /* the library stays: code of it may run until the end */
    return ERR_OK;
}

/* Where libraries lie: beside the binary, and where `make install` puts them.  Folders, without a last '/'. */
static const char *const places[] = {"", "/../lib/translate-worker"};
enum { PLACES = sizeof places / sizeof *places };

/* Writes the binary's folder; false: it cannot be told. */
static bool own_folder(char *out, size_t cap)
{
    ssize_t n = readlink("/proc/self/exe", out, cap - 1);

    while (n > 0 && out[n - 1] != '/')
        n--;
    out[n > 0 ? n - 1 : 0] = '\0';
    return n > 0;
}

/* "auto", what is linked in, and the libraries that are there. */
static const char *list_names(char *out, size_t cap, const char *folder)
{
    char pattern[PATH_MAX + 64];
    size_t n = (size_t)snprintf(out, cap, "auto");

    for (int i = 0; i < MAX_BACKENDS && known[i] && n < cap; i++)
        n += (size_t)snprintf(out + n, cap - n, ", %s", known[i]->name);
    for (int i = 0; i < PLACES; i++) {
        glob_t found;

        (void)snprintf(pattern, sizeof pattern, "%s%s/" LIBRARY_PREFIX "*" LIBRARY_SUFFIX, folder, places[i]);
        if (glob(pattern, 0, NULL, &found) != 0)
            continue;
        for (size_t k = 0; k < found.gl_pathc && n < cap; k++) {
            const char *name = strrchr(found.gl_pathv[k], '/') + sizeof LIBRARY_PREFIX;
            n += (size_t)snprintf(out + n, cap - n, ", %.*s", (int)(strlen(name) - strlen(LIBRARY_SUFFIX)), name);
        }
        globfree(&found);
    }
    return out;
}

static enum err_code load_by_name(const struct backend_ops **out, const char *name, struct err *e)
{
    char folder[PATH_MAX], path[PATH_MAX + 128], names[128];

    *out = NULL;
    if (!own_folder(folder, sizeof folder))
        return err_set(e, ERR_DEVICE, ERR_STOP, "cannot tell where this program lies, so not its libraries");
    for (int i = 0; i < PLACES; i++) {
        (void)snprintf(path, sizeof path, "%s%s/" LIBRARY_PREFIX "%.64s" LIBRARY_SUFFIX, folder, places[i], name);
        if (strchr(name, '/') || access(path, F_OK) != 0)
            continue;
        enum err_code rc = backend_load(out, path, e);
        if (*out)
            backend_register(*out);
        return rc;
    }
    if (strcmp(name, "cuda") == 0)
        return err_set(e, ERR_DEVICE, ERR_STOP,
                       "no translate-worker-cuda.so in %s or ../lib/translate-worker of it: this build has no CUDA",
                       folder);
    return err_set(e, ERR_DEVICE, ERR_STOP, "no backend '%.64s': there are %s", name,
                   list_names(names, sizeof names, folder));
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
    if (strcmp(name, "auto") == 0)
        return find_auto(out, e);
    if ((*out = look_up(name)))
        return ERR_OK;
    return load_by_name(out, name, e);
}
