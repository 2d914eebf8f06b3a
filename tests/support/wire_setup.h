/* wire_setup.h -- a store, a codec and an arena for tests, and values as records. */
#ifndef SUPPORT_WIRE_SETUP_H
#define SUPPORT_WIRE_SETUP_H

#include "base/arena.h"
#include "wire/codec.h"
#include "wire/schema_store.h"

struct wire_setup {
    struct schema_store *store;
    struct codec *codec;
    struct arena arena;
    struct job job;
    struct result result;
    enum encoding enc;
    struct err e;
};

void wire_setup_open(struct wire_setup *w); /* no registry, default limits */
void wire_setup_close(struct wire_setup *w);

struct record wire_record(const void *value, size_t n);

/* Decode into w->job or w->result, after a reset of the arena; the error is in w->e. */
enum err_code wire_decode(struct wire_setup *w, const void *value, size_t n);
enum err_code wire_decode_result(struct wire_setup *w, const void *value, size_t n);
/* w->job as JSON, NUL-terminated, in the arena. */
const char *wire_job_json(struct wire_setup *w);

/* Bytes of a hex string; returns how many. */
size_t wire_from_hex(const char *hex, unsigned char *out, size_t cap);

bool text_is(struct text t, const char *s);

#endif
