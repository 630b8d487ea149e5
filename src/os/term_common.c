/* What terminals of both systems send for keys: escape sequences. */
#include "os/os_internal.h"

/* What follows ESC [ or ESC O: digits and semicolons, then a letter or ~. */
static uint32_t sequence(int (*next)(void)) {
    static const struct {
        int number;
        char end;
        uint32_t key;
    } keys[] = {{0, 'A', OS_KEY_UP},        {0, 'B', OS_KEY_DOWN},          {0, 'C', OS_KEY_RIGHT},      {0, 'D', OS_KEY_LEFT},
                {0, 'H', OS_KEY_HOME},      {0, 'F', OS_KEY_END},           {1, '~', OS_KEY_HOME},       {7, '~', OS_KEY_HOME},
                {4, '~', OS_KEY_END},       {8, '~', OS_KEY_END},           {3, '~', OS_KEY_DELETE},     {5, 'C', OS_KEY_WORD_RIGHT},
                {5, 'D', OS_KEY_WORD_LEFT}, {200, '~', OS_KEY_PASTE_BEGIN}, {201, '~', OS_KEY_PASTE_END}};
    int number = 0, c;
    while ((c = next()) >= 0) {
        if (c >= '0' && c <= '9') number = number < 1000 ? number * 10 + c - '0' : number;
        else if (c == ';') number = 0;
        else break;
    }
    for (size_t i = 0; i < sizeof keys / sizeof *keys; i++)
        if (c == keys[i].end && (number == keys[i].number || (keys[i].number == 0 && number == 1))) return keys[i].key;
    return OS_KEY_OTHER;
}

uint32_t os_term_escape(int (*next)(void)) {
    int c = next();
    if (c == '[' || c == 'O') return sequence(next);
    return c == 'b' ? OS_KEY_WORD_LEFT : c == 'f' ? OS_KEY_WORD_RIGHT : OS_KEY_OTHER;
}
