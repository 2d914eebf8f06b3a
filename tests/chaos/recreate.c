/* recreate: deletes the topic of the requests and makes it anew at once, faster than any tool with a JVM, so that workers
 * may not notice that it was away. */
#include "tests/chaos/chaos.h"
#include "tests/chaos/kafka.h"

#include "base/clock.h"

#include <stdio.h>

int chaos_recreate(const struct chaos_options *o)
{
    enum { CALL_MS = 10000, LIMIT_S = 30 };
    rd_kafka_t *rk = kafka_new(RD_KAFKA_PRODUCER, kafka_conf(o->bootstrap, NULL));
    int64_t until = clock_mono_ns() + LIMIT_S * NS_PER_S;
    bool made = false;

    if (kafka_delete_topic(rk, o->requests, CALL_MS))
        while (!made && clock_mono_ns() < until) /* its name may be taken for a moment */
            made = kafka_create_topic(rk, o->requests, o->partitions, 1, CALL_MS);
    rd_kafka_destroy(rk);
    return made ? 0 : 1;
}
