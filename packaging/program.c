/* The command as a program beside the shared library, which has everything else: the Python package holds the two, and each thing once. */
#include "command.h"

int main(int argc, char **argv) {
    return mlxcel_main(argc, argv);
}
