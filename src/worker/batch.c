#include "worker/batch.h"

#include "base/clock.h"

bool batch_has_no_room(const struct batch *b, const struct batch_config *c, int tokens)
{
    return b->tasks.n > 0 && (b->tasks.n >= c->max_jobs || b->tokens + tokens > c->max_tokens);
}

void batch_add(struct batch *b, struct task *t, int64_t now_ns)
{
    if (b->tasks.n == 0)
        b->oldest_ns = now_ns;
    b->tokens += t->request.n_prompt;
    task_list_add(&b->tasks, t);
}

int64_t batch_due_ns(const struct batch *b, const struct batch_config *c)
{
    return b->tasks.n == 0 ? INT64_MAX : b->oldest_ns + c->linger_ms * NS_PER_MS;
}

bool batch_is_due(const struct batch *b, const struct batch_config *c, int64_t now_ns)
{
    return b->tasks.n > 0 && (b->tasks.n >= c->max_jobs || b->tokens >= c->max_tokens || now_ns >= batch_due_ns(b, c));
}

struct task *batch_close(struct batch *b)
{
    struct task *first = b->tasks.first;

    *b = (struct batch){.tokens = 0};
    return first;
}
