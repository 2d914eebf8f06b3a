/* chaos -- proof by faults: generator, checker, nemesis and runner in one program.  */
#include "tests/chaos/chaos.h"

#include <getopt.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

volatile sig_atomic_t chaos_term, chaos_usr1;

static const char help[] =
    "usage: chaos run | generate | check | faults | recreate [options]\n"
    "  run       generator, checker, workers and faults against a running cluster; the verdict is the exit code\n"
    "  generate  numbered jobs until SIGTERM        check   judges, after SIGUSR1        faults  the list of a seed\n"
    "  recreate  deletes the topic of the requests and makes it anew, of one replica\n"
    "  --seed N  --minutes M  --mode at_least_once|exactly_once  --workers 1..3  --faults KIND,KIND,...\n"
    "  --rate JOBS/S  --window JOBS  --partitions N  --keys N  --crash-one-in N (0: never)  --drain SECONDS\n"
    "  --bootstrap SERVERS  --group G  --requests T  --results T  --dead T  --log FILE  --dir DIR\n"
    "  --kafka-sh FILE  --worker FILE  --model DIR  --max-repeats N\n"
    "  --transactions (default) --no-transactions  --order-by-key  --no-order (default)\n"
    "  --avro (default) --no-avro  (some jobs in Avro, by schemas of a registry)\n"
    "  --static-members  (each worker has a kafka.instance_id)\n";

static void on_term(int sig)
{
    (void)sig;
    chaos_term = 1;
}

static void on_usr1(int sig)
{
    (void)sig;
    chaos_usr1 = 1;
}

static void handle(int sig, void (*handler)(int))
{
    struct sigaction a;

    memset(&a, 0, sizeof a);
    a.sa_handler = handler;
    sigaction(sig, &a, NULL);
}

static const struct option options[] = {{"seed", 1, NULL, 's'},
                                        {"minutes", 1, NULL, 'm'},
                                        {"mode", 1, NULL, 'M'},
                                        {"workers", 1, NULL, 'w'},
                                        {"faults", 1, NULL, 'f'},
                                        {"rate", 1, NULL, 'r'},
                                        {"window", 1, NULL, 'W'},
                                        {"partitions", 1, NULL, 'p'},
                                        {"keys", 1, NULL, 'k'},
                                        {"crash-one-in", 1, NULL, 'c'},
                                        {"drain", 1, NULL, 'd'},
                                        {"bootstrap", 1, NULL, 'b'},
                                        {"group", 1, NULL, 'g'},
                                        {"requests", 1, NULL, '1'},
                                        {"results", 1, NULL, '2'},
                                        {"dead", 1, NULL, '3'},
                                        {"log", 1, NULL, 'l'},
                                        {"dir", 1, NULL, 'D'},
                                        {"kafka-sh", 1, NULL, 'K'},
                                        {"worker", 1, NULL, 'B'},
                                        {"model", 1, NULL, 'P'},
                                        {"max-repeats", 1, NULL, 'R'},
                                        {"transactions", 0, NULL, 't'},
                                        {"no-transactions", 0, NULL, 'T'},
                                        {"order-by-key", 0, NULL, 'o'},
                                        {"no-order", 0, NULL, 'O'},
                                        {"avro", 0, NULL, 'a'},
                                        {"no-avro", 0, NULL, 'A'},
                                        {"static-members", 0, NULL, 'S'},
                                        {NULL, 0, NULL, 0}};

static bool take(struct chaos_options *o, int c)
{
    switch (c) {
    case 's': o->seed = strtoull(optarg, NULL, 10); break;
    case 'm': o->minutes = strtod(optarg, NULL); break;
    case 'M':
        o->exactly_once = strcmp(optarg, "exactly_once") == 0;
        return o->exactly_once || strcmp(optarg, "at_least_once") == 0;
    case 'w': o->workers = atoi(optarg); return o->workers >= 1 && o->workers <= 3;
    case 'f': o->faults = optarg; break;
    case 'r': o->rate = atoi(optarg); return o->rate > 0;
    case 'W': o->window = atoi(optarg); return o->window >= 32;
    case 'p': o->partitions = atoi(optarg); return o->partitions >= 1 && o->partitions <= 64;
    case 'k': o->keys = atoi(optarg); return o->keys >= 5 && o->keys <= 1024;
    case 'c': o->crash_one_in = atoi(optarg); break;
    case 'd': o->drain_s = atoi(optarg); break;
    case 'b': o->bootstrap = optarg; break;
    case 'g': o->group = optarg; break;
    case '1': o->requests = optarg; break;
    case '2': o->results = optarg; break;
    case '3': o->dead = optarg; break;
    case 'l': o->log = optarg; break;
    case 'D': o->dir = optarg; break;
    case 'K': o->kafka_sh = optarg; break;
    case 'B': o->worker = optarg; break;
    case 'P': o->model = optarg; break;
    case 'R': o->max_repeats = strtoll(optarg, NULL, 10); break;
    case 't': o->transactions = true; break;
    case 'T': o->transactions = false; break;
    case 'o': o->order_by_key = true; break;
    case 'a': o->avro = true; break;
    case 'A': o->avro = false; break;
    case 'S': o->static_members = true; break;
    case 'O': o->order_by_key = false; break;
    default: return false;
    }
    return true;
}

int main(int argc, char **argv)
{
    struct chaos_options o = {.seed = 1,
                              .minutes = 1,
                              .workers = 2,
                              .rate = 100,
                              .window = 256,
                              .partitions = 6,
                              .keys = 100,
                              .crash_one_in = 2000,
                              .drain_s = 240,
                              .max_repeats = -1,
                              .transactions = true,
                              .avro = true,
                              .group = "chaos",
                              .requests = "chaos.requests",
                              .results = "chaos.results",
                              .dead = "chaos.dead",
                              .dir = ".",
                              .bootstrap = "127.0.0.1:29092",
                              .log = "generator.log",
                              .kafka_sh = "ops/kafka-local/kafka.sh",
                              .worker = "build/translate-worker",
                              .model = "ops/demo/model"};
    const struct {
        const char *name;
        int (*run)(const struct chaos_options *);
    } commands[] = {{"run", chaos_run},
                    {"generate", chaos_generate},
                    {"check", chaos_check},
                    {"faults", chaos_faults},
                    {"recreate", chaos_recreate}};
    int c;

    for (optind = 2; argc > 1 && (c = getopt_long(argc, argv, "", options, NULL)) != -1;)
        if (!take(&o, c)) {
            fputs(help, stderr);
            return 2;
        }
    handle(SIGTERM, on_term);
    handle(SIGINT, on_term);
    handle(SIGUSR1, on_usr1);
    for (size_t i = 0; argc > 1 && i < sizeof commands / sizeof *commands; i++)
        if (strcmp(argv[1], commands[i].name) == 0)
            return commands[i].run(&o);
    fputs(help, stderr);
    return 2;
}
