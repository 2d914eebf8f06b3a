#include "wire/own_schema.h"

/* The assembler reads the file; its folder is found from the repository root, where the build runs.  Both gcc's and
 * clang's assemblers know .incbin.  The symbols are local to this file. */
#define EMBED(name, path)                                                                                              \
    extern const char name##_start[], name##_end[];                                                                    \
    __asm__(".pushsection .rodata\n"                                                                                   \
            ".hidden " #name "_start\n.globl " #name "_start\n" #name "_start:\n.incbin \"" path "\"\n"                \
            ".hidden " #name "_end\n.globl " #name "_end\n" #name "_end:\n.byte 0\n"                                   \
            ".popsection\n")

EMBED(own_schema_request, "schemas/translation_request.avsc");
EMBED(own_schema_result, "schemas/translation_result.avsc");
EMBED(own_schema_dead_letter, "schemas/dead_letter.avsc");

static const struct {
    const char *file, *start, *end;
} schemas[OWN_SCHEMAS] = {
    [OWN_REQUEST] = {"schemas/translation_request.avsc", own_schema_request_start, own_schema_request_end},
    [OWN_RESULT] = {"schemas/translation_result.avsc", own_schema_result_start, own_schema_result_end},
    [OWN_DEAD_LETTER] = {"schemas/dead_letter.avsc", own_schema_dead_letter_start, own_schema_dead_letter_end},
};

struct text own_schema_text(enum own_schema which)
{
    return (struct text){schemas[which].start, (size_t)(schemas[which].end - schemas[which].start)};
}

const char *own_schema_file(enum own_schema which)
{
    return schemas[which].file;
}
