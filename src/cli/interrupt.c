/* One flag serves: a program runs one command, and a signal handler can reach nothing else. */
#include "cli/interrupt.h"

#include "os/os.h"

static _Atomic bool came;

static void on_interrupt(void) {
    atomic_store(&came, true);
}

_Atomic bool *interrupt_begin(void) {
    atomic_store(&came, false);
    os_on_interrupt(on_interrupt);
    return &came;
}

void interrupt_end(void) {
    os_on_interrupt(NULL);
}

bool interrupt_came(void) {
    return atomic_load(&came);
}
