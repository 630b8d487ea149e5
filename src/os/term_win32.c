/* Keys one by one and the cursor on Windows consoles, by console functions: they work in every version, with escape sequences or
 * without. Consoles that can are asked for escape sequences instead of key codes: only so do they mark pasted text. In others a return that
 * more keys follow at once was pasted: it and what comes with it is given out between the same marks. */
#include "os/win32.h"

#ifndef ENABLE_VIRTUAL_TERMINAL_INPUT
#define ENABLE_VIRTUAL_TERMINAL_INPUT 0x0200
#endif

enum { ESC = 27, ESC_WAIT_MS = 40, PASTE_GAP_MS = 30 };

static HANDLE in_handle, out_handle;
static DWORD old_mode;
static bool is_raw, has_sequences;
static uint32_t n_again; /* a key that is held down repeats */
static uint32_t again;
static bool is_paste; /* an unmarked one, whose keys still come */

/* Where Ctrl-C comes as an event all the same (Wine, in a Unix terminal), it does not end the program while a line is edited. */
static BOOL WINAPI on_control(DWORD type) {
    return type == CTRL_C_EVENT;
}

bool os_term_begin(void) {
    in_handle = GetStdHandle(STD_INPUT_HANDLE);
    out_handle = GetStdHandle(STD_OUTPUT_HANDLE);
    if (!os_is_terminal(OS_STDIN) || !os_is_terminal(OS_STDOUT) || !GetConsoleMode(in_handle, &old_mode)) return false;
    DWORD mode = old_mode & ~(DWORD)(ENABLE_LINE_INPUT | ENABLE_ECHO_INPUT | ENABLE_PROCESSED_INPUT);
    has_sequences = win32_takes_sequences(OS_STDOUT) && SetConsoleMode(in_handle, mode | ENABLE_VIRTUAL_TERMINAL_INPUT);
    is_raw = has_sequences || SetConsoleMode(in_handle, mode);
    if (!is_raw) return false;
    is_paste = false;
    os_guard_terminal(true);
    SetConsoleCtrlHandler(on_control, TRUE);
    if (has_sequences) os_write(OS_STDOUT, STR(OS_PASTE_ON), NULL);
    return true;
}

void os_term_end(void) {
    if (!is_raw) return;
    is_raw = false;
    if (has_sequences) os_write(OS_STDOUT, STR(OS_PASTE_OFF), NULL);
    SetConsoleMode(in_handle, old_mode);
    SetConsoleCtrlHandler(on_control, FALSE);
    os_guard_terminal(false);
}

/* The console shows what is typed only while a line is read. */
void os_term_hush(void) {}

static uint32_t named_key(const KEY_EVENT_RECORD *e) {
    bool ctrl = (e->dwControlKeyState & (LEFT_CTRL_PRESSED | RIGHT_CTRL_PRESSED)) != 0;
    switch (e->wVirtualKeyCode) {
    case VK_LEFT: return ctrl ? OS_KEY_WORD_LEFT : OS_KEY_LEFT;
    case VK_RIGHT: return ctrl ? OS_KEY_WORD_RIGHT : OS_KEY_RIGHT;
    case VK_UP: return OS_KEY_UP;
    case VK_DOWN: return OS_KEY_DOWN;
    case VK_HOME: return OS_KEY_HOME;
    case VK_END: return OS_KEY_END;
    case VK_DELETE: return OS_KEY_DELETE;
    default: return 0;
    }
}

/* The key of one event; 0 for what is none. Halves of a character are put together. */
static uint32_t key_of(const INPUT_RECORD *r) {
    static wchar_t high;
    const KEY_EVENT_RECORD *e = &r->Event.KeyEvent;
    /* Alt with digits gives its character when Alt goes up */
    if (r->EventType != KEY_EVENT || (!e->bKeyDown && !(e->wVirtualKeyCode == VK_MENU && e->uChar.UnicodeChar))) return 0;
    wchar_t c = e->uChar.UnicodeChar;
    uint32_t key = named_key(e);
    if (key) return key;
    if (c >= 0xD800 && c < 0xDC00) {
        high = c;
        return 0;
    }
    if (c >= 0xDC00 && c < 0xE000) {
        uint32_t code = high ? 0x10000 + ((uint32_t)(high - 0xD800) << 10) + (uint32_t)(c - 0xDC00) : UTF8_INVALID;
        high = 0;
        return code;
    }
    return c;
}

/* The next character of a sequence; below 0 when it does not come in time, or is none. */
static int next_of_sequence(void) {
    uint32_t key = 0;
    while (key == 0) {
        INPUT_RECORD r;
        DWORD n = 0;
        if (WaitForSingleObject(in_handle, ESC_WAIT_MS) != WAIT_OBJECT_0 || !ReadConsoleInputW(in_handle, &r, 1, &n) || n == 0) return -1;
        key = key_of(&r);
    }
    return key < OS_KEY_CLOSED ? (int)key : -1;
}

/* Events that are no keys do not count. */
bool os_term_key_waits(void) {
    INPUT_RECORD r;
    DWORD n = 0;
    while (n_again == 0 && PeekConsoleInputW(in_handle, &r, 1, &n) && n == 1) {
        if (r.EventType == KEY_EVENT && r.Event.KeyEvent.bKeyDown) return true;
        ReadConsoleInputW(in_handle, &r, 1, &n);
    }
    return n_again > 0;
}

/* Whether another key comes within the gap between two keys of a paste. */
static bool keys_follow(void) {
    ULONGLONG end = GetTickCount64() + PASTE_GAP_MS, now;
    while (!os_term_key_waits())
        if ((now = GetTickCount64()) >= end || WaitForSingleObject(in_handle, (DWORD)(end - now)) != WAIT_OBJECT_0) return false;
    return true;
}

static uint32_t read_key(void) {
    if (n_again) {
        n_again--;
        return again;
    }
    for (;;) {
        INPUT_RECORD r;
        DWORD n = 0;
        if (!ReadConsoleInputW(in_handle, &r, 1, &n) || n == 0) return OS_KEY_CLOSED;
        uint32_t key = key_of(&r);
        if (!key) continue;
        if (key == ESC && has_sequences) return os_term_escape(next_of_sequence);
        again = key;
        n_again = r.Event.KeyEvent.wRepeatCount > 1 ? r.Event.KeyEvent.wRepeatCount - 1u : 0;
        return key;
    }
}

uint32_t os_term_key(void) {
    if (is_paste && !keys_follow()) {
        is_paste = false;
        return OS_KEY_PASTE_END;
    }
    uint32_t key = read_key();
    if (is_paste || has_sequences || key != '\r' || !keys_follow()) return key;
    is_paste = true;
    again = key;
    n_again++;
    return OS_KEY_PASTE_BEGIN;
}

void os_term_move(int up, int column) {
    CONSOLE_SCREEN_BUFFER_INFO info;
    if (!GetConsoleScreenBufferInfo(out_handle, &info)) return;
    int row = info.dwCursorPosition.Y - up;
    if (row < 0) row = 0;
    if (row >= info.dwSize.Y) row = info.dwSize.Y - 1;
    SetConsoleCursorPosition(out_handle, (COORD){(SHORT)column, (SHORT)row});
}

void os_term_clear_below(void) {
    CONSOLE_SCREEN_BUFFER_INFO info;
    if (!GetConsoleScreenBufferInfo(out_handle, &info)) return;
    COORD at = info.dwCursorPosition;
    DWORD n = (DWORD)(info.dwSize.X - at.X), done;
    if (info.srWindow.Bottom > at.Y) n += (DWORD)(info.srWindow.Bottom - at.Y) * (DWORD)info.dwSize.X;
    FillConsoleOutputCharacterW(out_handle, L' ', n, at, &done);
    FillConsoleOutputAttribute(out_handle, info.wAttributes, n, at, &done);
}
