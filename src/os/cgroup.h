/* The text files of Linux control groups, read without touching the file system: sizes, quotas and paths as they stand
 * there. Pure functions, compiled on every system so that their tests run everywhere. */
#ifndef MLXCEL_OS_CGROUP_H
#define MLXCEL_OS_CGROUP_H

#include "base/str.h"

#define CGROUP_NO_LIMIT UINT64_MAX

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

#endif
