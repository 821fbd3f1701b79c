#include "proto/common/word_list.h"

#include <stdio.h>

/* The longest word that is compared; a longer one cannot be a near miss of a key. */
enum { WORD_MAX = 32, ERRORS_MAX = 2 };

static unsigned word_list_min3(unsigned a, unsigned b, unsigned c)
{
    unsigned least = a < b ? a : b;
    return least < c ? least : c;
}

/* Letters added, left out, replaced, or swapped with their neighbour. */
static unsigned word_list_edit_distance(const char *a, const char *b)
{
    size_t n = strnlen(a, WORD_MAX + 1), m = strnlen(b, WORD_MAX + 1);
    unsigned rows[3][WORD_MAX + 1]; /* rows[i % 3][j]: the first i letters of a, j of b */

    if (n > WORD_MAX || m > WORD_MAX)
        return WORD_MAX;
    for (unsigned j = 0; j <= m; j++)
        rows[0][j] = j;
    for (size_t i = 1; i <= n; i++) {
        const unsigned *before = rows[(i - 1) % 3], *two_before = rows[(i + 1) % 3];
        unsigned *row = rows[i % 3];

        row[0] = (unsigned)i;
        for (size_t j = 1; j <= m; j++) {
            row[j] = word_list_min3(before[j] + 1, row[j - 1] + 1,
                                    before[j - 1] + (a[i - 1] != b[j - 1]));
            if (i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1] &&
                two_before[j - 2] + 1 < row[j])
                row[j] = two_before[j - 2] + 1;
        }
    }
    return rows[n % 3][m];
}

/* Two letters at least: one begins too many words. */
static bool word_list_begins_so(const char *written, const char *word)
{
    size_t len = strlen(written);

    return len >= 2 && strncmp(written, word, len) == 0;
}

void word_list_begin(struct word_list *list, const char *written)
{
    *list = (struct word_list){.written = written, .distance = ERRORS_MAX + 1};
}

void word_list_add(struct word_list *list, const char *word)
{
    size_t used = strlen(list->text);
    snprintf(list->text + used, sizeof list->text - used, "%s%s", used ? ", " : "", word);

    /* Two errors in a word of two letters are another word. */
    unsigned distance =
        word_list_begins_so(list->written, word) ? 1 : word_list_edit_distance(list->written, word);
    if (distance < list->distance && distance < strlen(word) && distance < strlen(list->written)) {
        list->best = word;
        list->distance = distance;
    }
}
