/* Between cpu.c, which knows the processors, and machine_*.c, which know the systems. */
#ifndef MLXCEL_OS_CPU_INTERNAL_H
#define MLXCEL_OS_CPU_INTERNAL_H

#include "os/cpu.h"

/* The processor's own name for itself; false where it has none. */
bool cpu_brand(char *out, size_t out_bytes);
/* Asks the system for leave to use the AMX tile registers. */
bool cpu_os_grants_amx(void);
/* On arm64, where only the system can tell; 0 elsewhere. */
uint32_t cpu_os_arm_flags(void);

#endif
