#include "wire/schema_store.h"

#include "base/clock.h"
#include "base/file.h"
#include "base/hash.h"
#include "wire/fetcher.h"
#include "wire/own_schema.h"

#include <dirent.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { ANSWER_MS = 100 }; /* how long a job's thread waits for an answer; most come in a few */

struct entry {
    int32_t id;
    bool pinned;           /* of the folder: there may be no registry to learn it from again */
    struct schema *schema; /* NULL = refused, why says for what */
    struct err why;
    uint64_t used; /* the store's turn counter at the last use */
};

struct absent {
    int32_t id;
    int64_t first_ns, asked_ns;
};

struct schema_store {
    struct schema *own[OWN_SCHEMAS];
    struct fetcher *fetcher; /* NULL = no registry */
    struct entry *entries;
    size_t n_entries;
    uint64_t turn;
    struct absent absent[SCHEMA_STORE_MAX_ABSENT];
    size_t n_absent;
    struct schema_store_times times;
    /* while the registry is away */
    int64_t away_until_ns;
    int64_t backoff_ms;
    struct err away;
};

static struct entry *find_entry(struct schema_store *s, int32_t id)
{
    for (size_t i = 0; i < s->n_entries; i++)
        if (s->entries[i].id == id)
            return &s->entries[i];
    return NULL;
}

/* A free entry, or the least recently used one; NULL when all are pinned. */
static struct entry *take_entry(struct schema_store *s)
{
    struct entry *oldest = NULL;

    if (s->n_entries < SCHEMA_STORE_MAX)
        return &s->entries[s->n_entries++];
    for (size_t i = 0; i < s->n_entries; i++)
        if (!s->entries[i].pinned && (!oldest || s->entries[i].used < oldest->used))
            oldest = &s->entries[i];
    if (oldest)
        schema_close(oldest->schema);
    return oldest;
}

/* Parses text and remembers it, or that it is refused. */
static enum err_code learn(struct schema_store *s, int32_t id, const char *text, size_t n, bool pinned,
                           struct entry **out, struct err *e)
{
    struct schema *schema;
    struct err why = {0};
    enum err_code rc = schema_open(&schema, text, n, &why);
    struct entry *entry;

    *out = NULL;
    if (rc == ERR_UNKNOWN_SCHEMA) {
        err_prefix(&why, "schema %d", (int)id);
    } else if (rc != ERR_OK) {
        if (e)
            *e = why;
        return rc;
    }
    entry = take_entry(s);
    if (!entry) {
        schema_close(schema);
        return err_set(e, ERR_CONFIG, ERR_STOP, "more than %d schemas", SCHEMA_STORE_MAX);
    }
    *entry = (struct entry){.id = id, .pinned = pinned, .schema = schema, .why = why, .used = ++s->turn};
    *out = entry;
    return ERR_OK;
}

static void refuse(struct schema_store *s, int32_t id, const struct err *why)
{
    struct entry *entry = take_entry(s);

    if (entry)
        *entry = (struct entry){.id = id, .why = *why, .used = ++s->turn};
}

static enum err_code use(struct schema_store *s, struct entry *entry, const struct schema **out, struct err *e)
{
    entry->used = ++s->turn;
    if (!entry->schema) {
        if (e)
            *e = entry->why;
        return entry->why.code;
    }
    *out = entry->schema;
    return ERR_OK;
}

static void forget_absent(struct schema_store *s, int32_t id)
{
    for (size_t i = 0; i < s->n_absent; i++) {
        if (s->absent[i].id == id) {
            s->absent[i] = s->absent[--s->n_absent];
            return;
        }
    }
}

static struct absent *find_absent(struct schema_store *s, int32_t id)
{
    for (size_t i = 0; i < s->n_absent; i++)
        if (s->absent[i].id == id)
            return &s->absent[i];
    return NULL;
}

/* One that has been given up and not asked for in a while makes way for another. */
static struct absent *find_old_absent(struct schema_store *s, int64_t now)
{
    int64_t old = 2 * s->times.absent_ms * NS_PER_MS;

    for (size_t i = 0; i < s->n_absent; i++)
        if (now - s->absent[i].asked_ns >= old)
            return &s->absent[i];
    return NULL;
}

static bool has_room_for_absent(struct schema_store *s, int64_t now)
{
    return s->n_absent < SCHEMA_STORE_MAX_ABSENT || find_old_absent(s, now);
}

static struct absent *take_absent(struct schema_store *s, int64_t now)
{
    return s->n_absent < SCHEMA_STORE_MAX_ABSENT ? &s->absent[s->n_absent++] : find_old_absent(s, now);
}

static enum err_code answer_absent(const struct schema_store *s, const struct absent *a, int64_t now, struct err *e)
{
    bool given_up = now - a->first_ns >= s->times.absent_ms * NS_PER_MS;

    return err_set(e, ERR_UNKNOWN_SCHEMA, given_up ? ERR_SKIP : ERR_RETRY, "schema %d: unknown to the registry (404)%s",
                   (int)a->id, given_up ? "" : ", to be asked again");
}

/* While it is young an unknown id is asked again each fifth of the time, then once in that time. */
static bool is_due(const struct schema_store *s, const struct absent *a, int64_t now)
{
    int64_t whole = s->times.absent_ms * NS_PER_MS;

    return now - a->asked_ns >= (a->asked_ns - a->first_ns >= whole ? whole : whole / 5);
}

static void note_away(struct schema_store *s, const struct err *why, int64_t now)
{
    int64_t ms = s->backoff_ms ? s->backoff_ms * 2 : s->times.backoff_ms;

    s->backoff_ms = ms < s->times.backoff_max_ms ? ms : s->times.backoff_max_ms;
    /* between half and all of it: workers that lost the registry together do not come back together */
    uint64_t jitter = hash_bytes(&now, sizeof now, (uintptr_t)s) % (uint64_t)(s->backoff_ms / 2 + 1);
    s->away_until_ns = now + (s->backoff_ms - (int64_t)jitter) * NS_PER_MS;
    s->away = *why;
}

/* Remembers what came of a question. */
static void take_answer(struct schema_store *s, struct fetched *f)
{
    int64_t now = clock_mono_ns();
    struct entry *entry;
    struct absent *a;

    if (f->rc == ERR_REGISTRY || f->rc == ERR_NOMEM) {
        note_away(s, &f->why, now);
        return;
    }
    s->backoff_ms = 0;
    s->away_until_ns = 0;
    if (f->rc == ERR_UNKNOWN_SCHEMA && f->why.act == ERR_RETRY) {
        a = find_absent(s, f->id);
        if (!a && (a = take_absent(s, now)) != NULL)
            *a = (struct absent){.id = f->id, .first_ns = now};
        if (a)
            a->asked_ns = now;
        return;
    }
    forget_absent(s, f->id);
    if (f->rc != ERR_OK)
        refuse(s, f->id, &f->why);
    else if (learn(s, f->id, f->text, f->n, false, &entry, &f->why) != ERR_OK)
        note_away(s, &f->why, now); /* no memory, or no room: later */
}

static void settle(struct schema_store *s, int wait_ms)
{
    struct fetched f;

    if (fetcher_take(s->fetcher, wait_ms, &f)) {
        take_answer(s, &f);
        free(f.text);
    }
}

/* What is known about id by now; false = nothing. */
static bool answer(struct schema_store *s, int32_t id, const struct schema **out, enum err_code *rc, struct err *e)
{
    int64_t now = clock_mono_ns();
    struct entry *entry = find_entry(s, id);
    struct absent *a = find_absent(s, id);

    if (entry) {
        *rc = use(s, entry, out, e);
    } else if (a && !is_due(s, a, now)) {
        *rc = answer_absent(s, a, now, e);
    } else if (now < s->away_until_ns) {
        if (e)
            *e = s->away;
        *rc = s->away.code;
    } else {
        return false;
    }
    return true;
}

static enum err_code ask(struct schema_store *s, int32_t id, const struct schema **out, struct err *e)
{
    enum err_code rc;

    settle(s, 0);
    if (answer(s, id, out, &rc, e))
        return rc;
    if (!find_absent(s, id) && !has_room_for_absent(s, clock_mono_ns()))
        return err_set(e, ERR_UNKNOWN_SCHEMA, ERR_RETRY, "schema %d: %d other unknown ids are being asked for", (int)id,
                       SCHEMA_STORE_MAX_ABSENT);
    if (fetcher_start(s->fetcher, id)) {
        settle(s, ANSWER_MS);
        if (answer(s, id, out, &rc, e))
            return rc;
    }
    return err_set(e, ERR_REGISTRY, ERR_RETRY, "schema %d: the registry has not answered yet", (int)id);
}

enum err_code schema_store_by_id(struct schema_store *s, int32_t id, const struct schema **out, struct err *e)
{
    struct entry *entry = find_entry(s, id);

    *out = NULL;
    if (entry)
        return use(s, entry, out, e);
    if (id < 0)
        return err_set(e, ERR_UNKNOWN_SCHEMA, ERR_SKIP, "schema id %d is not one a registry gives: unframed data?",
                       (int)id);
    if (!s->fetcher)
        return err_set(e, ERR_UNKNOWN_SCHEMA, ERR_SKIP, "schema %d: no registry is configured and no %d.avsc is there",
                       (int)id, (int)id);
    return ask(s, id, out, e);
}

enum err_code schema_store_by_fingerprint(struct schema_store *s, uint64_t fingerprint, const struct schema **out,
                                          struct err *e)
{
    *out = NULL;
    for (size_t i = 0; i < OWN_SCHEMAS; i++) {
        if (s->own[i]->fingerprint == fingerprint) {
            *out = s->own[i];
            return ERR_OK;
        }
    }
    for (size_t i = 0; i < s->n_entries; i++)
        if (s->entries[i].schema && s->entries[i].schema->fingerprint == fingerprint)
            return use(s, &s->entries[i], out, e);
    return err_set(e, ERR_UNKNOWN_SCHEMA, ERR_SKIP, "fingerprint %016llx is of no schema known here",
                   (unsigned long long)fingerprint);
}

enum err_code schema_store_add(struct schema_store *s, int32_t id, const char *text, size_t n, struct err *e)
{
    struct entry *entry;
    enum err_code rc;

    if (find_entry(s, id))
        return err_set(e, ERR_CONFIG, ERR_STOP, "schema %d is already known", (int)id);
    rc = learn(s, id, text, n, true, &entry, e);
    if (rc == ERR_OK && entry && !entry->schema) {
        if (e)
            *e = entry->why;
        rc = entry->why.code;
    }
    return rc;
}

/* "7.avsc" gives 7; false for any other name */
static bool id_of_name(const char *name, int32_t *id)
{
    char *end;
    long v;

    errno = 0;
    v = strtol(name, &end, 10);
    if (end == name || errno || v < 0 || v > INT32_MAX || strcmp(end, ".avsc") != 0 || name[0] < '0' || name[0] > '9')
        return false;
    *id = (int32_t)v;
    return true;
}

static enum err_code read_file(struct schema_store *s, const char *folder, const char *name, int32_t id, char *buf,
                               struct err *e)
{
    char path[4096];
    enum err_code rc;
    size_t n;
    FILE *f;

    if (snprintf(path, sizeof path, "%s/%s", folder, name) >= (int)sizeof path)
        return err_set(e, ERR_CONFIG, ERR_STOP, "wire.registry_schemas: %.100s: path too long", folder);
    if (file_open(&f, path, NULL, NULL, e) != ERR_OK) {
        if (e)
            e->code = ERR_CONFIG;
        return ERR_CONFIG;
    }
    n = fread(buf, 1, SCHEMA_MAX_TEXT + 1, f);
    if (ferror(f))
        rc = err_set(e, ERR_CONFIG, ERR_STOP, "%s: cannot be read", path);
    else if ((rc = schema_store_add(s, id, buf, n, e)) != ERR_OK) {
        err_prefix(e, "%s", path);
        if (e) {
            e->code = rc = ERR_CONFIG;
            e->act = ERR_STOP;
        }
    }
    fclose(f);
    return rc;
}

static enum err_code read_folder(struct schema_store *s, const char *folder, struct err *e)
{
    char *buf = malloc(SCHEMA_MAX_TEXT + 1);
    enum err_code rc = ERR_OK;
    struct dirent *d;
    int32_t id;
    DIR *dir;

    if (!buf)
        return err_set(e, ERR_NOMEM, ERR_STOP, "schema store: out of memory");
    dir = opendir(folder);
    if (!dir)
        rc = err_set(e, ERR_CONFIG, ERR_STOP, "wire.registry_schemas: %s: %s", folder, strerror(errno));
    while (dir && rc == ERR_OK && (d = readdir(dir)) != NULL)
        if (id_of_name(d->d_name, &id))
            rc = read_file(s, folder, d->d_name, id, buf, e);
    if (dir)
        closedir(dir);
    free(buf);
    return rc;
}

enum err_code schema_store_open(struct schema_store **out, const char *url, const char *folder, int timeout_ms,
                                struct err *e)
{
    struct schema_store *s = calloc(1, sizeof *s);
    enum err_code rc = ERR_OK;

    *out = NULL;
    if (!s || !(s->entries = calloc(SCHEMA_STORE_MAX, sizeof *s->entries))) {
        free(s);
        return err_set(e, ERR_NOMEM, ERR_STOP, "schema store: out of memory");
    }
    s->times = (struct schema_store_times){.absent_ms = 5000, .backoff_ms = 500, .backoff_max_ms = 10000};
    for (int i = 0; i < OWN_SCHEMAS; i++) {
        struct text t = own_schema_text(i);
        if ((rc = schema_open(&s->own[i], t.s, t.n, e)) != ERR_OK) {
            err_prefix(e, "%s", own_schema_file(i));
            goto out;
        }
    }
    if (url && url[0] && (rc = fetcher_open(&s->fetcher, url, timeout_ms, e)) != ERR_OK)
        goto out;
    if (folder && folder[0] && (rc = read_folder(s, folder, e)) != ERR_OK)
        goto out;
    *out = s;
    s = NULL; /* moved to the caller */
out:
    schema_store_close(s);
    return rc;
}

void schema_store_close(struct schema_store *s)
{
    if (!s)
        return;
    fetcher_close(s->fetcher);
    for (int i = 0; i < OWN_SCHEMAS; i++)
        schema_close(s->own[i]);
    for (size_t i = 0; i < s->n_entries; i++)
        schema_close(s->entries[i].schema);
    free(s->entries);
    free(s);
}

void schema_store_set_times(struct schema_store *s, struct schema_store_times t)
{
    s->times = t;
}
