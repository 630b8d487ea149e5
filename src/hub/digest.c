/* Choosing the SHA-256 of this processor, and hashing files with it. */
#include "hub/digest.h"

#include "base/arena.h"
#include "base/sha256_kern.h"
#include "os/cpu.h"
#include "os/os.h"

enum { PIECE_BYTES = 256 << 10 };

void digest_begin(struct sha256 *s) {
    sha256_init(s);
    if (sha256_blocks_fast && cpu_flags() & CPU_SHA) s->blocks = sha256_blocks_fast;
}

void digest_end(struct sha256 *s, char out_hex[65]) {
    unsigned char digest[32];
    sha256_final(s, digest);
    sha256_hex(digest, out_hex);
}

int digest_file(const char *path, char out_hex[65], struct watch *watch, struct err *err) {
    struct os_file *f = NULL;
    struct sha256 s;
    uint64_t size = 0;
    TRY(os_file_open(path, OS_READ, &f, err));
    char *piece = mem_alloc(PIECE_BYTES);
    int code = os_file_size(f, &size, err);
    digest_begin(&s);
    for (uint64_t at = 0; at < size && code == ERR_OK;) {
        size_t n = size - at < PIECE_BYTES ? (size_t)(size - at) : PIECE_BYTES;
        code = os_file_read_at(f, piece, n, at, err);
        if (code == ERR_OK) sha256_update(&s, piece, n);
        if (code == ERR_OK) code = watch_add(watch, n, err);
        at += n;
    }
    mem_free(piece);
    os_file_close(f);
    if (code == ERR_OK) digest_end(&s, out_hex);
    return code;
}
