/* Control groups: parsing of their text files. */
#include "os/cgroup.h"

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
