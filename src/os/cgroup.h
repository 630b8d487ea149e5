/* The text files of Linux control groups: sizes, quotas and paths as they stand there, and the limits that a tree of them
 * sets. Compiled on every system, so that the tests run everywhere. */
#ifndef MLXCEL_OS_CGROUP_H
#define MLXCEL_OS_CGROUP_H

#include "base/str.h"

#define CGROUP_NO_LIMIT UINT64_MAX
#define CGROUP_MOUNT "/sys/fs/cgroup"

/* The group's path in /proc/self/cgroup: of version 2 when controller is empty, else of that version 1 controller. */
bool cgroup_path(struct str proc_cgroup, struct str controller, struct str *out_path);
/* memory.max, memory.limit_in_bytes: "max" and numbers near 2^63 mean that there is none. */
uint64_t cgroup_bytes(struct str text);
/* A row of memory.stat; 0 when absent. */
uint64_t cgroup_stat(struct str text, struct str key);
/* cpu.max ("200000 100000", "max 100000") as a number of CPUs, rounded up; 0 when there is no limit. */
int cgroup_cpus(struct str cpu_max);
/* cpu.cfs_quota_us and cpu.cfs_period_us of version 1. */
int cgroup_cpus_v1(struct str quota, struct str period);
/* Lists like "0-3,8,10-11": true for each number through *out, from *rest on. */
bool cgroup_list_next(struct str *rest, int *out_first, int *out_last);

/* What the group of proc_cgroup and every group above it leave of *total and *available; `mount` holds the tree of version 2,
 * and below it those of version 1 by controller. */
void cgroup_memory(struct arena *a, const char *mount, struct str proc_cgroup, uint64_t *total, uint64_t *available);
/* CPUs by the smallest quota among them; 0 when there is none. */
int cgroup_quota(struct arena *a, const char *mount, struct str proc_cgroup);

#endif
