/* Which addresses of the internet are public: those that anybody may reach, and nothing of this machine, its network or its provider. */
#ifndef MLXCEL_BASE_ADDRESS_H
#define MLXCEL_BASE_ADDRESS_H

#include <stdbool.h>

/* n bytes in the order of the network: 4 of IPv4, 16 of IPv6. Anything else is not public. */
bool address_is_public(const unsigned char *address, int n);

#endif
