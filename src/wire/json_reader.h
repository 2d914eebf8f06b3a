/* json_reader.h -- a JSON object as a flat tree, whose texts lie where they were read.
 *
 *   json_read_usual()     the object of a usual message: few values, nothing escaped, short numbers.  Without a copy or an
 *                         allocation, and without a word on what it does not take.
 *   json_read_tree()      any tree of jansson's, which is what takes the rest and says what is wrong with it
 *
 * Nodes stand in the order of the text: a container's first child is the node behind it, its last child ends at `end`.
 * Owns:   nothing; the nodes and the text are the caller's. */
#ifndef WIRE_JSON_READER_H
#define WIRE_JSON_READER_H

#include "wire/job.h"

#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { JSON_USUAL_NODES = 64 };

struct json_node {
    json_type type;
    struct text key;  /* of an object's member */
    struct text text; /* JSON_STRING */
    int64_t integer;
    double real;
    size_t end;  /* index of the node after it and all in it */
    size_t size; /* children */
};

/* false: not that usual, or not JSON at all.  Takes nothing that jansson with JSON_REJECT_DUPLICATES refuses, and reads
 * the same values.  s[0..n) is valid UTF-8. */
bool json_read_usual(struct json_node nodes[JSON_USUAL_NODES], const char *s, size_t n);

/* Nodes that json_read_tree() needs. */
size_t json_count_tree(const json_t *root);
void json_read_tree(struct json_node *nodes, json_t *root); /* root must outlive the nodes */

/* Child of nodes[object] with that key, or NULL. */
const struct json_node *json_member(const struct json_node *nodes, const struct json_node *object, const char *key);

#endif
