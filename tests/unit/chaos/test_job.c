#include "tests/chaos/job.h"
#include "tests/support/wire_setup.h"

#include <criterion/criterion.h>
#include <stdio.h>
#include <string.h>

static const struct numbered a_job = {.number = 4711, .key = 17, .sequence = 42, .kind = JOB_LONG};

Test(job, comes_back_from_its_request)
{
    char key[32], value[1024];
    struct numbered j;

    for (int kind = 0; kind < JOB_KINDS; kind++) {
        struct numbered in = a_job;
        in.kind = (enum job_kind)kind;
        job_write(&in, key, sizeof key, value, sizeof value);
        cr_expect_str_eq(key, "k17");
        cr_expect(job_read(&j, value, strlen(value)), "%s", value);
        cr_expect(j.number == 4711 && j.key == 17 && j.sequence == 42 && (int)j.kind == kind);
    }
}

Test(job, comes_back_from_avro_and_is_refused_when_it_is_cut_short)
{
    unsigned char value[1024];
    char key[32];
    struct numbered j;
    size_t n = job_write_avro(&a_job, 77, key, sizeof key, value, sizeof value);

    cr_assert(job_read(&j, value, n));
    cr_expect(j.number == 4711 && j.key == 17 && j.sequence == 42 && j.kind == JOB_LONG);
    cr_expect_eq(value[4], 77);
    for (size_t i = 0; i + 1 < n; i++) /* the last byte only closes the map */
        cr_expect_not(job_read(&j, value, i), "%zu of %zu bytes", i, n);
    value[n - 2]++; /* the sum's last digit */
    cr_expect_not(job_read(&j, value, n));
}

/* The worker's own codec reads it by the schema. */
Test(job, in_avro_is_what_its_schema_says)
{
    struct wire_setup w;
    unsigned char value[1024];
    char key[32];
    size_t n = job_write_avro(&a_job, 5, key, sizeof key, value, sizeof value);

    wire_setup_open(&w);
    cr_assert_eq(schema_store_add(w.store, 5, job_avro_schema, strlen(job_avro_schema), &w.e), ERR_OK, "%s", w.e.msg);
    cr_assert_eq(wire_decode(&w, value, n), ERR_OK, "%s", w.e.msg);
    cr_expect(text_is(w.job.job_id, "4711"));
    cr_expect(text_is(w.job.target_lang, "de"));
    cr_expect_eq(w.job.n_metadata, 4);
    wire_setup_close(&w);
}

Test(job, with_another_ones_metadata_is_refused)
{
    char key[32], value[1024], *at;
    struct numbered j;

    job_write(&a_job, key, sizeof key, value, sizeof value);
    at = strstr(value, "\"sequence\":\"42\"");
    cr_assert(at);
    at[strlen("\"sequence\":\"")] = '5';
    cr_expect_not(job_read(&j, value, strlen(value)));
    cr_expect_not(job_read(&j, "garbage 1 2 3 4", strlen("garbage 1 2 3 4")));
    cr_expect_not(job_read(&j, NULL, 0));
    cr_expect_not(job_read(&j, "{}", 2));
}

static void result(char *out, size_t cap, const char *translation)
{
    char key[32], value[1024];

    job_write(&a_job, key, sizeof key, value, sizeof value);
    snprintf(out, cap, "{\"job_id\":\"4711\",\"status\":\"OK\",\"translation\":%s,%s", translation,
             strstr(value, "\"metadata\""));
}

Test(job, comes_back_from_its_result_with_a_hash_of_the_text)
{
    char one[2048], other[2048];
    struct numbered j;
    uint64_t h1, h2;

    result(one, sizeof one, "\"a\\u0000b\"");
    result(other, sizeof other, "\"a\\u0000c\"");
    cr_expect(job_read_result(&j, &h1, one, strlen(one)), "%s", one);
    cr_expect_eq(j.number, 4711);
    cr_expect(job_read_result(&j, &h2, other, strlen(other)));
    cr_expect_neq(h1, h2);
    result(one, sizeof one, "null");
    cr_expect_not(job_read_result(&j, &h1, one, strlen(one)));
}
