/* registry_stub.h -- a schema registry for the workers of a run: every id is the schema of the Avro jobs.
 *
 *   ANSWERS --registry_stub_set()--> HANGS (takes requests and says nothing) | FAILS (503) --> ANSWERS
 *
 * Thread: its own one serves; set at any time. */
#ifndef CHAOS_REGISTRY_STUB_H
#define CHAOS_REGISTRY_STUB_H

enum registry_mode { REGISTRY_ANSWERS, REGISTRY_HANGS, REGISTRY_FAILS };

struct registry_stub;

struct registry_stub *registry_stub_open(void);    /* on a free loopback port; NULL: it cannot */
void registry_stub_close(struct registry_stub *s); /* NULL is fine */
int registry_stub_port(const struct registry_stub *s);
void registry_stub_set(struct registry_stub *s, enum registry_mode mode);
int registry_stub_requests(struct registry_stub *s); /* so far */

#endif
