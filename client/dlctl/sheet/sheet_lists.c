/* Lists of mappings in a loader's row or an epoch's: lengths, buckets, shares, and what comes
 * later. */
#include "client/dlctl/sheet/sheet.h"

#include <string.h>

/* Lists of mappings that are drawn, too: the chart alone would say nothing to who does not see it.
 */
static const struct sheet_list {
    const char *key, *caption, *label, *value;
} sheet_lists[] = {
    {"lengths", "Samples of the dataset by length, up to this many tokens", "upper", "samples"},
    {"buckets", "Samples of the epoch by bucket, up to this many tokens", "upper", "members"},
    {"mixture", "Shares of a mixture", NULL, NULL},
};

static void sheet_write_list(const struct value *list, FILE *file)
{
    const char *caption = list->key;

    for (size_t i = 0; i < ARRAY_SIZE(sheet_lists); i++) {
        const struct sheet_list *known = &sheet_lists[i];

        if (strcmp(list->key, known->key) != 0)
            continue;
        caption = known->label ? "The same in numbers" : known->caption;
        if (known->label)
            sheet_bars(file, known->caption, list, known->label, known->value);
    }
    sheet_table(file, caption, list, NULL, NULL);
}

void sheet_write_lists(const struct value *row, FILE *file)
{
    for (uint32_t i = 0; i < row->count; i++) {
        const struct value *list = &row->items[i];

        if (list->type == VALUE_ARRAY && list->count > 0 && list->items[0].type == VALUE_MAP)
            sheet_write_list(list, file);
    }
}
