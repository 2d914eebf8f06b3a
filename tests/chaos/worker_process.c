#define _GNU_SOURCE /* pipe2() */
#include "tests/chaos/worker_process.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

void worker_init(struct worker_process *w, int slot)
{
    *w = (struct worker_process){.slot = slot, .fd = -1};
}

bool worker_start(struct worker_process *w, const char *dir, char *const *argv, bool log_full)
{
    char path[4096];
    int fds[2];

    snprintf(path, sizeof path, "%s/worker-%d-%d.log", dir, w->slot, ++w->starts);
    w->log = fopen(path, "w");
    if (!w->log || pipe2(fds, O_CLOEXEC) != 0) {
        perror("chaos: worker");
        return false;
    }
    w->pid = fork();
    if (w->pid < 0) {
        perror("chaos: fork");
        return false;
    }
    if (w->pid == 0) {
        prctl(PR_SET_PDEATHSIG, SIGKILL); /* no worker outlives its run */
        int null = open("/dev/null", O_RDWR), full = log_full ? open("/dev/full", O_WRONLY) : -1;
        dup2(null, 0);
        dup2(null, 1);
        dup2(log_full ? full : fds[1], 2);
        if (log_full)
            fcntl(fds[1], F_SETFD, 0); /* kept open, so that its end is seen */
        execv(argv[0], argv);
        _exit(126);
    }
    close(fds[1]);
    fcntl(fds[0], F_SETFL, O_NONBLOCK);
    w->fd = fds[0];
    w->state = WORKER_STARTING;
    w->spoke = false;
    w->n = 0;
    return true;
}

static void on_line(struct worker_process *w, const char *line)
{
    if (strstr(line, " event=ready ") && w->state == WORKER_STARTING)
        w->state = WORKER_READY;
    if (strstr(line, " event=joined ") && w->state == WORKER_READY)
        w->state = WORKER_JOINED;
    w->log_cuts += strstr(line, " event=log_cut ") != NULL;
}

static void take(struct worker_process *w, const char *s, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        if (s[i] != '\n') {
            if (w->n < sizeof w->line - 1)
                w->line[w->n++] = s[i];
            continue;
        }
        w->line[w->n] = '\0';
        on_line(w, w->line);
        w->n = 0;
    }
}

bool worker_serve(struct worker_process *w)
{
    char buf[8192];
    ssize_t n;

    while ((n = read(w->fd, buf, sizeof buf)) > 0) {
        fwrite(buf, 1, (size_t)n, w->log);
        w->spoke = true;
        take(w, buf, (size_t)n);
    }
    if (n < 0 && (errno == EAGAIN || errno == EINTR)) {
        fflush(w->log);
        return false;
    }
    while (waitpid(w->pid, &w->status, 0) < 0 && errno == EINTR)
        ;
    close(w->fd);
    fclose(w->log);
    w->fd = -1;
    w->log = NULL;
    w->state = WORKER_GONE;
    return true;
}
