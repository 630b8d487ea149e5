/* Clocks on Windows. */
#include "os/win32.h"

#include <time.h>

uint64_t os_clock_ns(void) {
    LARGE_INTEGER frequency, now; /* the frequency is fixed at boot and cheap to ask for */
    QueryPerformanceFrequency(&frequency);
    QueryPerformanceCounter(&now);
    uint64_t f = (uint64_t)frequency.QuadPart, t = (uint64_t)now.QuadPart;
    return t / f * 1000000000 + t % f * 1000000000 / f;
}

uint64_t os_cpu_ns(void) {
    FILETIME begun, ended, kernel, user; /* in units of 100 ns */
    if (!GetProcessTimes(GetCurrentProcess(), &begun, &ended, &kernel, &user)) return 0;
    uint64_t high = (uint64_t)kernel.dwHighDateTime + user.dwHighDateTime, low = (uint64_t)kernel.dwLowDateTime + user.dwLowDateTime;
    return ((high << 32) + low) * 100;
}

int64_t os_wall_ns(void) {
    FILETIME t;
    GetSystemTimePreciseAsFileTime(&t);
    int64_t ticks = (int64_t)((uint64_t)t.dwHighDateTime << 32 | t.dwLowDateTime); /* 100 ns since 1601 */
    return (ticks - INT64_C(116444736000000000)) * 100;
}

void os_sleep_ms(int ms) {
    if (ms > 0) Sleep((DWORD)ms);
}

static __time64_t whole_seconds(int64_t wall_ns) {
    return wall_ns / 1000000000 - (wall_ns % 1000000000 < 0);
}

void os_local_time(int64_t wall_ns, struct tm *out) {
    if (_localtime64_s(out, &(__time64_t){whole_seconds(wall_ns)})) *out = (struct tm){.tm_year = 70, .tm_mday = 1, .tm_wday = 4};
}

void os_utc_time(int64_t wall_ns, struct tm *out) {
    if (_gmtime64_s(out, &(__time64_t){whole_seconds(wall_ns)})) *out = (struct tm){.tm_year = 70, .tm_mday = 1, .tm_wday = 4};
}
