#include "cli/print.h"

#include <stdio.h>

void print_on_line(const char *s, size_t n)
{
    for (size_t i = 0; s && i < n; i++) {
        unsigned char c = (unsigned char)s[i];
        putchar(c < 0x20 || c == 0x7F ? ' ' : c);
    }
}
