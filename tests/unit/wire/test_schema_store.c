#include "wire/schema_store.h"

#include "base/clock.h"
#include "tests/support/http_stub.h"
#include "wire/own_schema.h"

#include <criterion/criterion.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static const char good[] =
    "{\"type\":\"record\",\"name\":\"R\",\"fields\":[{\"name\":\"job_id\",\"type\":\"string\"}]}";
static const char recursive[] =
    "{\"type\":\"record\",\"name\":\"R\",\"fields\":[{\"name\":\"r\",\"type\":[\"null\",\"R\"]}]}";

static struct schema_store *open_store(const char *url, int timeout_ms)
{
    struct schema_store *s;
    struct err e;

    cr_assert_eq(schema_store_open(&s, url, NULL, timeout_ms, &e), ERR_OK, "%s", e.msg);
    return s;
}

static void wait_ms(int ms)
{
    poll(NULL, 0, ms); /* what is tested is a span of time itself */
}

Test(schema_store, ours_are_known_by_the_fingerprints_that_fastavro_computes)
{
    static const uint64_t fingerprints[OWN_SCHEMAS] = {
        [OWN_REQUEST] = 0xea5532c83d576799, [OWN_RESULT] = 0x3382e3e1af338740, [OWN_DEAD_LETTER] = 0xdcd08f78c2442e10};
    struct schema_store *s = open_store(NULL, 1000);
    const struct schema *found;
    struct err e;

    for (int i = 0; i < OWN_SCHEMAS; i++) {
        cr_assert_eq(schema_store_by_fingerprint(s, fingerprints[i], &found, &e), ERR_OK, "%s: %s", own_schema_file(i),
                     e.msg);
        cr_assert_eq(found->fingerprint, fingerprints[i]);
    }
    cr_assert_eq(schema_store_by_fingerprint(s, 1, &found, &e), ERR_UNKNOWN_SCHEMA);
    cr_assert_eq(e.act, ERR_SKIP);
    cr_assert_null(found);
    schema_store_close(s);
}

Test(schema_store, without_a_registry_an_unknown_id_is_final)
{
    struct schema_store *s = open_store("", 1000);
    const struct schema *found;
    struct err e;

    cr_assert_eq(schema_store_by_id(s, 7, &found, &e), ERR_UNKNOWN_SCHEMA);
    cr_assert_eq(e.act, ERR_SKIP);
    cr_assert_eq(schema_store_by_id(s, -7, &found, &e), ERR_UNKNOWN_SCHEMA);
    cr_assert_eq(schema_store_add(s, 7, good, strlen(good), &e), ERR_OK);
    cr_assert_eq(schema_store_by_id(s, 7, &found, &e), ERR_OK);
    cr_assert_not_null(found);
    cr_assert_eq(schema_store_add(s, 7, good, strlen(good), &e), ERR_CONFIG, "twice");
    schema_store_close(s);
}

static void write_file(const char *folder, const char *name, const char *text)
{
    char path[256];

    snprintf(path, sizeof path, "%s/%s", folder, name);
    FILE *f = fopen(path, "w");
    cr_assert(f);
    fputs(text, f);
    fclose(f);
}

Test(schema_store, a_folder_makes_ids_known)
{
    char folder[] = "/tmp/schemas-XXXXXX", path[64];
    struct schema_store *s;
    const struct schema *found;
    struct err e;

    cr_assert(mkdtemp(folder));
    write_file(folder, "12.avsc", good);
    write_file(folder, "README", "no schema");
    write_file(folder, "x12.avsc", "no schema");
    cr_assert_eq(schema_store_open(&s, NULL, folder, 1000, &e), ERR_OK, "%s", e.msg);
    cr_assert_eq(schema_store_by_id(s, 12, &found, &e), ERR_OK);
    schema_store_close(s);

    write_file(folder, "13.avsc", recursive);
    cr_assert_eq(schema_store_open(&s, NULL, folder, 1000, &e), ERR_CONFIG);
    cr_assert_eq(e.act, ERR_STOP);
    cr_assert(strstr(e.msg, "13.avsc") && strstr(e.msg, "recursive"), "%s", e.msg);
    for (int i = 0; i < 4; i++) {
        static const char *const names[] = {"12.avsc", "13.avsc", "README", "x12.avsc"};
        snprintf(path, sizeof path, "%s/%s", folder, names[i]);
        unlink(path);
    }
    rmdir(folder);
    cr_assert_eq(schema_store_open(&s, NULL, folder, 1000, &e), ERR_CONFIG, "no such folder");
}

/* case E2: one replica of the registry does not have it yet */
Test(schema_store, an_id_unknown_at_first_is_asked_again_and_then_known)
{
    struct http_stub *stub = http_stub_open();
    struct schema_store *s = open_store(http_stub_url(stub), 2000);
    const struct schema *found;
    struct err e;

    schema_store_set_times(s, (struct schema_store_times){.absent_ms = 1000, .backoff_ms = 50, .backoff_max_ms = 100});
    cr_assert_eq(schema_store_by_id(s, 7, &found, &e), ERR_UNKNOWN_SCHEMA);
    cr_assert_eq(e.act, ERR_RETRY);
    for (int i = 0; i < 1000; i++)
        cr_assert_eq(schema_store_by_id(s, 7, &found, &e), ERR_UNKNOWN_SCHEMA);
    cr_assert_leq(http_stub_requests(stub), 2, "a thousand jobs asked %d times", http_stub_requests(stub));
    http_stub_answer_schema(stub, good, "");
    wait_ms(250);
    cr_assert_eq(schema_store_by_id(s, 7, &found, &e), ERR_OK, "%s", e.msg);
    int asked = http_stub_requests(stub);
    cr_assert_eq(schema_store_by_id(s, 7, &found, &e), ERR_OK);
    cr_assert_eq(http_stub_requests(stub), asked, "known now");
    schema_store_close(s);
    http_stub_close(stub);
}

Test(schema_store, an_id_that_stays_unknown_is_given_up_and_asked_again_later)
{
    struct http_stub *stub = http_stub_open();
    struct schema_store *s = open_store(http_stub_url(stub), 2000);
    const struct schema *found;
    struct err e;

    schema_store_set_times(s, (struct schema_store_times){.absent_ms = 100, .backoff_ms = 50, .backoff_max_ms = 100});
    cr_assert_eq(schema_store_by_id(s, 7, &found, &e), ERR_UNKNOWN_SCHEMA);
    cr_assert_eq(e.act, ERR_RETRY);
    wait_ms(120);
    cr_assert_eq(schema_store_by_id(s, 7, &found, &e), ERR_UNKNOWN_SCHEMA);
    cr_assert_eq(e.act, ERR_SKIP);
    int asked = http_stub_requests(stub);
    cr_assert_eq(schema_store_by_id(s, 7, &found, &e), ERR_UNKNOWN_SCHEMA);
    cr_assert_eq(http_stub_requests(stub), asked);
    http_stub_answer_schema(stub, good, "");
    wait_ms(120);
    cr_assert_eq(schema_store_by_id(s, 7, &found, &e), ERR_OK, "%s", e.msg);
    schema_store_close(s);
    http_stub_close(stub);
}

Test(schema_store, unknown_ids_are_bounded)
{
    struct http_stub *stub = http_stub_open();
    struct schema_store *s = open_store(http_stub_url(stub), 2000);
    const struct schema *found;
    struct err e;

    for (int32_t id = 0; id < 2 * SCHEMA_STORE_MAX_ABSENT; id++) {
        cr_assert_eq(schema_store_by_id(s, id, &found, &e), ERR_UNKNOWN_SCHEMA);
        cr_assert_eq(e.act, ERR_RETRY);
    }
    cr_assert_eq(http_stub_requests(stub), SCHEMA_STORE_MAX_ABSENT);
    schema_store_close(s);
    http_stub_close(stub);
}

/* case E4 */
Test(schema_store, an_outage_keeps_what_is_known_and_recovers)
{
    struct http_stub *stub = http_stub_open();
    struct schema_store *s = open_store(http_stub_url(stub), 2000);
    const struct schema *found;
    struct err e;

    schema_store_set_times(s, (struct schema_store_times){.absent_ms = 1000, .backoff_ms = 100, .backoff_max_ms = 200});
    http_stub_answer_schema(stub, good, "");
    cr_assert_eq(schema_store_by_id(s, 7, &found, &e), ERR_OK);
    http_stub_answer(stub, 500, "", 0);
    int asked = http_stub_requests(stub);
    for (int i = 0; i < 1000; i++) {
        cr_assert_eq(schema_store_by_id(s, 8 + i, &found, &e), ERR_REGISTRY);
        cr_assert_eq(e.act, ERR_RETRY);
        cr_assert_eq(schema_store_by_id(s, 7, &found, &e), ERR_OK);
    }
    cr_assert_leq(http_stub_requests(stub) - asked, 3, "asked %d times", http_stub_requests(stub) - asked);
    http_stub_answer_schema(stub, good, "");
    wait_ms(210);
    cr_assert_eq(schema_store_by_id(s, 8, &found, &e), ERR_OK, "%s", e.msg);
    schema_store_close(s);
    http_stub_close(stub);
}

Test(schema_store, a_silent_registry_costs_one_time_limit_for_a_thousand_jobs)
{
    int port, fd = http_stub_open_silent(&port);
    const struct schema *found;
    struct schema_store *s;
    char url[64];
    struct err e;

    snprintf(url, sizeof url, "http://127.0.0.1:%d", port);
    s = open_store(url, 200);
    schema_store_set_times(s,
                           (struct schema_store_times){.absent_ms = 1000, .backoff_ms = 5000, .backoff_max_ms = 9000});
    int64_t t0 = clock_mono_ns();
    for (int i = 0; i < 1000; i++) {
        cr_assert_eq(schema_store_by_id(s, i, &found, &e), ERR_REGISTRY);
        cr_assert_eq(e.act, ERR_RETRY);
    }
    cr_assert_leq(clock_mono_ns() - t0, 1500 * NS_PER_MS);
    schema_store_close(s);
    close(fd);
}

Test(schema_store, a_slow_answer_is_kept_for_who_asks_again)
{
    struct http_stub *stub = http_stub_open();
    struct schema_store *s = open_store(http_stub_url(stub), 10000);
    const struct schema *found;
    struct err e;

    cr_assert_eq(schema_store_add(s, 5, good, strlen(good), &e), ERR_OK);
    http_stub_answer_schema(stub, good, "");
    http_stub_hold(stub, true);
    int64_t t0 = clock_mono_ns();
    for (int i = 0; i < 1000; i++) {
        cr_assert_eq(schema_store_by_id(s, 7 + i % 2, &found, &e), ERR_REGISTRY);
        cr_assert_eq(e.act, ERR_RETRY);
        cr_assert_eq(schema_store_by_id(s, 5, &found, &e), ERR_OK);
    }
    cr_assert_lt(clock_mono_ns() - t0, NS_PER_S, "one job waits a little, no other");
    cr_assert_leq(http_stub_requests(stub), 1);
    http_stub_hold(stub, false);
    for (int i = 0; i < 500 && schema_store_by_id(s, 7, &found, &e) != ERR_OK; i++)
        wait_ms(10);
    cr_assert_not_null(found, "%s", e.msg);
    cr_assert_eq(http_stub_requests(stub), 1);
    cr_assert_eq(schema_store_by_id(s, 8, &found, &e), ERR_OK, "%s", e.msg);
    schema_store_close(s);
    http_stub_close(stub);
}

Test(schema_store, a_refused_schema_is_remembered_with_its_reason)
{
    struct http_stub *stub = http_stub_open();
    struct schema_store *s = open_store(http_stub_url(stub), 2000);
    const struct schema *found;
    struct err e;

    http_stub_answer_schema(stub, recursive, "");
    for (int i = 0; i < 3; i++) {
        cr_assert_eq(schema_store_by_id(s, 7, &found, &e), ERR_UNKNOWN_SCHEMA);
        cr_assert_eq(e.act, ERR_SKIP);
        cr_assert(strstr(e.msg, "schema 7") && strstr(e.msg, "recursive"), "%s", e.msg);
    }
    http_stub_answer_schema(stub, "syntax", ",\"schemaType\":\"JSON\"");
    for (int i = 0; i < 3; i++) {
        cr_assert_eq(schema_store_by_id(s, 8, &found, &e), ERR_UNKNOWN_SCHEMA);
        cr_assert_eq(e.act, ERR_SKIP);
        cr_assert(strstr(e.msg, "schemaType JSON"), "%s", e.msg);
    }
    cr_assert_eq(http_stub_requests(stub), 2);
    schema_store_close(s);
    http_stub_close(stub);
}

Test(schema_store, is_bounded_and_forgets_the_least_recently_used)
{
    struct http_stub *stub = http_stub_open();
    struct schema_store *s = open_store(http_stub_url(stub), 2000);
    const struct schema *found;
    struct err e;

    cr_assert_eq(schema_store_add(s, 5000, good, strlen(good), &e), ERR_OK);
    http_stub_answer_schema(stub, good, "");
    for (int32_t id = 0; id < SCHEMA_STORE_MAX + 10; id++) {
        cr_assert_eq(schema_store_by_id(s, id, &found, &e), ERR_OK);
        cr_assert_eq(schema_store_by_id(s, 0, &found, &e), ERR_OK);
    }
    int asked = http_stub_requests(stub);
    cr_assert_eq(asked, SCHEMA_STORE_MAX + 10);
    cr_assert_eq(schema_store_by_id(s, 0, &found, &e), ERR_OK, "used all the time");
    cr_assert_eq(schema_store_by_id(s, 5000, &found, &e), ERR_OK, "pinned");
    cr_assert_eq(http_stub_requests(stub), asked);
    cr_assert_eq(schema_store_by_id(s, 1, &found, &e), ERR_OK);
    cr_assert_eq(http_stub_requests(stub), asked + 1, "was forgotten, is asked for again");
    schema_store_close(s);
    http_stub_close(stub);
}
