/* What the library of the Python package has besides mlxcel.h. */
#ifndef MLXCEL_PACKAGING_COMMAND_H
#define MLXCEL_PACKAGING_COMMAND_H

#include <mlxcel.h>

/* The command `mlxcel`, with what main was given; returns the exit code. It reads the environment and standard input, writes to standard output
 * and catches signals: for a program that is this command and nothing else. Once in a process, on its first thread, with no model open. */
MLXCEL_API int32_t mlxcel_main(int32_t argc, char **argv);

#endif
