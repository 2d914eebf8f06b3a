#include "base/file.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum err_code file_open(FILE **out, const char *path, size_t *size, bool *is_missing, struct err *e)
{
    int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK); /* a pipe without a writer would be waited for */
    struct stat st;

    *out = NULL;
    if (is_missing)
        *is_missing = fd < 0 && errno == ENOENT;
    if (fd < 0)
        return err_set(e, ERR_IO, ERR_STOP, "%.180s: %s", path, strerror(errno));
    if (fstat(fd, &st) != 0 || !S_ISREG(st.st_mode)) {
        close(fd);
        return err_set(e, ERR_IO, ERR_STOP, "%.180s: not a regular file", path);
    }
    if (!(*out = fdopen(fd, "rb"))) {
        close(fd);
        return err_set(e, ERR_IO, ERR_STOP, "%.180s: %s", path, strerror(errno));
    }
    if (size)
        *size = (size_t)st.st_size;
    return ERR_OK;
}
