/* mlxcel-server.exe: runs mlxcel.exe of the same folder as `mlxcel serve` with the same arguments, console and exit code.
 *
 * Windows has no hard links in archives, and a second copy of the program would double the download. The child sits in a job that ends
 * with this process, so that nothing is left behind when the launcher is killed; Ctrl-C and closing the window reach the child itself,
 * which ends what is running first, and the launcher waits for it. */
#include <stdbool.h>
#include <windows.h>

enum { MAX_COMMAND = 32768 /* what CreateProcess takes */ };

static BOOL WINAPI leave_to_child(DWORD event) {
    (void)event;
    return TRUE;
}

static int fail(const wchar_t *what) {
    wchar_t text[512];
    int n = wsprintfW(text, L"mlxcel-server: %ls (Windows error %lu)\r\n", what, GetLastError());
    char utf8[1536];
    int n_bytes = WideCharToMultiByte(CP_UTF8, 0, text, n, utf8, sizeof utf8, NULL, NULL);
    DWORD written;
    WriteFile(GetStdHandle(STD_ERROR_HANDLE), utf8, (DWORD)n_bytes, &written, NULL);
    return 1;
}

/* What follows the program's own name in the command line. */
static const wchar_t *skip_program(const wchar_t *line) {
    bool quoted = false;
    for (; *line && (quoted || (*line != L' ' && *line != L'\t')); line++)
        if (*line == L'"') quoted = !quoted;
    while (*line == L' ' || *line == L'\t') line++;
    return line;
}

/* "FOLDER\mlxcel.exe" serve ARGUMENTS */
static bool build_command(wchar_t *command) {
    wchar_t *path = command + 1;
    DWORD n = GetModuleFileNameW(NULL, path, MAX_COMMAND - 64);
    if (n == 0 || n >= MAX_COMMAND - 64) return false;
    while (n > 0 && path[n - 1] != L'\\') n--;
    command[0] = L'"';
    lstrcpyW(path + n, L"mlxcel.exe\" serve ");
    const wchar_t *arguments = skip_program(GetCommandLineW());
    if (lstrlenW(command) + lstrlenW(arguments) >= MAX_COMMAND) return false;
    lstrcatW(command, arguments);
    return true;
}

static HANDLE job_that_ends_with_us(void) {
    HANDLE job = CreateJobObjectW(NULL, NULL);
    JOBOBJECT_EXTENDED_LIMIT_INFORMATION limits = {0};
    limits.BasicLimitInformation.LimitFlags = JOB_OBJECT_LIMIT_KILL_ON_JOB_CLOSE | JOB_OBJECT_LIMIT_SILENT_BREAKAWAY_OK;
    if (job) SetInformationJobObject(job, JobObjectExtendedLimitInformation, &limits, sizeof limits);
    return job;
}

int main(void) {
    static wchar_t command[MAX_COMMAND];
    if (!build_command(command)) return fail(L"the command line is too long");
    SetConsoleCtrlHandler(leave_to_child, TRUE);
    STARTUPINFOW startup = {.cb = sizeof startup};
    PROCESS_INFORMATION process;
    HANDLE job = job_that_ends_with_us();
    if (!CreateProcessW(NULL, command, NULL, NULL, TRUE, CREATE_SUSPENDED, NULL, NULL, &startup, &process))
        return fail(L"cannot start mlxcel.exe, which belongs into the same folder");
    if (job) AssignProcessToJobObject(job, process.hProcess);
    ResumeThread(process.hThread);
    WaitForSingleObject(process.hProcess, INFINITE);
    DWORD code = 1;
    GetExitCodeProcess(process.hProcess, &code);
    return (int)code;
}
