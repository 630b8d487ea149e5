/* The command as a function of the Python package's library. */
#include "command.h"

#include "cli/command.h"

int32_t mlxcel_main(int32_t argc, char **argv) {
    return cli_main(argc, argv);
}
