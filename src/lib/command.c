/* The command as a function of the library: what the small program of the Python package calls. */
#include "mlxcel.h"

#include "cli/command.h"

int32_t mlxcel_main(int32_t argc, char **argv) {
    return cli_main(argc, argv);
}
