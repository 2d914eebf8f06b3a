/* own_schema.h -- the texts of schemas/, compiled into the binary. */
#ifndef WIRE_OWN_SCHEMA_H
#define WIRE_OWN_SCHEMA_H

#include "wire/job.h"

enum own_schema { OWN_REQUEST, OWN_RESULT, OWN_DEAD_LETTER, OWN_SCHEMAS };

struct text own_schema_text(enum own_schema which); /* the file, byte for byte */
const char *own_schema_file(enum own_schema which); /* "schemas/translation_request.avsc" */

#endif
