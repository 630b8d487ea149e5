/* strftime over the time the caller gave, in the C locale. The time has no zone, so %z and %Z are empty. */
#include "text/template/tmpl_rt.h"

static const char *const months[] = {"January", "February", "March",     "April",   "May",      "June",
                                     "July",    "August",   "September", "October", "November", "December"};
static const char *const days[] = {"Sunday", "Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday"};

static int64_t days_from_civil(int64_t y, int m, int d) { /* since 1970-01-01, proleptic Gregorian */
    y -= m <= 2;
    int64_t era = (y >= 0 ? y : y - 399) / 400, year = y - era * 400;
    int64_t day = (153 * (m + (m > 2 ? -3 : 9)) + 2) / 5 + d - 1;
    return era * 146097 + year * 365 + year / 4 - year / 100 + day - 719468;
}

static int week_day(const struct tmpl_time *t) { /* 0 = Sunday */
    int64_t n = days_from_civil(t->year, t->month, t->day);
    return (int)(((n + 4) % 7 + 7) % 7);
}

static int year_day(const struct tmpl_time *t) { /* 0 = January 1 */
    return (int)(days_from_civil(t->year, t->month, t->day) - days_from_civil(t->year, 1, 1));
}

static bool is_leap(int y) {
    return (y % 4 == 0 && y % 100 != 0) || y % 400 == 0;
}

static void iso_week(const struct tmpl_time *t, int *out_year, int *out_week) {
    int monday_based = (week_day(t) + 6) % 7, week = (year_day(t) - monday_based + 10) / 7, year = t->year;
    if (week < 1) {
        struct tmpl_time last = {.year = --year, .month = 12, .day = 31};
        iso_week(&last, out_year, &week);
    } else if (week == 53) {
        int length = is_leap(year) ? 366 : 365;
        if (length - year_day(t) - 1 < 3 - monday_based) {
            week = 1;
            year++;
        }
    }
    *out_year = year;
    *out_week = week;
}

/* flag is '-', '_', '0', '^', or 0; pad the default width and fill of the directive */
static void put_number(struct sb *out, int value, int width, char fill, char flag) {
    if (flag == '-') width = 0;
    if (flag == '_') fill = ' ';
    if (flag == '0') fill = '0';
    if (fill == ' ') sb_fmt(out, "%*d", width, value);
    else sb_fmt(out, "%0*d", width, value);
}

static void put_text(struct sb *out, const char *text, size_t n, char flag) {
    for (size_t i = 0; i < n && text[i]; i++)
        sb_putc(out, flag == '^' && text[i] >= 'a' && text[i] <= 'z' ? (char)(text[i] - 32) : text[i]);
}

static const char *composite(char c) {
    switch (c) {
    case 'c': return "%a %b %e %H:%M:%S %Y";
    case 'D':
    case 'x': return "%m/%d/%y";
    case 'F': return "%Y-%m-%d";
    case 'R': return "%H:%M";
    case 'r': return "%I:%M:%S %p";
    case 'T':
    case 'X': return "%H:%M:%S";
    default: return NULL;
    }
}

static void format_into(struct sb *out, struct str f, const struct tmpl_time *t);

static bool format_one(struct sb *out, char c, char flag, const struct tmpl_time *t) {
    int hour12 = t->hour % 12 ? t->hour % 12 : 12, wday = week_day(t), iso_year, week;
    iso_week(t, &iso_year, &week);
    switch (c) {
    case 'a': put_text(out, days[wday], 3, flag); return true;
    case 'A': put_text(out, days[wday], 99, flag); return true;
    case 'b':
    case 'h': put_text(out, months[t->month - 1], 3, flag); return true;
    case 'B': put_text(out, months[t->month - 1], 99, flag); return true;
    case 'C': put_number(out, t->year / 100, 2, '0', flag); return true;
    case 'd': put_number(out, t->day, 2, '0', flag); return true;
    case 'e': put_number(out, t->day, 2, ' ', flag); return true;
    case 'f': put_number(out, t->microsecond, 6, '0', 0); return true;
    case 'g': put_number(out, iso_year % 100, 2, '0', flag); return true;
    case 'G': put_number(out, iso_year, 4, '0', flag); return true;
    case 'H': put_number(out, t->hour, 2, '0', flag); return true;
    case 'I': put_number(out, hour12, 2, '0', flag); return true;
    case 'j': put_number(out, year_day(t) + 1, 3, '0', flag); return true;
    case 'k': put_number(out, t->hour, 2, ' ', flag); return true;
    case 'l': put_number(out, hour12, 2, ' ', flag); return true;
    case 'm': put_number(out, t->month, 2, '0', flag); return true;
    case 'M': put_number(out, t->minute, 2, '0', flag); return true;
    case 'n': sb_putc(out, '\n'); return true;
    case 'p': put_text(out, t->hour < 12 ? "AM" : "PM", 2, flag); return true;
    case 'P': put_text(out, t->hour < 12 ? "am" : "pm", 2, 0); return true;
    case 's':
        sb_fmt(out, "%lld", (long long)(days_from_civil(t->year, t->month, t->day) * 86400 + t->hour * 3600 + t->minute * 60 + t->second));
        return true;
    case 'S': put_number(out, t->second, 2, '0', flag); return true;
    case 't': sb_putc(out, '\t'); return true;
    case 'u': put_number(out, wday ? wday : 7, 1, '0', flag); return true;
    case 'U': put_number(out, (year_day(t) + 7 - wday) / 7, 2, '0', flag); return true;
    case 'V': put_number(out, week, 2, '0', flag); return true;
    case 'w': put_number(out, wday, 1, '0', flag); return true;
    case 'W': put_number(out, (year_day(t) + 7 - (wday + 6) % 7) / 7, 2, '0', flag); return true;
    case 'y': put_number(out, t->year % 100, 2, '0', flag); return true;
    case 'Y': put_number(out, t->year, 4, '0', flag); return true;
    case 'z':
    case 'Z': return true;
    case '%': sb_putc(out, '%'); return true;
    default: return false;
    }
}

static void format_into(struct sb *out, struct str f, const struct tmpl_time *t) {
    for (size_t i = 0; i < f.n; i++) {
        if (f.p[i] != '%' || i + 1 == f.n) {
            sb_putc(out, f.p[i]);
            continue;
        }
        size_t at = i + 1;
        char flag = strchr("-_0^", f.p[at]) && f.p[at] && at + 1 < f.n ? f.p[at++] : '\0';
        const char *parts = composite(f.p[at]);
        if (parts) format_into(out, str_of(parts), t);
        else if (!format_one(out, f.p[at], flag, t)) sb_put(out, str_sub(f, i, at + 1 - i)); /* unknown: as it stands */
        i = at;
    }
}

struct str tmpl_time_format(struct rt *rt, struct str format) {
    if (format.n > 4096) rt_limit(rt, "a time format of %zu bytes is too long", format.n);
    struct tmpl_time t = rt->now;
    if (t.month < 1 || t.month > 12) t = (struct tmpl_time){.year = 1970, .month = 1, .day = 1};
    struct sb out = {0};
    format_into(&out, format, &t);
    struct str text = str_copy(rt->arena, sb_str(&out)); /* bounded: 4096 directives of at most 24 bytes */
    sb_free(&out);
    return text;
}

static bool digits_at(struct str s, size_t at, size_t n, int *out) {
    if (at + n > s.n) return false;
    int v = 0;
    for (size_t i = at; i < at + n; i++) {
        if (s.p[i] < '0' || s.p[i] > '9') return false;
        v = v * 10 + (s.p[i] - '0');
    }
    *out = v;
    return true;
}

bool tmpl_time_parse(struct str s, struct tmpl_time *out) {
    static const int month_days[] = {31, 28, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31};
    struct tmpl_time t = {0};
    if (!digits_at(s, 0, 4, &t.year) || !digits_at(s, 5, 2, &t.month) || !digits_at(s, 8, 2, &t.day)) return false;
    if (s.p[4] != '-' || s.p[7] != '-' || t.year < 1 || t.month < 1 || t.month > 12) return false;
    int longest = month_days[t.month - 1] + (t.month == 2 && is_leap(t.year));
    if (t.day < 1 || t.day > longest) return false;
    if (s.n > 10) {
        if ((s.p[10] != 'T' && s.p[10] != ' ') || !digits_at(s, 11, 2, &t.hour) || !digits_at(s, 14, 2, &t.minute) || s.p[13] != ':')
            return false;
        size_t at = 16;
        if (at < s.n && s.p[at] == ':') {
            if (!digits_at(s, 17, 2, &t.second)) return false;
            at = 19;
        }
        int scale = 100000;
        if (at < s.n && s.p[at] == '.')
            for (at++; at < s.n && s.p[at] >= '0' && s.p[at] <= '9' && scale; at++, scale /= 10) t.microsecond += (s.p[at] - '0') * scale;
        if (at != s.n || t.hour > 23 || t.minute > 59 || t.second > 59) return false;
    }
    *out = t;
    return true;
}
