/* run: generator, checker, workers and nemesis together; the figures and the verdict at the end.
 *
 *   topics made --> checker, workers --all joined--> generator --> faults until the time is over
 *   --> generator ends, brokers and workers are whole again --> checker drains and judges --> workers drain and exit 0
 *
 * The process is one loop: serve() waits for pipes and timers, reads the workers' logs, and starts what ended by itself
 * again.  What a fault needs to happen is awaited as an event (a line of a log, an end of a process), at most
 * EVENT_MS; how long a fault lasts is a timer. */
#define _GNU_SOURCE /* vasprintf() */
#include "tests/chaos/chaos.h"
#include "tests/chaos/cut.h"
#include "tests/chaos/kafka.h"
#include "tests/chaos/nemesis.h"
#include "tests/chaos/registry_stub.h"
#include "tests/chaos/worker_process.h"

#include "base/clock.h"
#include "base/hash.h"
#include "cli/cli.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <poll.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

enum {
    SLOTS = 3,
    OLD_TWIN = SLOTS, /* the place of a stopped worker whose slot another has taken */
    PLACES,
    BROKERS = 3,
    SESSION_MS = 6000,
    REVOKE_MS = 3000,
    TRANSACTION_MS = 10000, /* the worker's transaction.timeout.ms */
    EVENT_MS = 60000,
    MOST_ARGS = 80,
    DRAIN_MS = 15000,
    STOP_MS =
        DRAIN_MS + 12000,   /* a SIGTERM's end: drained, or not; then what was sent, the commit, leaving the group */
    ADMIN_MS = 5000,        /* one try of a request to the brokers */
    SPONTANEOUS_MOST = 200, /* ends by themselves that the run puts up with */
};

/* What the runner has done to a worker, and so what its end may be. */
enum intent { LET_LIVE, KILLED, TERMINATED, DEVICE_GONE, FENCED };

struct runner {
    const struct chaos_options *o;
    FILE *faults; /* DIR/faults.log */
    struct worker_process workers[PLACES];
    enum intent intent[PLACES];
    int wanted; /* workers that are started again when they end */
    pid_t generator, checker;
    int awaited_fd; /* readable once the child that is waited for has ended; -1 = none */
    char *argv[MOST_ARGS];
    int n_args;
    int64_t start_ns;
    int counts[FAULT_KINDS];
    int crashes, bad_ends;
    int64_t longest_stop_ms; /* from SIGTERM to the end */
    int64_t allowed_repeats;
    int64_t cut; /* offsets that were not committed when the log was cut there */
    struct cut_history cuts;
    struct registry_stub *registry; /* NULL: no Avro jobs */
    bool twins_fight;               /* the one that comes back may win, and either may be fenced */
    bool brokers_troubled;          /* since a worker was last asked to end */
};

static void __attribute__((format(printf, 2, 3))) say(struct runner *r, const char *fmt, ...)
{
    char text[512];
    va_list ap;

    va_start(ap, fmt);
    vsnprintf(text, sizeof text, fmt, ap);
    va_end(ap);
    fprintf(r->faults, "%.3f %s\n", (double)(clock_mono_ns() - r->start_ns) / NS_PER_S, text);
    fflush(r->faults);
}

static void __attribute__((format(printf, 2, 3))) arg(struct runner *r, const char *fmt, ...)
{
    va_list ap;

    if (r->n_args >= MOST_ARGS - 1)
        abort();
    va_start(ap, fmt);
    if (vasprintf(&r->argv[r->n_args++], fmt, ap) < 0)
        abort();
    va_end(ap);
}

static void set_key(struct runner *r, const char *key, const char *value)
{
    arg(r, "--set");
    arg(r, "%s=%s", key, value);
}

static void worker_arguments(struct runner *r)
{
    const struct chaos_options *o = r->o;
    char number[32];

    arg(r, "%s", o->worker);
    arg(r, "run");
    set_key(r, "model.path", o->model);
    set_key(r, "engine.backend", "fake");
    set_key(r, "engine.rows", "16");
    set_key(r, "kafka.bootstrap_servers", o->bootstrap);
    set_key(r, "kafka.group_id", o->group);
    set_key(r, "kafka.request_topic", o->requests);
    set_key(r, "kafka.result_topic", o->results);
    set_key(r, "kafka.dead_letter_topic", o->dead);
    snprintf(number, sizeof number, "%d", SESSION_MS);
    set_key(r, "kafka.session_timeout_ms", number);
    set_key(r, "kafka.max_poll_interval_ms", "20000");
    set_key(r, "delivery.mode", o->exactly_once ? "exactly_once" : "at_least_once");
    snprintf(number, sizeof number, "%d", o->window);
    set_key(r, "delivery.max_in_flight_jobs", number);
    snprintf(number, sizeof number, "%d", REVOKE_MS);
    set_key(r, "delivery.revoke_timeout_ms", number);
    snprintf(number, sizeof number, "%d", DRAIN_MS);
    set_key(r, "delivery.drain_timeout_ms", number);
    set_key(r, "delivery.publish_timeout_ms", "5000");
    set_key(r, "delivery.commit_interval_ms", "100");
    set_key(r, "batch.max_jobs", "32");
    set_key(r, "retry.backoff_max_ms", "1000");
    set_key(r, "retry.max_crashes", "4"); /* a worker cannot tell our faults from a job's */
    set_key(r, "dead_letter.max_share", "1");
    set_key(r, "http.enabled", "false");
    if (r->registry) {
        snprintf(number, sizeof number, "http://127.0.0.1:%d", registry_stub_port(r->registry));
        set_key(r, "wire.registry_url", number);
        set_key(r, "wire.registry_timeout_ms", "1000");
        set_key(r, "wire.result_encoding", "json"); /* the checker reads no other */
    }
    if (o->order_by_key)
        set_key(r, "delivery.order", "key");
    r->argv[r->n_args] = NULL;
}

/* ---- processes ---- */

static pid_t spawn(const char *out, char *const *argv, bool dies_with_us)
{
    pid_t pid = fork();

    if (pid == 0) {
        if (dies_with_us)
            prctl(PR_SET_PDEATHSIG, SIGKILL);
        int null = open("/dev/null", O_RDONLY), fd = open(out, O_CREAT | O_WRONLY | O_APPEND, 0644);
        dup2(null, 0);
        dup2(fd, 1);
        dup2(fd, 2);
        execv(argv[0], argv);
        _exit(126);
    }
    return pid;
}

static void start_worker(struct runner *r, int slot, bool log_full)
{
    char id[160];

    r->intent[slot] = LET_LIVE;
    snprintf(id, sizeof id, "chaos-%d", slot);
    if (r->o->static_members)
        setenv("TRANSLATE_WORKER_KAFKA_INSTANCE_ID", id, 1);
    snprintf(id, sizeof id, "%.100s-%d", r->o->group, slot);
    setenv("TRANSLATE_WORKER_DELIVERY_TRANSACTIONAL_ID", id, 1); /* exactly_once: each worker its own, also anew */
    if (!worker_start(&r->workers[slot], r->o->dir, r->argv, log_full))
        exit(1);
}

static bool end_is_fine(struct runner *r, int slot)
{
    int status = r->workers[slot].status, code = WIFEXITED(status) ? WEXITSTATUS(status) : -1;

    if (r->intent[slot] == KILLED)
        return true;
    if (WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL) { /* a job that ends the process */
        r->crashes++;
        r->allowed_repeats += r->o->window;
        return true;
    }
    switch (r->intent[slot]) {
    case DEVICE_GONE: return code == EXIT_DEVICE;
    case FENCED: return code == EXIT_KAFKA || code == EXIT_FENCED;
    case TERMINATED:
        if (WIFSIGNALED(status) && WTERMSIG(status) == SIGTERM)
            return !r->workers[slot].spoke; /* it came before the program could ask for signals */
        return code == EXIT_OK || (code == EXIT_ABORTED && r->brokers_troubled);
    default: return (code == EXIT_KAFKA || code == EXIT_FENCED) && r->twins_fight;
    }
}

static void on_end(struct runner *r, int slot)
{
    struct worker_process *w = &r->workers[slot];
    bool fine = end_is_fine(r, slot);

    say(r, "worker %d pid %ld ended, status 0x%x, intent %d%s", slot, (long)w->pid, (unsigned)w->status,
        (int)r->intent[slot], fine ? "" : " UNEXPECTED");
    if (!fine) {
        r->bad_ends++;
        printf("found bad_end: worker-%d-%d.log, status 0x%x, intent %d\n", w->slot, w->starts, (unsigned)w->status,
               (int)r->intent[slot]);
    }
    if (r->intent[slot] == LET_LIVE && slot < r->wanted && r->crashes + r->bad_ends < SPONTANEOUS_MOST)
        start_worker(r, slot, false);
}

/* Waits at most ms for something to read, and serves it. */
static void serve(struct runner *r, int ms)
{
    struct pollfd fds[PLACES + 1];
    int slots[PLACES], n = 0;

    for (int i = 0; i < PLACES; i++)
        if (r->workers[i].fd >= 0) {
            fds[n] = (struct pollfd){.fd = r->workers[i].fd, .events = POLLIN};
            slots[n++] = i;
        }
    fds[n] = (struct pollfd){.fd = r->awaited_fd, .events = POLLIN}; /* -1 is passed over */
    if (poll(fds, (nfds_t)n + 1, ms) <= 0)
        return;
    for (int i = 0; i < n; i++)
        if (fds[i].revents && worker_serve(&r->workers[slots[i]]))
            on_end(r, slots[i]);
}

static void pass(struct runner *r, int ms)
{
    int64_t until = clock_mono_ns() + ms * NS_PER_MS, left;

    while ((left = until - clock_mono_ns()) > 0 && !chaos_term)
        serve(r, (int)((left + NS_PER_MS - 1) / NS_PER_MS));
}

/* Also over when it is gone and nobody starts it again. */
static bool await_state(struct runner *r, int slot, enum worker_state state, int ms)
{
    int64_t until = clock_mono_ns() + ms * NS_PER_MS, left;
    const struct worker_process *w = &r->workers[slot];

    for (;;) {
        if (w->state == WORKER_GONE || (state != WORKER_GONE && w->state >= state))
            return true;
        if ((left = until - clock_mono_ns()) <= 0)
            return false;
        serve(r, (int)(left / NS_PER_MS) + 1);
    }
}

/* A child that is no worker; -1 = killed by a signal, or by us after ms. */
static int await_child(struct runner *r, pid_t pid, int ms)
{
    int64_t until = clock_mono_ns() + ms * NS_PER_MS, left;
    int status;

    r->awaited_fd = (int)syscall(SYS_pidfd_open, pid, 0);
    while (waitpid(pid, &status, WNOHANG) == 0) {
        if ((left = until - clock_mono_ns()) <= 0)
            kill(pid, SIGKILL);
        serve(r, r->awaited_fd >= 0 && left > 0 ? (int)(left / NS_PER_MS) + 1 : 50); /* 50: a kernel before 5.3 */
    }
    if (r->awaited_fd >= 0)
        close(r->awaited_fd);
    r->awaited_fd = -1;
    return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

/* ---- faults ---- */

static pid_t broker_verb(struct runner *r, int broker, const char *verb)
{
    char out[4096], id[8];
    char *argv[] = {(char *)r->o->kafka_sh, "broker", id, (char *)verb, NULL};

    snprintf(id, sizeof id, "%d", broker + 1);
    snprintf(out, sizeof out, "%s/brokers.log", r->o->dir);
    return spawn(out, argv, false);
}

static void broker_do(struct runner *r, int broker, const char *verb)
{
    int code = await_child(r, broker_verb(r, broker, verb), 120000);

    if (code != 0) {
        printf("found broker: broker %d %s failed, code %d (brokers.log)\n", broker + 1, verb, code);
        r->bad_ends++;
    }
}

static void all_brokers(struct runner *r, const char *verb)
{
    pid_t pids[BROKERS];

    for (int i = 0; i < BROKERS; i++)
        pids[i] = broker_verb(r, i, verb);
    for (int i = 0; i < BROKERS; i++)
        if (await_child(r, pids[i], 120000) != 0)
            printf("found broker: broker %d %s failed (brokers.log)\n", i + 1, verb);
}

static void hangs(struct runner *r, int slot, const char *what, int ms)
{
    printf("found hang: worker-%d-%d.log %s within %d s\n", r->workers[slot].slot, r->workers[slot].starts, what,
           ms / 1000);
    r->bad_ends++;
}

static void end_worker(struct runner *r, int slot, enum intent intent, int sig)
{
    int64_t begin = clock_mono_ns(), took;
    int limit = intent == TERMINATED ? STOP_MS : EVENT_MS;

    if (r->workers[slot].state == WORKER_GONE)
        return;
    r->intent[slot] = intent;
    if (intent == KILLED)
        r->allowed_repeats += r->o->window;
    if (sig)
        kill(r->workers[slot].pid, sig);
    if (!await_state(r, slot, WORKER_GONE, limit)) {
        hangs(r, slot, "does not end", limit);
        r->intent[slot] = KILLED;
        kill(r->workers[slot].pid, SIGKILL);
        (void)await_state(r, slot, WORKER_GONE, EVENT_MS); /* the kernel's word */
    }
    took = (clock_mono_ns() - begin) / NS_PER_MS;
    if (intent == TERMINATED && took > r->longest_stop_ms)
        r->longest_stop_ms = took;
}

static void restart_worker(struct runner *r, int slot)
{
    start_worker(r, slot, false);
    if (!await_state(r, slot, WORKER_READY, EVENT_MS))
        hangs(r, slot, "is not ready", EVENT_MS);
}

static void break_device(struct runner *r, int slot)
{
    char path[4096];

    if (r->workers[slot].state == WORKER_GONE)
        return;
    snprintf(path, sizeof path, "%s/device-gone-%ld", r->o->dir, (long)r->workers[slot].pid);
    close(open(path, O_CREAT | O_WRONLY | O_CLOEXEC, 0644));
    r->allowed_repeats += r->o->window;
    end_worker(r, slot, DEVICE_GONE, 0); /* at its next step */
}

/* The stopped one moves aside, its identity goes to another.  Exactly once the one that comes back is fenced; but where its
 * open transaction is older than transaction.timeout.ms then, it cannot tell another instance from the brokers' own abort:
 * it takes its name back once, and the other may be fenced. */
static void twin(struct runner *r, int slot, int duration_ms)
{
    pid_t pid = r->workers[slot].pid;
    int64_t stopped_ns = clock_mono_ns();

    if (r->workers[slot].state == WORKER_GONE)
        return;
    kill(pid, SIGSTOP);
    r->allowed_repeats += r->o->window;
    r->workers[OLD_TWIN] = r->workers[slot];
    r->intent[OLD_TWIN] = FENCED;
    r->workers[slot] = (struct worker_process){.slot = slot,
                                               .starts = r->workers[OLD_TWIN].starts,
                                               .fd = -1,
                                               .log_cuts = r->workers[OLD_TWIN].log_cuts};
    r->workers[OLD_TWIN].log_cuts = 0;
    start_worker(r, slot, false);
    if (!await_state(r, slot, WORKER_JOINED, EVENT_MS))
        hangs(r, slot, "has not joined", EVENT_MS);
    pass(r, duration_ms);
    r->twins_fight = !r->o->exactly_once || clock_mono_ns() - stopped_ns >= TRANSACTION_MS * NS_PER_MS;
    kill(pid, SIGCONT);
    end_worker(r, OLD_TWIN, FENCED, 0);
    if (!await_state(r, slot, WORKER_JOINED, EVENT_MS))
        hangs(r, slot, "has not joined", EVENT_MS);
    r->twins_fight = false;
}

static void worker_fault(struct runner *r, const struct fault *f)
{
    int slot = (int)(f->target % (unsigned)r->wanted);

    switch (f->kind) {
    case FAULT_KILL: end_worker(r, slot, KILLED, SIGKILL); break;
    case FAULT_TERM: end_worker(r, slot, TERMINATED, SIGTERM); break;
    case FAULT_TWIN: twin(r, slot, f->duration_ms); return;
    case FAULT_DEVICE: break_device(r, slot); break;
    case FAULT_LOG_FULL:
        end_worker(r, slot, TERMINATED, SIGTERM);
        start_worker(r, slot, true);
        pass(r, f->duration_ms);
        end_worker(r, slot, TERMINATED, SIGTERM);
        break;
    default: /* it only stands still */
        if (r->workers[slot].state == WORKER_GONE)
            break;
        kill(r->workers[slot].pid, SIGSTOP);
        r->allowed_repeats += r->o->window;
        pass(r, f->duration_ms);
        kill(r->workers[slot].pid, SIGCONT);
        return;
    }
    if (f->kind != FAULT_LOG_FULL)
        pass(r, f->duration_ms);
    restart_worker(r, slot);
}

static void join_fault(struct runner *r, const struct fault *f)
{
    int slot = r->wanted;

    if (slot >= SLOTS) { /* all there: one leaves instead and comes back */
        slot = (int)(f->target % SLOTS);
        end_worker(r, slot, TERMINATED, SIGTERM);
        pass(r, f->duration_ms);
        restart_worker(r, slot);
        return;
    }
    start_worker(r, slot, false);
    if (!await_state(r, slot, WORKER_JOINED, EVENT_MS))
        hangs(r, slot, "has not joined", EVENT_MS);
    pass(r, f->duration_ms);
    if (f->kind == FAULT_JOIN)
        end_worker(r, slot, TERMINATED, SIGTERM);
    else
        end_worker(r, slot, KILLED, SIGKILL);
}

/* ---- comings and goings faster than the group settles ---- */

/* One more or one less, by kill -9 or SIGTERM, and nothing is waited for.  A process that has only begun would end by
 * either signal the same way. */
static void stir(struct runner *r, int slot, uint64_t h)
{
    struct worker_process *w = &r->workers[slot];
    bool killed = h % 3 == 0 || w->state == WORKER_STARTING;

    if (w->state == WORKER_GONE) {
        start_worker(r, slot, false);
        return;
    }
    if (r->intent[slot] != LET_LIVE)
        return; /* on its way out */
    r->intent[slot] = killed ? KILLED : TERMINATED;
    r->allowed_repeats += killed ? r->o->window : 0;
    kill(w->pid, killed ? SIGKILL : SIGTERM);
}

/* The ones that were there before are there again, and no other. */
static void settle(struct runner *r)
{
    for (int i = 0; i < SLOTS; i++) {
        if (r->intent[i] != LET_LIVE && !await_state(r, i, WORKER_GONE, STOP_MS))
            hangs(r, i, "does not end", STOP_MS);
        if (i >= r->wanted)
            end_worker(r, i, r->workers[i].state < WORKER_READY ? KILLED : TERMINATED,
                       r->workers[i].state < WORKER_READY ? SIGKILL : SIGTERM);
        else if (r->workers[i].state == WORKER_GONE)
            start_worker(r, i, false);
    }
    for (int i = 0; i < r->wanted; i++)
        if (!await_state(r, i, WORKER_JOINED, EVENT_MS))
            hangs(r, i, "has not joined", EVENT_MS);
}

static void storm(struct runner *r, const struct fault *f)
{
    int64_t end = clock_mono_ns() + f->duration_ms * NS_PER_MS;
    uint64_t h = f->target;

    r->allowed_repeats += (int64_t)SLOTS * r->o->window; /* partitions move before what is in flight is done */
    while (clock_mono_ns() < end && !chaos_term) {
        h = hash_mix(h, 1);
        stir(r, (int)(h % SLOTS), h >> 8);
        pass(r, 100 + (int)((h >> 16) % 1200));
    }
    settle(r);
}

/* ---- the log is cut ---- */

static void stop_all(struct runner *r, int sig)
{
    for (int i = 0; i < r->wanted; i++) {
        if (r->workers[i].state == WORKER_GONE)
            continue;
        if (sig == SIGSTOP)
            r->allowed_repeats += r->o->window;
        kill(r->workers[i].pid, sig);
    }
}

/* One partition, or all of them; up to what is committed, half way to the newest job, or all. */
static void cut(struct runner *r, unsigned target)
{
    int percent = (const int[]){0, 50, 100}[target / 4 % 3], partitions = r->o->partitions;
    int first = target / 12 % 3 == 0 ? 0 : (int)(target / 36 % (unsigned)partitions);
    int n = target / 12 % 3 == 0 ? partitions : 1;

    for (int i = first; i < first + n; i++) {
        int64_t offsets = cut_log(r->o, &r->cuts, i, percent);

        say(r, "partition %d is cut, %d percent past the committed offset: %" PRId64 " offsets", i, percent, offsets);
        r->cut += offsets > 0 ? offsets : 0;
    }
}

/* Under workers that read on, that stand still while jobs come, that are gone while jobs come. */
static void cut_fault(struct runner *r, const struct fault *f)
{
    switch (f->target % 4) {
    case 0: cut(r, f->target); break;
    case 1:
        for (int i = 0; i < r->wanted; i++)
            end_worker(r, i, KILLED, SIGKILL);
        pass(r, f->duration_ms);
        cut(r, f->target);
        for (int i = 0; i < r->wanted; i++)
            restart_worker(r, i);
        break;
    default:
        stop_all(r, SIGSTOP);
        pass(r, f->duration_ms);
        cut(r, f->target);
        stop_all(r, SIGCONT);
    }
}

/* ---- a registry that does not answer ---- */

static void registry_fault(struct runner *r, const struct fault *f)
{
    int slot = (int)(f->target / 4 % (unsigned)r->wanted), before = registry_stub_requests(r->registry);

    registry_stub_set(r->registry, f->target % 2 ? REGISTRY_HANGS : REGISTRY_FAILS);
    if (f->target / 2 % 2) {
        end_worker(r, slot, KILLED, SIGKILL);
        restart_worker(r, slot);
    }
    pass(r, f->duration_ms);
    registry_stub_set(r->registry, REGISTRY_ANSWERS);
    say(r, "the registry was asked %d times", registry_stub_requests(r->registry) - before);
}

/* ---- a topic that takes nothing ---- */

/* More replicas in sync are asked for than there are: every write is refused, for now. */
static void refuse_fault(struct runner *r, const struct fault *f)
{
    const char *topic = f->target % 3 == 0 ? r->o->dead : r->o->results;
    rd_kafka_t *rk = kafka_new(RD_KAFKA_PRODUCER, kafka_conf(r->o->bootstrap, NULL));
    int64_t limit;

    r->allowed_repeats += (int64_t)r->wanted * r->o->window;
    r->brokers_troubled = true;
    say(r, "%s refuses", topic);
    if (kafka_set_topic(rk, topic, "min.insync.replicas", "4", ADMIN_MS))
        pass(r, f->duration_ms);
    limit = clock_mono_ns() + EVENT_MS * NS_PER_MS;
    while (!kafka_set_topic(rk, topic, NULL, NULL, ADMIN_MS))
        if (clock_mono_ns() >= limit) {
            printf("found broker: %s refuses for ever\n", topic);
            r->bad_ends++;
            break;
        }
    rd_kafka_destroy(rk);
}

/* A worker's fault while a broker has one; returns its slot, -1 = none.  One that was ended starts at once, and has to
 * wait for the brokers. */
static int trouble_beside(struct runner *r, const struct fault *f)
{
    int slot = (int)(f->target / BROKERS % (unsigned)r->wanted);

    if (r->workers[slot].state == WORKER_GONE)
        return -1;
    say(r, "beside it: %s worker %d", fault_name(f->beside), slot);
    r->counts[f->beside]++;
    if (f->beside == FAULT_PAUSE) {
        r->allowed_repeats += r->o->window;
        kill(r->workers[slot].pid, SIGSTOP);
        return slot;
    }
    end_worker(r, slot, f->beside == FAULT_KILL ? KILLED : TERMINATED, f->beside == FAULT_KILL ? SIGKILL : SIGTERM);
    start_worker(r, slot, false);
    return slot;
}

static void broker_fault(struct runner *r, const struct fault *f)
{
    int broker = (int)(f->target % BROKERS);

    r->allowed_repeats += (int64_t)r->wanted * r->o->window;
    r->brokers_troubled = true;
    switch (f->kind) {
    case FAULT_BROKER_KILL: broker_do(r, broker, "kill"); break;
    case FAULT_BROKER_STOP: broker_do(r, broker, "stop"); break;
    case FAULT_BROKER_PAUSE: broker_do(r, broker, "pause"); break;
    default: all_brokers(r, "kill"); break;
    }
    int slot = f->has_beside ? trouble_beside(r, f) : -1;
    pass(r, f->duration_ms);
    if (f->kind == FAULT_ALL_DOWN)
        all_brokers(r, "start");
    else
        broker_do(r, broker, f->kind == FAULT_BROKER_PAUSE ? "resume" : "start");
    if (slot >= 0 && f->beside == FAULT_PAUSE)
        kill(r->workers[slot].pid, SIGCONT);
    else if (slot >= 0 && !await_state(r, slot, WORKER_READY, EVENT_MS))
        hangs(r, slot, "is not ready", EVENT_MS);
}

static void do_fault(struct runner *r, int i, const struct fault *f)
{
    say(r, "fault %d %s target %u for %d ms", i, fault_name(f->kind), f->target, f->duration_ms);
    r->counts[f->kind]++;
    if (f->kind >= FAULT_BROKER_KILL)
        broker_fault(r, f);
    else if (f->kind == FAULT_STORM)
        storm(r, f);
    else if (f->kind == FAULT_CUT)
        cut_fault(r, f);
    else if (f->kind == FAULT_REGISTRY)
        registry_fault(r, f);
    else if (f->kind == FAULT_REFUSE)
        refuse_fault(r, f);
    else if (f->kind == FAULT_JOIN || f->kind == FAULT_JOIN_KILL)
        join_fault(r, f);
    else
        worker_fault(r, f);
    say(r, "fault %d is over, %d ms of rest", i, f->rest_ms);
    pass(r, f->rest_ms);
    if (f->kind < FAULT_REFUSE && f->rest_ms > 2000)
        r->brokers_troubled = false;
}

/* ---- the run ---- */

static bool make_topics(const struct chaos_options *o)
{
    rd_kafka_t *rk = kafka_new(RD_KAFKA_PRODUCER, kafka_conf(o->bootstrap, NULL));
    bool made = kafka_create_topic(rk, o->requests, o->partitions, BROKERS, 30000) &&
                kafka_create_topic(rk, o->results, o->partitions, BROKERS, 30000) &&
                kafka_create_topic(rk, o->dead, 2, BROKERS, 30000) && kafka_partitions(rk, o->requests, 30000) > 0 &&
                kafka_partitions(rk, o->results, 30000) > 0 && kafka_partitions(rk, o->dead, 30000) > 0;

    rd_kafka_destroy(rk);
    return made;
}

static pid_t start_self(const struct chaos_options *o, const char *what, const char *out)
{
    char path[4096], seed[32], rate[16], crash[16], keys[16], drain[16];
    char *argv[] = {"/proc/self/exe",
                    (char *)what,
                    "--bootstrap",
                    (char *)o->bootstrap,
                    "--group",
                    (char *)o->group,
                    "--requests",
                    (char *)o->requests,
                    "--results",
                    (char *)o->results,
                    "--dead",
                    (char *)o->dead,
                    "--log",
                    (char *)o->log,
                    "--dir",
                    (char *)o->dir,
                    "--seed",
                    seed,
                    "--rate",
                    rate,
                    "--crash-one-in",
                    crash,
                    "--keys",
                    keys,
                    "--drain",
                    drain,
                    "--mode",
                    o->exactly_once ? "exactly_once" : "at_least_once",
                    o->avro ? "--avro" : "--no-avro",
                    o->transactions ? "--transactions" : "--no-transactions",
                    o->order_by_key ? "--order-by-key" : "--no-order",
                    NULL};

    snprintf(path, sizeof path, "%s/%s", o->dir, out);
    snprintf(seed, sizeof seed, "%" PRIu64, o->seed);
    snprintf(rate, sizeof rate, "%d", o->rate);
    snprintf(crash, sizeof crash, "%d", o->crash_one_in);
    snprintf(keys, sizeof keys, "%d", o->keys);
    snprintf(drain, sizeof drain, "%d", o->drain_s);
    return spawn(path, argv, true);
}

static void note_allowed(struct runner *r)
{
    char path[4096];
    FILE *f;

    snprintf(path, sizeof path, "%s/allowed-repeats", r->o->dir);
    f = fopen(path, "w");
    if (!f || fprintf(f, "%" PRId64 "\n", r->allowed_repeats) < 0 || fclose(f) != 0) {
        perror(path);
        exit(1);
    }
}

static int noticed_cuts(const struct runner *r)
{
    int n = 0;

    for (int i = 0; i < PLACES; i++)
        n += r->workers[i].log_cuts;
    return n;
}

static void print_figures(struct runner *r)
{
    printf("faults:");
    for (int k = 0; k < FAULT_KINDS; k++)
        if (r->counts[k] > 0)
            printf(" %s=%d", fault_name((enum fault_kind)k), r->counts[k]);
    printf(" crash_job=%d bad_ends=%d longest_stop_ms=%" PRId64 "\n", r->crashes, r->bad_ends, r->longest_stop_ms);
    printf("cut: %" PRId64 " offsets that were not committed; workers noticed %d times\n", r->cut, noticed_cuts(r));
}

static void print_file(const char *dir, const char *name)
{
    char path[4096], line[4096];
    FILE *f;

    snprintf(path, sizeof path, "%s/%s", dir, name);
    f = fopen(path, "r");
    while (f && fgets(line, sizeof line, f))
        fputs(line, stdout);
    if (f)
        fclose(f);
}

static void start_all(struct runner *r)
{
    r->checker = start_self(r->o, "check", "checker.out");
    r->wanted = r->o->workers;
    for (int i = 0; i < r->wanted; i++)
        start_worker(r, i, false);
    for (int i = 0; i < r->wanted; i++)
        if (!await_state(r, i, WORKER_JOINED, EVENT_MS))
            hangs(r, i, "has not joined", EVENT_MS);
    r->generator = start_self(r->o, "generate", "generator.out");
}

/* Twins need an identity that the brokers know; nobody asks a registry where no job is Avro. */
static unsigned faults_of(const struct chaos_options *o)
{
    unsigned mask = fault_mask(o->faults);

    if (!o->static_members && !o->exactly_once)
        mask &= ~(1u << FAULT_TWIN);
    return o->avro ? mask : mask & ~(1u << FAULT_REGISTRY);
}

static void make_trouble(struct runner *r)
{
    int64_t end = clock_mono_ns() + (int64_t)(r->o->minutes * 60 * NS_PER_S);
    unsigned mask = faults_of(r->o);
    struct fault f;

    pass(r, 3000);
    for (int i = 0; clock_mono_ns() < end && !chaos_term; i++) {
        nemesis_draw(&f, r->o->seed, i, mask, SESSION_MS);
        do_fault(r, i, &f);
    }
}

static bool finish(struct runner *r)
{
    int written, judged;

    say(r, "the generator ends");
    kill(r->generator, SIGTERM);
    written = await_child(r, r->generator, 150000);
    note_allowed(r);
    say(r, "the checker drains");
    kill(r->checker, SIGUSR1);
    judged = await_child(r, r->checker, (CHAOS_DRAIN_MOST * r->o->drain_s + 90) * 1000);
    r->brokers_troubled = false;
    for (int i = 0; i < SLOTS; i++)
        end_worker(r, i, TERMINATED, SIGTERM);
    say(r, "over: generator %d, checker %d, bad ends %d", written, judged, r->bad_ends);
    return written == 0 && judged == 0 && r->bad_ends == 0;
}

int chaos_run(const struct chaos_options *o)
{
    struct runner r = {.o = o, .start_ns = clock_mono_ns(), .awaited_fd = -1};
    char path[4096];
    bool clean;

    snprintf(path, sizeof path, "%s/faults.log", o->dir);
    r.faults = fopen(path, "w");
    if (!r.faults || faults_of(o) == 0) {
        fprintf(stderr, "chaos run: cannot write %s, or unknown faults\n", path);
        return 2;
    }
    if (o->avro && !(r.registry = registry_stub_open())) {
        fprintf(stderr, "chaos run: no registry\n");
        fclose(r.faults);
        return 2;
    }
    setenv("FAKE_DIR", o->dir, 1);
    setvbuf(stdout, NULL, _IOLBF, 0);
    for (int i = 0; i < PLACES; i++)
        worker_init(&r.workers[i], i);
    worker_arguments(&r);
    if (!make_topics(o))
        return 1;
    start_all(&r);
    make_trouble(&r);
    clean = finish(&r);
    printf("seed=%" PRIu64 " minutes=%g mode=%s workers=%d rate=%d window=%d partitions=%d\n", o->seed, o->minutes,
           o->exactly_once ? "exactly_once" : "at_least_once", o->workers, o->rate, o->window, o->partitions);
    print_figures(&r);
    print_file(o->dir, "generator.out");
    print_file(o->dir, "checker.out");
    printf("%s: seed %" PRIu64 ", logs in %s\n", clean ? "clean" : "FAULTY", o->seed, o->dir);
    for (int i = 0; i < r.n_args; i++)
        free(r.argv[i]);
    registry_stub_close(r.registry);
    fclose(r.faults);
    return clean ? 0 : 1;
}

int chaos_faults(const struct chaos_options *o)
{
    unsigned mask = faults_of(o);
    struct fault f;

    if (mask == 0) {
        fprintf(stderr, "chaos faults: unknown kind in \"%s\"\n", o->faults);
        return 2;
    }
    for (int i = 0; i < 50; i++) {
        nemesis_draw(&f, o->seed, i, mask, SESSION_MS);
        printf("%d %s target %u for %d ms, rest %d ms\n", i, fault_name(f.kind), f.target, f.duration_ms, f.rest_ms);
    }
    return 0;
}
