#include "model/model_files.h"
#include "tests/support/st_writer.h"

#include <criterion/criterion.h>
#include <string.h>

static enum err_code open_and_close(const char *dir, struct err *e)
{
    struct model_files *f;
    enum err_code rc = model_files_open(&f, dir, e);

    cr_assert((rc == ERR_OK) == (f != NULL));
    model_files_close(f);
    return rc;
}

static void write_one(const char *dir, const char *file, const char *tensor)
{
    struct st_writer *w = st_writer_open();

    st_writer_add(w, tensor, "BF16", 4, 0, 1, 0);
    st_writer_save(w, dir, file);
}

Test(model_files, one_table_over_all_shards)
{
    const char *dir = st_folder("files"), *path;
    struct model_files *f;
    size_t at = 0;

    write_one(dir, "x.safetensors", "a");
    write_one(dir, "y.safetensors", "b");
    st_write_text(dir, "model.safetensors.index.json",
                  "{\"weight_map\":{\"a\":\"x.safetensors\",\"b\":\"y.safetensors\"}}");
    cr_assert_eq(model_files_open(&f, dir, NULL), ERR_OK);
    cr_assert_not_null(model_files_take(f, "b", &path));
    cr_assert(strstr(path, "y.safetensors"));
    cr_assert_null(model_files_take(f, "c", &path));
    const struct st_tensor *left = model_files_left_over(f, &at, &path);
    cr_assert_not_null(left);
    cr_assert_str_eq(left->name, "a");
    cr_assert_null(model_files_left_over(f, &at, &path));
    model_files_close(f);
    st_remove(dir);
}

Test(model_files, the_single_file_wins_over_an_index)
{
    const char *dir = st_folder("files"), *path;
    struct model_files *f;

    write_one(dir, "model.safetensors", "a");
    st_write_text(dir, "model.safetensors.index.json", "not even JSON");
    cr_assert_eq(model_files_open(&f, dir, NULL), ERR_OK);
    cr_assert_not_null(model_files_take(f, "a", &path));
    model_files_close(f);
    st_remove(dir);
}

Test(model_files, an_index_that_does_not_fit_its_shards_is_refused)
{
    static const struct {
        const char *index;
        enum err_code code;
        const char *message;
    } cases[] = {
        {"{", ERR_MODEL, "not valid JSON"},
        {"{}", ERR_MODEL, "model.safetensors.index.json: weight_map: expected an object, found nothing"},
        {"{\"weight_map\":[]}", ERR_MODEL, "weight_map: expected an object, found array"},
        {"{\"weight_map\":{\"a\":1}}", ERR_MODEL, "weight_map: 'a': expected a file name, found integer"},
        {"{\"weight_map\":{\"a\":\"../x.safetensors\"}}", ERR_MODEL, "'../x.safetensors' is not the name of a file in"},
        {"{\"weight_map\":{\"a\":\"..\"}}", ERR_MODEL, "'..' is not the name of a file in"},
        {"{\"weight_map\":{\"a\":\"\"}}", ERR_MODEL, "'' is not the name of a file in"},
        {"{\"weight_map\":{\"a\":\"gone.safetensors\"}}", ERR_IO, "gone.safetensors: No such file"},
        {"{\"weight_map\":{\"a\":\"x.safetensors\",\"c\":\"x.safetensors\"}}", ERR_MODEL,
         "weight_map: tensor 'c' is not in x.safetensors"},
        {"{\"weight_map\":{\"a\":\"y.safetensors\",\"b\":\"x.safetensors\"}}", ERR_MODEL,
         "tensor 'a' is not in y.safetensors"},
        {"{\"weight_map\":{\"a\":\"x.safetensors\",\"q\":\"two.safetensors\"}}", ERR_MODEL, "tensor 'a' is in "},
        {"{\"weight_map\":{\"q\":\"two.safetensors\"}}", ERR_MODEL,
         "two.safetensors: tensor 'a' is not in the weight_map of model.safetensors.index.json"},
    };
    const char *dir = st_folder("files");
    struct st_writer *w = st_writer_open();

    write_one(dir, "x.safetensors", "a");
    write_one(dir, "y.safetensors", "b");
    st_writer_add(w, "a", "BF16", 4, 0, 1, 0);
    st_writer_add(w, "q", "BF16", 4, 0, 1, 0);
    st_writer_save(w, dir, "two.safetensors");
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct err e = {0};

        st_write_text(dir, "model.safetensors.index.json", cases[i].index);
        cr_expect_eq(open_and_close(dir, &e), cases[i].code, "%s: %s", cases[i].index, e.msg);
        cr_expect(strstr(e.msg, cases[i].message), "%s\n gave: %s\n want: %s", cases[i].index, e.msg, cases[i].message);
        cr_expect(strstr(e.msg, "model.safetensors.index.json") || strstr(e.msg, "tensor 'a' is in "), "%s", e.msg);
    }
    st_remove(dir);
}

Test(model_files, a_folder_without_weights_is_named)
{
    const char *dir = st_folder("files");
    struct err e;

    cr_assert_eq(open_and_close(dir, &e), ERR_IO);
    cr_assert(strstr(e.msg, "no model.safetensors and no model.safetensors.index.json there"), "%s", e.msg);
    st_remove(dir);
}
