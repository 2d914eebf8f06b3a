/* chaos.h -- the subcommands of build/chaos, and the options that they share. */
#ifndef CHAOS_CHAOS_H
#define CHAOS_CHAOS_H

#include <signal.h>
#include <stdbool.h>
#include <stdint.h>

enum { CHAOS_DRAIN_MOST = 5 };

struct chaos_options {
    const char *bootstrap, *group;
    const char *requests, *results, *dead; /* topics */
    const char *log;                       /* of the generator: what became of each job it wrote */
    const char *dir;                       /* logs and figures of a run */
    const char *kafka_sh, *worker, *model;
    const char *faults; /* comma-separated kinds, NULL = all */
    uint64_t seed;
    double minutes;
    int rate;         /* jobs a second */
    int crash_one_in; /* jobs; 0 = none */
    int keys, partitions, window, workers;
    int drain_s;         /* without progress; CHAOS_DRAIN_MOST times that in all */
    int64_t max_repeats; /* -1 = as the runner says in DIR/allowed-repeats */
    bool exactly_once, order_by_key, transactions, avro, static_members;
};

int chaos_generate(const struct chaos_options *o);
int chaos_check(const struct chaos_options *o);
int chaos_run(const struct chaos_options *o);
int chaos_recreate(const struct chaos_options *o);
int chaos_faults(const struct chaos_options *o);

/* Raised by SIGTERM: the generator ends; by SIGUSR1: the checker is told that no job will be written any more. */
extern volatile sig_atomic_t chaos_term, chaos_usr1;

#endif
