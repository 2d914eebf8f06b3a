/* That a group loses its offsets with their topic shows on a real broker alone: tests/integration/test_topics.sh. */
#include "kafka/confirm.h"

#include "base/clock.h"
#include "tests/support/kafka_case.h"

#include <criterion/criterion.h>
#include <stdatomic.h>

enum { OFFSET_FETCH = 9, FRESH_MS = 10000 };

struct rig {
    struct kafka_case kc;
    rd_kafka_t *rk;
    struct assignment *mine;
    struct confirm *confirm;
};

/* The group has stored 5 for partition 0 and nothing for 1; the consumer believes what is given. */
static void rig_open(struct rig *r, int64_t believed_0, int64_t believed_1)
{
    rd_kafka_conf_t *conf = rd_kafka_conf_new();
    char why[200];
    struct err e;

    kafka_case_open(&r->kc, 2);
    kafka_case_commit(&r->kc, 0, 5, "");
    rd_kafka_conf_set(conf, "bootstrap.servers", r->kc.bootstrap, why, sizeof why);
    rd_kafka_conf_set(conf, "group.id", r->kc.k.group_id, why, sizeof why);
    r->rk = rd_kafka_new(RD_KAFKA_CONSUMER, conf, why, sizeof why);
    cr_assert_not_null(r->rk, "%s", why);
    cr_assert_eq(assignment_open(&r->mine, 100, &e), ERR_OK);
    for (int i = 0; i < 2; i++) {
        cr_assert_eq(assignment_add(r->mine, i, rd_kafka_queue_new(r->rk), &e), ERR_OK);
        atomic_store(&assignment_find(r->mine, i)->committed, i == 0 ? believed_0 : believed_1);
    }
    cr_assert_eq(confirm_open(&r->confirm, r->rk, r->kc.k.request_topic, r->mine, FRESH_MS, &e), ERR_OK);
}

static void rig_close(struct rig *r)
{
    confirm_close(r->confirm);
    assignment_close(r->mine);
    rd_kafka_destroy(r->rk);
    kafka_case_close(&r->kc);
}

static bool is_gone(const struct rig *r, int partition)
{
    const struct partition *p = assignment_find(r->mine, partition);

    cr_assert_eq(p->gone, p->lost_ns != 0);
    return p->gone;
}

Test(confirm, an_offset_that_the_group_has_is_well_whatever_it_is, .timeout = 30)
{
    struct rig r;

    rig_open(&r, 3, -1);
    confirm_ask(r.confirm);
    cr_assert_not(is_gone(&r, 0));
    cr_assert_not(is_gone(&r, 1), "nothing was stored for it");
    rig_close(&r);
}

Test(confirm, an_offset_that_the_group_has_no_more_is_lost, .timeout = 30)
{
    struct rig r;

    rig_open(&r, 5, 7);
    confirm_ask(r.confirm);
    cr_assert_not(is_gone(&r, 0));
    cr_assert(is_gone(&r, 1));
    rig_close(&r);
}

Test(confirm, without_an_answer_nothing_is_lost_and_the_wait_has_an_end, .timeout = 30)
{
    struct rig r;

    rig_open(&r, 5, 7);
    rd_kafka_mock_broker_set_rtt(r.kc.mock, 1, 3 * CONFIRM_MS);
    int64_t t0 = clock_mono_ns();
    confirm_ask(r.confirm);
    cr_assert_lt(clock_mono_ns() - t0, 2 * CONFIRM_MS * NS_PER_MS);
    cr_assert_not(is_gone(&r, 0));
    cr_assert_not(is_gone(&r, 1));
    rig_close(&r);
}

Test(confirm, a_partition_that_the_broker_refuses_to_tell_of_is_not_lost, .timeout = 30)
{
    struct rig r;

    rig_open(&r, 5, 7);
    rd_kafka_mock_push_request_errors(r.kc.mock, OFFSET_FETCH, 1, RD_KAFKA_RESP_ERR_GROUP_AUTHORIZATION_FAILED);
    confirm_ask(r.confirm);
    cr_assert_not(is_gone(&r, 1));
    confirm_fresh(r.confirm);
    confirm_ahead(r.confirm, true);
    cr_assert_not(is_gone(&r, 1), "not asked again so soon");
    confirm_ask(r.confirm);
    cr_assert(is_gone(&r, 1));
    rig_close(&r);
}
