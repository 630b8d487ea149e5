/* Clocks on POSIX systems. */
#include "os/os.h"

#include <errno.h>
#include <time.h>

static int64_t read_clock(clockid_t id) {
    struct timespec t;
    clock_gettime(id, &t);
    return (int64_t)t.tv_sec * 1000000000 + t.tv_nsec;
}

uint64_t os_clock_ns(void) {
    return (uint64_t)read_clock(CLOCK_MONOTONIC);
}

uint64_t os_cpu_ns(void) {
    return (uint64_t)read_clock(CLOCK_PROCESS_CPUTIME_ID);
}

int64_t os_wall_ns(void) {
    return read_clock(CLOCK_REALTIME);
}

void os_sleep_ms(int ms) {
    if (ms <= 0) return;
    struct timespec t = {ms / 1000, ms % 1000 * 1000000};
    while (nanosleep(&t, &t) && errno == EINTR) {}
}

static time_t whole_seconds(int64_t wall_ns) {
    return (time_t)(wall_ns / 1000000000 - (wall_ns % 1000000000 < 0));
}

void os_local_time(int64_t wall_ns, struct tm *out) {
    localtime_r(&(time_t){whole_seconds(wall_ns)}, out);
}

void os_utc_time(int64_t wall_ns, struct tm *out) {
    gmtime_r(&(time_t){whole_seconds(wall_ns)}, out);
}
