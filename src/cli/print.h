/* print.h -- text that must stay on its line of the output. */
#ifndef CLI_PRINT_H
#define CLI_PRINT_H

#include <stddef.h>

/* Writes s[0..n) to standard output; line ends, tabs and other controls become blanks.  s NULL writes nothing. */
void print_on_line(const char *s, size_t n);

#endif
