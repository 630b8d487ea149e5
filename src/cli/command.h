/* The command `mlxcel`, for the program and for the library of the Python package, which has it as a function. */
#ifndef MLXCEL_CLI_COMMAND_H
#define MLXCEL_CLI_COMMAND_H

/* What main was given; the exit code. The process is the command's. */
int cli_main(int argc, char **argv);

#endif
