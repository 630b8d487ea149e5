/* The chat page, byte for byte as it lies in src/server/webui; found by route_page.c under these names. */

#if defined(__ELF__)
#define HIDE(name) .hidden name
    .section .rodata.mlxcel_page, "a"
#else
#define HIDE(name)
    .section .rdata, "dr"
#endif

    .balign 64
    .globl server_page
    HIDE(server_page)
server_page:
    .incbin "src/server/webui/index.html"
    .globl server_page_end
    HIDE(server_page_end)
server_page_end:
    .byte 0

#if defined(__ELF__)
    .section .note.GNU-stack, "", %progbits
#endif
