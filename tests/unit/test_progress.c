/* cli/progress: a bar fits into its row, whatever the terminal's width. */
#include "unit.h"

#include "cli/progress.h"

static void bars_fit(void) {
    static const struct {
        const char *unit;
        uint64_t done, total;
        double seconds;
        int width;
        const char *line;
    } rows[] = {
        {NULL, 500000000, 2000000000, 0, 79, " 25% [#######.......................] 0.50 of 2.00 GB"},
        {NULL, 500000000, 2000000000, 10, 79, " 25% [#######.......................] 0.50 of 2.00 GB, 30 s left"},
        {NULL, 500000000, 2000000000, 10, 49, " 25% [###............] 0.50 of 2.00 GB, 30 s left"},
        {NULL, 500000000, 2000000000, 10, 39, " 25% [#....] 0.50 of 2.00 GB, 30 s left"},
        {NULL, 500000000, 2000000000, 10, 38, " 25% 0.50 of 2.00 GB, 30 s left"},
        {NULL, 500000000, 2000000000, 10, 19, " 25% 0.50 of 2.00 G"},
        {NULL, 0, 0, 0, 3, "100"},
        {"tokens of the prompt", 613, 613, 0, 59, "100% [####################] 613 of 613 tokens of the prompt"},
        {"runs", 1, 2, 0, 0, ""},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        struct sb out = {0};
        progress_line(&out, &(struct progress){.unit = rows[i].unit}, rows[i].done, rows[i].total, rows[i].seconds, rows[i].width);
        CHECK_STR(sb_str(&out), str_of(rows[i].line));
        CHECK((int)out.n <= rows[i].width);
        sb_free(&out);
    }
}

const struct unit_suite unit_progress = {"progress", (const struct unit_case[]){{"bars_fit", bars_fit}, {0}}};
