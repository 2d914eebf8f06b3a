#include "wire/own_schema.h"

#include "wire/schema.h"

#include <criterion/criterion.h>
#include <jansson.h>
#include <stdio.h>
#include <string.h>

Test(own_schema, is_the_file_byte_for_byte)
{
    static char buf[1 << 16];

    for (int i = 0; i < OWN_SCHEMAS; i++) {
        struct text t = own_schema_text(i);
        FILE *f = fopen(own_schema_file(i), "rb");
        cr_assert(f, "%s", own_schema_file(i));
        size_t n = fread(buf, 1, sizeof buf, f);
        fclose(f);
        cr_assert_eq(t.n, n, "%s", own_schema_file(i));
        cr_assert_arr_eq(t.s, buf, n);
    }
}

static void check_documented(const json_t *record, const char *file)
{
    const json_t *field;
    size_t i;

    json_array_foreach(json_object_get(record, "fields"), i, field)
        cr_assert(json_is_string(json_object_get(field, "doc")), "%s: field %s has no doc", file,
                  json_string_value(json_object_get(field, "name")));
}

Test(own_schema, every_field_is_documented_and_has_a_default_unless_it_is_required)
{
    static const char required[] = " job_id text target_lang original_topic original_partition original_offset "
                                   "error_code error_message status ";

    for (int i = 0; i < OWN_SCHEMAS; i++) {
        struct text t = own_schema_text(i);
        json_t *root = json_loadb(t.s, t.n, JSON_REJECT_DUPLICATES, NULL), *field;
        size_t k;
        cr_assert(root, "%s", own_schema_file(i));
        check_documented(root, own_schema_file(i));
        json_array_foreach(json_object_get(root, "fields"), k, field)
        {
            char name[64];
            snprintf(name, sizeof name, " %s ", json_string_value(json_object_get(field, "name")));
            cr_assert(json_object_get(field, "default") || strstr(required, name), "%s:%s", own_schema_file(i), name);
        }
        json_decref(root);
    }
}
