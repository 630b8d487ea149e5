/* checkkern: every kernel against the reference.
 *
 * usage: checkkern --cuda [--quick] [--verbose] [--only TEXT] [--part I/N]
 *        checkkern --cuda --sweep [--quick] [--only TEXT]   times every kernel of a product, as JSON
 *        checkkern --cpu [--level NAME] [--time]
 *        checkkern --shapes [--verbose] [--only TEXT]   the default precision of the CPU on tests/shapes.list
 */
#include "check_cpu.h"
#include "check_cuda.h"

#include <stdio.h>
#include <string.h>

int main(int argc, char **argv) {
    const char *only = NULL, *level = NULL;
    struct check_part part = {0, 1};
    bool cpu = false, cuda = false, shapes = false, quick = false, sweep = false, timed = false;
    for (int i = 1; i < argc; i++) {
        if (!strcmp(argv[i], "--cuda")) cuda = true;
        else if (!strcmp(argv[i], "--cpu")) cpu = true;
        else if (!strcmp(argv[i], "--shapes")) shapes = true;
        else if (!strcmp(argv[i], "--time")) timed = true;
        else if (!strcmp(argv[i], "--level") && i + 1 < argc) level = argv[++i];
        else if (!strcmp(argv[i], "--sweep")) sweep = true;
        else if (!strcmp(argv[i], "--quick")) quick = true;
        else if (!strcmp(argv[i], "--verbose")) check_verbose = true;
        else if (!strcmp(argv[i], "--only") && i + 1 < argc) only = argv[++i];
        else if (!strcmp(argv[i], "--part") && i + 1 < argc && sscanf(argv[i + 1], "%d/%d", &part.i, &part.n) == 2 && part.n > 0) i++;
        else cpu = cuda = shapes = false, i = argc;
    }
    if (cpu) return check_cpu(level, timed);
    if (shapes) return check_cpu_shapes(only);
    if (cuda && sweep) return sweep_cuda(only, quick);
    if (cuda) return check_cuda(only, quick, part);
    printf(
        "usage: checkkern --cuda [--quick] [--sweep] [--verbose] [--only TEXT] [--part I/N]\n       checkkern --cpu [--level NAME] [--time]\n"
        "       checkkern --shapes [--verbose] [--only TEXT]\n");
    return 2;
}
