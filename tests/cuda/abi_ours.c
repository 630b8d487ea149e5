/* Our side of the comparison, and the program: every size, offset and constant of abi.def and every result code. */
#include "abi.h"
#include "backend/cuda/device/driver_types.h"

#include <stdbool.h>
#include <stdio.h>
#include <string.h>

const struct abi_row abi_ours[] = {
#include "abi_rows.inc"
    {NULL, 0}};

int main(void) {
    int n_passed = 0, n_failed = 0;
    for (int i = 0; abi_ours[i].what && abi_nvidia[0].what; i++) {
        const struct abi_row *a = &abi_ours[i], *b = &abi_nvidia[i];
        bool same = b->what && strcmp(a->what, b->what) == 0 && a->value == b->value;
        if (!same) printf("FAILED %s: ours %lld, NVIDIA's %lld\n", a->what, (long long)a->value, (long long)b->value);
        n_passed += same;
        n_failed += !same;
    }
    if (!abi_nvidia[0].what) printf("skipped: no cuda.h on the machine that built this\n");
    printf("%d passed, %d failed%s\n", n_passed, n_failed, abi_nvidia[0].what ? "" : ", 1 skipped");
    return n_failed ? 1 : 0;
}
