/* The compiled kernels, byte for byte. The build puts the folder of kernels.bin on the include path. */
#if defined(__ELF__)
    .section .rodata
    .hidden mlxcel_kernels_begin
    .hidden mlxcel_kernels_end
#elif defined(__APPLE__)
    .const_data
#else
    .section .rdata,"dr"
#endif
    .balign 64
    .globl mlxcel_kernels_begin
    .globl mlxcel_kernels_end
mlxcel_kernels_begin:
    .incbin "kernels.bin"
mlxcel_kernels_end:
    .byte 0
#if defined(__ELF__)
    .section .note.GNU-stack,"",%progbits
#endif
