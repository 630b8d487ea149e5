/* Partial files and their journals. */
#include "hub/part.h"

#include "os/os.h"

enum { LOG_BYTES_MAX = 256 << 20 };

static int write_line(struct part *p, struct str line, struct err *err) {
    TRY(os_file_write_at(p->log, line.p, line.n, p->log_end, err));
    p->log_end += line.n;
    return ERR_OK;
}

/* A file that is empty is left alone: ext4 writes all of a file that was cut to nothing to the disk when it is closed, and waits for it. */
static int empty(struct os_file *f, struct err *err) {
    uint64_t size;
    TRY(os_file_size(f, &size, err));
    return size ? os_file_truncate(f, 0, err) : ERR_OK;
}

int part_reset(struct part *p, struct err *err) {
    memset(p->done, 0, p->n_chunks * sizeof *p->done);
    p->n_done = 0;
    p->front = 0;
    p->etag[0] = 0;
    p->log_end = 0;
    TRY(os_file_truncate(p->log, 0, err));
    TRY(empty(p->data, err));
    return write_line(p, p->identity, err);
}

/* "etag VALUE" or "CHUNK BYTES"; false: the journal is not to be believed from here on. */
static bool read_line(struct part *p, struct str line, uint64_t data_bytes) {
    int64_t chunk, bytes;
    if (str_starts(line, STR("etag "))) {
        struct str value = str_from(line, 5);
        if (value.n >= sizeof p->etag) return false;
        memcpy(p->etag, value.p, value.n);
        p->etag[value.n] = 0;
        return true;
    }
    size_t blank = str_find_char(line, ' ', 0);
    if (blank == STR_NONE || !str_to_int64(str_sub(line, 0, blank), &chunk) || !str_to_int64(str_from(line, blank + 1), &bytes))
        return false;
    if (chunk < 0 || chunk >= (int64_t)p->n_chunks || bytes < 0 || bytes > (int64_t)part_chunk_size(p, (uint32_t)chunk)) return false;
    if ((uint64_t)chunk * PART_CHUNK_BYTES + (uint64_t)bytes > data_bytes) return false; /* the data did not reach the disk */
    p->done[chunk] = (uint32_t)bytes;
    return true;
}

/* What the journal says, as far as it is whole and about this file. */
static int read_journal(struct arena *a, struct part *p, struct err *err) {
    struct str text, line;
    uint64_t data_bytes;
    TRY(os_file_size(p->data, &data_bytes, err));
    TRY(os_file_load(a, p->log_path, LOG_BYTES_MAX, &text, err));
    if (!str_starts(text, p->identity)) return part_reset(p, err);
    size_t at = p->identity.n;
    for (;;) {
        size_t end = str_find_char(text, '\n', at);
        if (end == STR_NONE) break;
        line = str_sub(text, at, end - at);
        if (!read_line(p, line, data_bytes)) break;
        at = end + 1;
    }
    p->log_end = at;
    for (uint32_t i = 0; i < p->n_chunks; i++) p->n_done += p->done[i];
    return os_file_truncate(p->log, at, err);
}

int part_open(struct arena *a, const char *path, const struct hub_file *file, struct part *out, struct err *err) {
    uint64_t n_chunks = (file->size + PART_CHUNK_BYTES - 1) / PART_CHUNK_BYTES;
    *out = (struct part){.size = file->size, .n_chunks = (uint32_t)n_chunks, .path = path, .log_path = str_fmt(a, "%s.log", path).p};
    out->identity = str_fmt(a, "mlxcel-part 1 %llu %s %.*s\n", (unsigned long long)file->size, file->sha256[0] ? file->sha256 : "-",
                            STR_ARG(file->name));
    out->done = mem_try((size_t)n_chunks * sizeof *out->done + 1);
    int code = out->done ? ERR_OK : err_set(err, ERR_EMEMORY, "%s: no memory for its journal", path);
    if (code == ERR_OK) code = os_file_open(path, OS_UPDATE, &out->data, err);
    if (code == ERR_OK) code = os_file_open(out->log_path, OS_UPDATE, &out->log, err);
    if (code == ERR_OK) code = read_journal(a, out, err);
    if (code) part_close(out);
    return code;
}

void part_close(struct part *p) {
    os_file_close(p->data);
    os_file_close(p->log);
    mem_free(p->done);
    p->data = p->log = NULL;
    p->done = NULL;
}

int part_set_etag(struct part *p, const char *etag, struct err *err) {
    struct str value = str_of(etag);
    if (value.n < 3 || value.p[0] != '"' || value.p[value.n - 1] != '"') return ERR_OK;
    memcpy(p->etag, value.p, value.n + 1);
    struct sb line = {0};
    sb_fmt(&line, "etag %s\n", etag);
    int code = write_line(p, sb_str(&line), err);
    sb_free(&line);
    return code;
}

int part_grow(struct part *p, uint32_t chunk, uint32_t bytes, struct err *err) {
    struct sb line = {0};
    p->n_done += bytes - p->done[chunk];
    p->done[chunk] = bytes;
    sb_fmt(&line, "%u %u\n", chunk, bytes);
    int code = write_line(p, sb_str(&line), err);
    sb_free(&line);
    return code;
}

uint64_t part_front(struct part *p) {
    while (p->front < p->n_chunks && p->done[p->front] == part_chunk_size(p, p->front)) p->front++;
    if (p->front == p->n_chunks) return p->size;
    return p->front * PART_CHUNK_BYTES + p->done[p->front];
}
