#include "config/config_check.h"

#include <criterion/criterion.h>
#include <stdio.h>

/* The messages are asserted in test_config.c, through whole files; here the borders. */
static bool passes(const char *set)
{
    struct config c;
    struct err e;

    if (config_load(&c, NULL, &set, 1, &e) != ERR_OK)
        return false;
    config_free(&c);
    return true;
}

Test(config_check, borders_are_where_the_messages_say)
{
    cr_expect(passes("batch.max_jobs=1024"));
    cr_expect_not(passes("batch.max_jobs=1025"));
    cr_expect(passes("kafka.session_timeout_ms=299999"));
    cr_expect_not(passes("kafka.session_timeout_ms=300000"));
    cr_expect(passes("delivery.revoke_timeout_ms=299999"));
    cr_expect_not(passes("delivery.revoke_timeout_ms=300000"));
    cr_expect(passes("limits.max_text_bytes=10485760"));
    cr_expect_not(passes("limits.max_text_bytes=10485761"));
    cr_expect(passes("delivery.max_in_flight_mb=10"));
    cr_expect_not(passes("delivery.max_in_flight_mb=9"));
    cr_expect(passes("retry.backoff_ms=10000"));
    cr_expect_not(passes("retry.backoff_ms=10001"));
    cr_expect(passes("engine.block_tokens=256"));
    cr_expect_not(passes("engine.block_tokens=48"));
    cr_expect(passes("wire.registry_url=https://registry:8081"));
    cr_expect_not(passes("wire.registry_url=registry:8081"));
}

Test(config_check, servers_are_hosts_and_ports)
{
    static const char *const good[] = {"localhost",    "localhost:1", "h:65535",    "a:1,b:2",
                                       " a:1 , b:2 ,", "[::1]",       "[::1]:9092", "SASL_SSL://h:9093"};
    static const char *const bad[] = {"",
                                      ",,,",
                                      " ",
                                      "a b",
                                      "h:0",
                                      "h:65536",
                                      "h:99999",
                                      "h:4294976388",
                                      "h:",
                                      ":9092",
                                      "h:port",
                                      "a:1,b:x",
                                      "http://h:1/path",
                                      "[::1]9092"};
    char set[128];

    for (size_t i = 0; i < sizeof good / sizeof good[0]; i++) {
        snprintf(set, sizeof set, "kafka.bootstrap_servers=%s", good[i]);
        cr_expect(passes(set), "%s", good[i]);
    }
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        snprintf(set, sizeof set, "kafka.bootstrap_servers=%s", bad[i]);
        cr_expect_not(passes(set), "%s", bad[i]);
    }
}
