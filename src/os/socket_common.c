/* Addresses out of struct sockaddr, whose two kinds every system lays out alike: family and port in four bytes, then IPv4's address; of IPv6 another
 * four bytes before it. */
#include "os/os.h"

int os_socket_address(int family, const void *sockaddr, unsigned char out[16]) {
    int kind = os_socket_family(family), n = kind == 4 ? 4 : kind == 6 ? 16 : 0;
    memcpy(out, (const unsigned char *)sockaddr + (kind == 6 ? 8 : 4), (size_t)n);
    return n;
}
