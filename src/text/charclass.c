#include "text/charclass.h"

#include <utf8proc.h>

struct range {
    uint32_t first, last;
    uint8_t class;
};

/* Assigned by Unicode 15.1 and 16.0: what a library of Unicode 15.0 does not know yet. */
static const struct range added[] = {
    {0x0897, 0x0897, CH_M},   {0x1B4E, 0x1B4F, CH_P},   {0x1B7F, 0x1B7F, CH_P},   {0x1C89, 0x1C8A, CH_L},
    {0x2427, 0x2429, CH_S},   {0x2FFC, 0x2FFF, CH_S},   {0x31E4, 0x31E5, CH_S},   {0x31EF, 0x31EF, CH_S},
    {0xA7CB, 0xA7CD, CH_L},   {0xA7DA, 0xA7DC, CH_L},   {0x105C0, 0x105F3, CH_L}, {0x10D40, 0x10D49, CH_N},
    {0x10D4A, 0x10D65, CH_L}, {0x10D69, 0x10D6D, CH_M}, {0x10D6E, 0x10D6E, CH_P}, {0x10D6F, 0x10D85, CH_L},
    {0x10D8E, 0x10D8F, CH_S}, {0x10EC2, 0x10EC4, CH_L}, {0x10EFC, 0x10EFC, CH_M}, {0x11380, 0x11389, CH_L},
    {0x1138B, 0x1138B, CH_L}, {0x1138E, 0x1138E, CH_L}, {0x11390, 0x113B5, CH_L}, {0x113B7, 0x113B7, CH_L},
    {0x113B8, 0x113C0, CH_M}, {0x113C2, 0x113C2, CH_M}, {0x113C5, 0x113C5, CH_M}, {0x113C7, 0x113CA, CH_M},
    {0x113CC, 0x113D0, CH_M}, {0x113D1, 0x113D1, CH_L}, {0x113D2, 0x113D2, CH_M}, {0x113D3, 0x113D3, CH_L},
    {0x113D4, 0x113D5, CH_P}, {0x113D7, 0x113D8, CH_P}, {0x113E1, 0x113E2, CH_M}, {0x116D0, 0x116E3, CH_N},
    {0x11BC0, 0x11BE0, CH_L}, {0x11BE1, 0x11BE1, CH_P}, {0x11BF0, 0x11BF9, CH_N}, {0x11F5A, 0x11F5A, CH_M},
    {0x13460, 0x143FA, CH_L}, {0x16100, 0x1611D, CH_L}, {0x1611E, 0x1612F, CH_M}, {0x16130, 0x16139, CH_N},
    {0x16D40, 0x16D6C, CH_L}, {0x16D6D, 0x16D6F, CH_P}, {0x16D70, 0x16D79, CH_N}, {0x18CFF, 0x18CFF, CH_L},
    {0x1CC00, 0x1CCEF, CH_S}, {0x1CCF0, 0x1CCF9, CH_N}, {0x1CD00, 0x1CEB3, CH_S}, {0x1E5D0, 0x1E5ED, CH_L},
    {0x1E5EE, 0x1E5EF, CH_M}, {0x1E5F0, 0x1E5F0, CH_L}, {0x1E5F1, 0x1E5FA, CH_N}, {0x1E5FF, 0x1E5FF, CH_P},
    {0x1F8B2, 0x1F8BB, CH_S}, {0x1F8C0, 0x1F8C1, CH_S}, {0x1FA89, 0x1FA89, CH_S}, {0x1FA8F, 0x1FA8F, CH_S},
    {0x1FABE, 0x1FABE, CH_S}, {0x1FAC6, 0x1FAC6, CH_S}, {0x1FADC, 0x1FADC, CH_S}, {0x1FADF, 0x1FADF, CH_S},
    {0x1FAE9, 0x1FAE9, CH_S}, {0x1FBCB, 0x1FBEF, CH_S}, {0x2EBF0, 0x2EE5D, CH_L},
};

static unsigned added_class(uint32_t cp)
{
    size_t lo = 0, hi = sizeof added / sizeof *added;

    while (lo < hi) {
        size_t mid = (lo + hi) / 2;
        if (cp > added[mid].last)
            lo = mid + 1;
        else if (cp < added[mid].first)
            hi = mid;
        else
            return added[mid].class;
    }
    return 0;
}

unsigned charclass_of(uint32_t cp)
{
    unsigned cjk = (cp >= 0x3040 && cp <= 0x30FF) || (cp >= 0x4E00 && cp <= 0x9FA5) ? CH_CJK : 0;

    switch (utf8proc_category((utf8proc_int32_t)cp)) {
    case UTF8PROC_CATEGORY_LU:
    case UTF8PROC_CATEGORY_LL:
    case UTF8PROC_CATEGORY_LT:
    case UTF8PROC_CATEGORY_LM:
    case UTF8PROC_CATEGORY_LO: return CH_L | cjk;
    case UTF8PROC_CATEGORY_MN:
    case UTF8PROC_CATEGORY_MC:
    case UTF8PROC_CATEGORY_ME: return CH_M | cjk;
    case UTF8PROC_CATEGORY_ND:
    case UTF8PROC_CATEGORY_NL:
    case UTF8PROC_CATEGORY_NO: return CH_N | cjk;
    case UTF8PROC_CATEGORY_PC:
    case UTF8PROC_CATEGORY_PD:
    case UTF8PROC_CATEGORY_PS:
    case UTF8PROC_CATEGORY_PE:
    case UTF8PROC_CATEGORY_PI:
    case UTF8PROC_CATEGORY_PF:
    case UTF8PROC_CATEGORY_PO: return CH_P | cjk;
    case UTF8PROC_CATEGORY_SM:
    case UTF8PROC_CATEGORY_SC:
    case UTF8PROC_CATEGORY_SK:
    case UTF8PROC_CATEGORY_SO: return CH_S | cjk;
    case UTF8PROC_CATEGORY_ZS:
    case UTF8PROC_CATEGORY_ZL:
    case UTF8PROC_CATEGORY_ZP: return CH_SPACE;
    case UTF8PROC_CATEGORY_CC:
        if (cp == '\r' || cp == '\n')
            return CH_SPACE | CH_NEWLINE;
        return (cp >= 9 && cp <= 13) || cp == 0x85 ? CH_SPACE : 0;
    case UTF8PROC_CATEGORY_CN: return added_class(cp) | cjk;
    default: return cjk;
    }
}

void charclass_init(struct charclass *cc)
{
    for (uint32_t cp = 0; cp < 0x10000; cp++)
        cc->bmp[cp] = (uint8_t)charclass_of(cp);
}
