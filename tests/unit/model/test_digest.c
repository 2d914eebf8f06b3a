#include "model/digest.h"

#include <criterion/criterion.h>
#include <string.h>

static unsigned char bytes[65536];

static void digest_of(char out[17], const char *name, struct tensor t)
{
    struct digest d = {0};

    digest_tensor(&d, name, &t);
    digest_print(&d, out);
}

Test(digest, sees_name_type_shape_and_the_sampled_bytes)
{
    const struct tensor t = {bytes, 128, 256, DTYPE_BF16};
    const size_t sampled[] = {0, 4095, 32768 - 2048, 32768 + 2047, 65536 - 4096, 65535};
    char a[17], b[17];

    digest_of(a, "x", t);
    cr_assert_eq(strlen(a), 16);
    digest_of(b, "y", t);
    cr_expect_str_neq(a, b);
    digest_of(b, "x", (struct tensor){bytes, 256, 128, DTYPE_BF16});
    cr_expect_str_neq(a, b);
    digest_of(b, "x", (struct tensor){bytes, 128, 256, DTYPE_F16});
    cr_expect_str_neq(a, b);
    for (size_t i = 0; i < sizeof sampled / sizeof *sampled; i++) {
        bytes[sampled[i]] ^= 1;
        digest_of(b, "x", t);
        cr_expect_str_neq(a, b, "byte %zu", sampled[i]);
        bytes[sampled[i]] ^= 1;
    }
    digest_of(b, "x", t);
    cr_expect_str_eq(a, b);
}

Test(digest, small_tensors_are_read_whole)
{
    const struct tensor t = {bytes, 6144, 1, DTYPE_BF16};
    char a[17], b[17];

    digest_of(a, "x", t);
    for (size_t i = 0; i < 12288; i += 61) {
        bytes[i] ^= 0x80;
        digest_of(b, "x", t);
        cr_expect_str_neq(a, b, "byte %zu", i);
        bytes[i] ^= 0x80;
    }
}
