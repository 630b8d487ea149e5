/* Files from elsewhere under rules of a test: remote_probe ADDRESS MAX_BYTES LIMIT_MS ALLOWED... writes the file. Of IPv4 addresses those in ALLOWED may
 * be asked, and http is taken: the rules are the caller's in the program, too, and the servers of a test are on this machine. */
#include "api/remote.h"

#include <stdio.h>
#include <stdlib.h>

static char **allowed;

static bool may_connect(const unsigned char *address, int n) {
    char text[16];
    if (n != 4) return false;
    snprintf(text, sizeof text, "%d.%d.%d.%d", address[0], address[1], address[2], address[3]);
    for (char **a = allowed; *a; a++)
        if (strcmp(*a, text) == 0) return true;
    return false;
}

int main(int argc, char **argv) {
    struct arena a = {0};
    struct err err;
    struct str file;
    if (argc < 4) return 2;
    allowed = argv + 4;
    struct remote_rules rules = {
        .may_connect = may_connect, .takes_http = true, .max_bytes = (size_t)atoi(argv[2]), .limit_ms = atoi(argv[3])};
    if (remote_fetch(&a, &rules, str_of(argv[1]), &file, &err)) {
        fprintf(stderr, "%s\n", err.msg);
        return 1;
    }
    fwrite(file.p, 1, file.n, stdout);
    arena_free(&a);
    return 0;
}
