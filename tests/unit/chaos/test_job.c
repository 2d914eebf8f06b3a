#include "tests/chaos/job.h"

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
