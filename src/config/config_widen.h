/* config_widen.h -- libconfig before 1.6 cuts an integer that needs more than 32 bits to its lower half without a word
 * (port = 4294967297 would be port 1), unless it ends in L. */
#ifndef CONFIG_CONFIG_WIDEN_H
#define CONFIG_CONFIG_WIDEN_H

/* A copy of text, line for line, in which every such integer has its L; strings and comments are left alone.  The caller
 * frees it; NULL without memory. */
char *config_widen(const char *text);

#endif
