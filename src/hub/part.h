/* A file on its way: the bytes so far, and a journal of which of them have arrived.
 *
 * (1) The file is cut into chunks. Of each chunk a number of bytes from its start on has arrived; requests fill chunks from there.
 * (2) The journal (PATH.log) is lines of text: first what the file is, then the ETag when it is known, then "chunk bytes" each time a
 *     chunk has grown. It is written after the bytes. A line that a crash cut, and everything after it, counts for nothing.
 * (3) A journal of another file (size, hash) empties both. Nobody but the holder of the folder's lock opens them.
 */
#ifndef MLXCEL_HUB_PART_H
#define MLXCEL_HUB_PART_H

#include "hub/http.h"
#include "hub/hub.h"

#define PART_CHUNK_BYTES (UINT64_C(8) << 20)

struct os_file;

struct part {
    uint64_t size;
    uint32_t n_chunks;
    uint32_t *done; /* [n_chunks] bytes of each that have arrived */
    uint64_t n_done;
    uint32_t front;               /* chunks before this one are whole */
    char etag[HTTP_HEADER_BYTES]; /* "": not known, or not to be relied on */
    struct os_file *data, *log;
    uint64_t log_end;
    const char *path, *log_path; /* in the caller's arena */
    struct str identity;
};

int part_open(struct arena *a, const char *path, const struct hub_file *file, struct part *out, struct err *err);
void part_close(struct part *p);
/* Forgets everything that has arrived. */
int part_reset(struct part *p, struct err *err);
/* Only a strong ETag can be relied on. */
int part_set_etag(struct part *p, const char *etag, struct err *err);
/* A chunk has grown to `bytes`, which are in the file: into the journal with it. */
int part_grow(struct part *p, uint32_t chunk, uint32_t bytes, struct err *err);

static inline uint32_t part_chunk_size(const struct part *p, uint32_t chunk) {
    uint64_t left = p->size - chunk * PART_CHUNK_BYTES;
    return (uint32_t)(left < PART_CHUNK_BYTES ? left : PART_CHUNK_BYTES);
}
/* Bytes from the file's start on that have arrived without a gap. */
uint64_t part_front(struct part *p);

#endif
