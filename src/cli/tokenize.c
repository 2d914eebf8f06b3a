/* tokenize: lines to ids as JSON arrays, and back. */
#include "cli/cli.h"
#include "cli/lines.h"

#include <fcntl.h>
#include <getopt.h>
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "text/tokenizer.h"

enum { MAX_LINE_BYTES = 16 << 20 };

static const char help[] =
    "usage: translate-worker tokenize --model DIR [--decode] [FILE...]\n"
    "\n"
    "Reads lines (standard input without FILE) and prints the ids of each as a JSON array, one a line.  Special\n"
    "tokens that a line spells are text.\n"
    "\n"
    "  --model DIR   folder with tokenizer.json\n"
    "  --decode      the other way: JSON arrays of ids to text, special tokens left out\n"
    "  --help        this text\n"
    "\n"
    "Exit codes: 0 all lines done; 1 a line could not be (a message for each); 2 command line; 4 no usable "
    "tokenizer.\n";

struct work {
    struct tokenizer *tokenizer;
    struct encoder *encoder;
    int32_t *ids;
    size_t cap;
};

static enum err_code encode_line(struct work *w, const char *line, size_t len, struct err *e)
{
    enum err_code rc;
    size_t n;

    if (3 * len + 1 > w->cap) {
        free(w->ids);
        w->cap = 3 * len + 1;
        w->ids = malloc(w->cap * sizeof *w->ids);
        if (!w->ids) {
            w->cap = 0;
            return err_set(e, ERR_NOMEM, ERR_SKIP, "out of memory for a line of %zu bytes", len);
        }
    }
    rc = encoder_encode(w->encoder, line, len, w->ids, w->cap, &n, e);
    if (rc != ERR_OK)
        return rc;
    putchar('[');
    for (size_t i = 0; i < n; i++)
        printf("%s%d", i ? ", " : "", w->ids[i]);
    puts("]");
    return ERR_OK;
}

static enum err_code decode_line(struct work *w, const char *line, size_t len, struct err *e)
{
    size_t cap = 3 * tokenizer_max_token_bytes(w->tokenizer) + 3, i;
    char *out = malloc(cap);
    enum err_code rc = ERR_OK;
    struct decoder d;
    json_t *ids, *id;

    if (!out)
        return err_set(e, ERR_NOMEM, ERR_SKIP, "out of memory");
    ids = json_loadb(line, len, 0, NULL);
    if (!json_is_array(ids))
        rc = err_set(e, ERR_INVALID_FIELD, ERR_SKIP, "not a JSON array");
    json_array_foreach(ids, i, id)
    {
        if (rc == ERR_OK && (!json_is_integer(id) || json_integer_value(id) < 0 ||
                             json_integer_value(id) >= tokenizer_size(w->tokenizer)))
            rc = err_set(e, ERR_INVALID_FIELD, ERR_SKIP, "[%zu]: ids are integers from 0 to %d", i,
                         tokenizer_size(w->tokenizer) - 1);
    }
    decoder_init(&d, w->tokenizer);
    json_array_foreach(ids, i, id)
    {
        if (rc == ERR_OK)
            fwrite(out, 1, (size_t)decoder_push(&d, (int)json_integer_value(id), out, cap), stdout);
    }
    if (rc == ERR_OK) {
        fwrite(out, 1, (size_t)decoder_finish(&d, out, cap), stdout);
        putchar('\n');
    }
    json_decref(ids);
    free(out);
    return rc;
}

/* false = some line failed */
static bool convert(struct work *w, int fd, const char *name, bool decode)
{
    struct err e = {.code = ERR_OK};
    struct lines lines;
    size_t number = 0;
    bool ok = true;

    enum err_code rc = lines_open(&lines, fd, MAX_LINE_BYTES, &e);
    lines.keeps_cr = true;
    while (rc == ERR_OK && !lines_are_over(&lines)) {
        const char *line;
        size_t len;

        rc = lines_next(&lines, true, &line, &len, &e);
        if (rc == ERR_OK && !line)
            break;
        number++;
        if (rc == ERR_OK)
            rc = (decode ? decode_line : encode_line)(w, line, len, &e);
        if (rc != ERR_OK && e.act == ERR_SKIP) {
            fprintf(stderr, "translate-worker: %s: line %zu: %s\n", name, number, e.msg);
            ok = false;
            rc = ERR_OK;
        }
    }
    lines_close(&lines);
    if (rc != ERR_OK) {
        fprintf(stderr, "translate-worker: %s: %s\n", name, e.msg);
        ok = false;
    }
    return ok;
}

static bool convert_files(struct work *w, int n, char **names, bool decode)
{
    bool ok = true;

    if (n == 0)
        return convert(w, STDIN_FILENO, "standard input", decode);
    for (int i = 0; i < n; i++) {
        int fd = open(names[i], O_RDONLY | O_CLOEXEC);
        if (fd < 0) {
            fprintf(stderr, "translate-worker: %s: %m\n", names[i]);
            ok = false;
            continue;
        }
        ok = convert(w, fd, names[i], decode) && ok;
        close(fd);
    }
    return ok;
}

int cli_tokenize(int argc, char **argv)
{
    static const struct option options[] = {{"model", required_argument, NULL, 'm'},
                                            {"decode", no_argument, NULL, 'd'},
                                            {"help", no_argument, NULL, 'h'},
                                            {NULL, 0, NULL, 0}};
    struct work w = {NULL, NULL, NULL, 0};
    const char *dir = NULL;
    bool decode = false, ok;
    char path[4096];
    struct err e;
    int c;

    while ((c = getopt_long(argc, argv, "m:dh", options, NULL)) != -1) {
        if (c == 'h') {
            fputs(help, stdout);
            return EXIT_OK;
        }
        if (c == '?')
            return EXIT_USAGE;
        if (c == 'm')
            dir = optarg;
        else
            decode = true;
    }
    if (!dir || (size_t)snprintf(path, sizeof path, "%s/tokenizer.json", dir) >= sizeof path) {
        fputs("translate-worker: tokenize needs --model DIR (see tokenize --help)\n", stderr);
        return EXIT_USAGE;
    }
    if (tokenizer_open(&w.tokenizer, path, &e) != ERR_OK || encoder_open(&w.encoder, w.tokenizer, &e) != ERR_OK) {
        fprintf(stderr, "translate-worker: %s\n", e.msg);
        tokenizer_close(w.tokenizer);
        return EXIT_MODEL;
    }
    ok = convert_files(&w, argc - optind, argv + optind, decode);
    if (fflush(stdout) != 0) {
        perror("translate-worker: standard output");
        ok = false;
    }
    free(w.ids);
    encoder_close(w.encoder);
    tokenizer_close(w.tokenizer);
    return ok ? EXIT_OK : EXIT_FAILED;
}
