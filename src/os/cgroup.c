/* Control groups: parsing of their text files, and the walk up a tree of them. */
#include "os/cgroup.h"

#include "os/os.h"

enum { TEXT_BYTES = 1 << 20 };

bool cgroup_path(struct str proc_cgroup, struct str controller, struct str *out_path) {
    struct str line, id, names, name;
    while (str_split_next(&proc_cgroup, '\n', &line)) {
        struct str rest = line;
        if (!str_split_next(&rest, ':', &id) || !str_split_next(&rest, ':', &names) || !rest.p) continue;
        bool found = controller.n == 0 && str_is(id, "0") && names.n == 0;
        while (controller.n && !found && str_split_next(&names, ',', &name)) found = str_eq(name, controller);
        if (!found) continue;
        *out_path = rest; /* may itself hold colons */
        return true;
    }
    return false;
}

uint64_t cgroup_bytes(struct str text) {
    int64_t value;
    if (!str_to_int64(str_trim(text), &value) || value < 0) return CGROUP_NO_LIMIT;
    return (uint64_t)value >= UINT64_C(1) << 60 ? CGROUP_NO_LIMIT : (uint64_t)value;
}

uint64_t cgroup_stat(struct str text, struct str key) {
    struct str line;
    while (str_split_next(&text, '\n', &line)) {
        int64_t value;
        if (!str_starts(line, key) || line.n <= key.n || line.p[key.n] != ' ') continue;
        return str_to_int64(str_trim(str_from(line, key.n)), &value) && value > 0 ? (uint64_t)value : 0;
    }
    return 0;
}

int cgroup_cpus_v1(struct str quota, struct str period) {
    int64_t q, p;
    if (!str_to_int64(str_trim(quota), &q) || !str_to_int64(str_trim(period), &p) || q <= 0 || p <= 0) return 0;
    int64_t n = q / p + (q % p != 0);
    return n > 1 << 20 ? 0 : (int)n;
}

int cgroup_cpus(struct str cpu_max) {
    struct str rest = str_trim(cpu_max), quota;
    if (!str_split_next(&rest, ' ', &quota)) return 0;
    return cgroup_cpus_v1(quota, rest.p ? rest : STR("100000"));
}

bool cgroup_list_next(struct str *rest, int *out_first, int *out_last) {
    struct str piece, low;
    int64_t first, last;
    if (!str_split_next(rest, ',', &piece)) return false;
    piece = str_trim(piece);
    str_split_next(&piece, '-', &low);
    if (!str_to_int64(low, &first) || first < 0 || first > 1 << 20) return false;
    last = first;
    if (piece.p && (!str_to_int64(piece, &last) || last < first || last > 1 << 20)) return false;
    *out_first = (int)first;
    *out_last = (int)last;
    return true;
}

/* ---- trees ------------------------------------------------------------------------------------------------------------ */

/* Calls visit for the folder of the group and of every group above it: each may set a limit. Inside a container the
 * path of the host may not exist below the mount; the visits to absent folders then find nothing, and the last one,
 * the mount itself, is the container's own group. */
struct walk {
    const char *mount, *below; /* below: the folder of a version 1 controller, or "" */
    struct str path;
    void (*visit)(struct arena *a, const char *dir, void *user);
    void *user;
};

static void walk_up(struct arena *a, const struct walk *w) {
    struct str path = w->path;
    for (;;) {
        while (path.n && path.p[path.n - 1] == '/') path.n--;
        w->visit(a, str_fmt(a, "%s%s%.*s", w->mount, w->below, STR_ARG(path)).p, w->user);
        if (path.n == 0) return;
        while (path.n && path.p[path.n - 1] != '/') path.n--;
    }
}

static bool read_text(struct arena *a, const char *dir, const char *name, struct str *out) {
    return os_input_load(a, str_fmt(a, "%s/%s", dir, name).p, TEXT_BYTES, out, NULL) == 0;
}

struct memory_files {
    const char *limit, *usage, *reclaimable; /* the last: a key of memory.stat */
    uint64_t *total, *available;
};

/* Cached file pages that are not in use can be taken back at once, so they count as available. */
static void visit_memory(struct arena *a, const char *dir, void *user) {
    const struct memory_files *m = user;
    struct str text;
    if (!read_text(a, dir, m->limit, &text)) return;
    uint64_t limit = cgroup_bytes(text);
    if (limit == CGROUP_NO_LIMIT) return;
    uint64_t usage = read_text(a, dir, m->usage, &text) ? cgroup_bytes(text) : 0;
    uint64_t cached = read_text(a, dir, "memory.stat", &text) ? cgroup_stat(text, str_of(m->reclaimable)) : 0;
    if (usage == CGROUP_NO_LIMIT) usage = 0;
    usage = usage > cached ? usage - cached : 0;
    uint64_t left = limit > usage ? limit - usage : 0;
    if (limit < *m->total) *m->total = limit;
    if (left < *m->available) *m->available = left;
}

static void visit_cpu(struct arena *a, const char *dir, void *user) {
    int *limit = user, n = 0;
    struct str text, period;
    if (read_text(a, dir, "cpu.max", &text)) n = cgroup_cpus(text);
    else if (read_text(a, dir, "cpu.cfs_quota_us", &text) && read_text(a, dir, "cpu.cfs_period_us", &period))
        n = cgroup_cpus_v1(text, period);
    if (n > 0 && (*limit == 0 || n < *limit)) *limit = n;
}

void cgroup_memory(struct arena *a, const char *mount, struct str proc_cgroup, uint64_t *total, uint64_t *available) {
    struct memory_files v2 = {"memory.max", "memory.current", "inactive_file", total, available};
    struct memory_files v1 = {"memory.limit_in_bytes", "memory.usage_in_bytes", "total_inactive_file", total, available};
    struct str path;
    if (cgroup_path(proc_cgroup, STR(""), &path)) walk_up(a, &(struct walk){mount, "", path, visit_memory, &v2});
    if (cgroup_path(proc_cgroup, STR("memory"), &path)) walk_up(a, &(struct walk){mount, "/memory", path, visit_memory, &v1});
}

int cgroup_quota(struct arena *a, const char *mount, struct str proc_cgroup) {
    int limit = 0;
    struct str path;
    if (cgroup_path(proc_cgroup, STR(""), &path)) walk_up(a, &(struct walk){mount, "", path, visit_cpu, &limit});
    if (cgroup_path(proc_cgroup, STR("cpu"), &path)) walk_up(a, &(struct walk){mount, "/cpu", path, visit_cpu, &limit});
    return limit;
}
