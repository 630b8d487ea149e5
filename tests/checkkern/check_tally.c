/* The counts of checkkern --cpu: a table of what one level has compared so far, by name. */
#include "check_tally.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { SUBJECTS_MAX = 256, NAME_MAX_BYTES = 48, FAILURES_SHOWN = 3 };

static struct {
    char name[NAME_MAX_BYTES];
    int n_compared, n_wrong;
} subjects[SUBJECTS_MAX];
static int n_subjects, n_passed, n_failed;
static const char *level;

void tally_begin(const char *isa) {
    level = isa;
    n_subjects = 0;
}

/* The row of this name, a new one where there is none; most often it is the one that was asked for last. */
static int find(const char *name) {
    static int last;
    if (last < n_subjects && !strcmp(subjects[last].name, name)) return last;
    for (last = 0; last < n_subjects; last++)
        if (!strcmp(subjects[last].name, name)) return last;
    if (n_subjects == SUBJECTS_MAX) {
        printf("FAILED: more kernels and formats than SUBJECTS_MAX\n");
        exit(1);
    }
    snprintf(subjects[last].name, sizeof subjects[last].name, "%s", name);
    subjects[last].n_compared = subjects[last].n_wrong = 0;
    return n_subjects++;
}

void tally_check(bool ok, const char *kernel, const char *format, const char *where, ...) {
    char name[NAME_MAX_BYTES];
    snprintf(name, sizeof name, "%s%s%s", kernel, *format ? " " : "", format);
    int i = find(name);
    subjects[i].n_compared++;
    if (ok || ++subjects[i].n_wrong > FAILURES_SHOWN) return;
    va_list args;
    va_start(args, where);
    printf("FAILED %s: %s: ", level, name);
    vprintf(where, args);
    printf("\n");
    va_end(args);
}

void tally_end(void) {
    int n_wrong = 0, n_compared = 0;
    for (int i = 0; i < n_subjects; i++) {
        n_compared += subjects[i].n_compared;
        n_wrong += subjects[i].n_wrong > 0;
        if (subjects[i].n_wrong)
            printf("FAILED %s: %s: %d of %d comparisons\n", level, subjects[i].name, subjects[i].n_wrong, subjects[i].n_compared);
    }
    printf("%s: %d kernels and formats, %d comparisons: %s\n", level, n_subjects, n_compared,
           n_wrong ? "not as the reference" : "all as the reference");
    n_passed += n_subjects - n_wrong;
    n_failed += n_wrong;
}

int tally_finish(void) {
    printf("%d passed, %d failed\n", n_passed, n_failed);
    return n_failed > 0;
}
