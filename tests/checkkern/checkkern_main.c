/* checkkern: every kernel against the reference.
 *
 * usage: checkkern --cuda [--quick] [--verbose] [--only TEXT]
 */
#include "check_cuda.h"

#include <stdio.h>
#include <string.h>

int main(int argc, char **argv) {
    const char *only = NULL;
    bool cuda = false, quick = false;
    for (int i = 1; i < argc; i++) {
        if (!strcmp(argv[i], "--cuda")) cuda = true;
        else if (!strcmp(argv[i], "--quick")) quick = true;
        else if (!strcmp(argv[i], "--verbose")) check_verbose = true;
        else if (!strcmp(argv[i], "--only") && i + 1 < argc) only = argv[++i];
        else cuda = false, i = argc;
    }
    if (cuda) return check_cuda(only, quick);
    printf("usage: checkkern --cuda [--quick] [--verbose] [--only TEXT]\n");
    return 2;
}
