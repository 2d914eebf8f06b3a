/* evaluation_tsv FILE: the cases of an evaluation.json as lines "eval-N TAB language TAB source TAB output". */
#include "base/json.h"

#include <stdio.h>

int main(int argc, char **argv)
{
    struct err e;
    json_t *o, *c;
    size_t i;

    if (argc != 2 || json_load_path(&o, argv[1], (size_t)1 << 26, &e) != ERR_OK) {
        fprintf(stderr, "evaluation_tsv: %s\n", argc != 2 ? "one FILE is needed" : e.msg);
        return 1;
    }
    json_array_foreach(json_object_get(o, "cases"), i, c)
        printf("eval-%zu\t%s\t%s\t%s\n", i, json_string_value(json_object_get(c, "lang")),
               json_string_value(json_object_get(c, "source")), json_string_value(json_object_get(c, "output")));
    json_decref(o);
    return 0;
}
