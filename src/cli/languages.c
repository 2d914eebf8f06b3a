/* languages: what target_lang and source_lang may be. */
#include "cli/cli.h"
#include "text/language.h"

#include <stdio.h>
#include <string.h>

int cli_languages(int argc, char **argv)
{
    const struct language *l;

    if (argc > 1) {
        bool wants_help = strcmp(argv[1], "--help") == 0 || strcmp(argv[1], "-h") == 0;
        fprintf(wants_help ? stdout : stderr, "usage: translate-worker languages\n\n"
                                              "Lists the languages of the published models: code, English name, "
                                              "Chinese name, tab-separated.\n");
        return wants_help ? EXIT_OK : EXIT_USAGE;
    }
    for (size_t i = 0; (l = language_at(i)); i++)
        printf("%s\t%s\t%s\n", l->code, l->english, l->chinese);
    return EXIT_OK;
}
