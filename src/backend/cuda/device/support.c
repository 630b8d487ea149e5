/* Which GPUs run what: the table that the probe asks, and the pages that are made of it. */
#include "backend/cuda/device/probe.h"

const struct cuda_support cuda_support_rows[CUDA_SUPPORT_ROWS] = {
    /* cap  family             GPUs                                    image  driver  with PTX */
    {CUDA_FIRST, "Turing", "RTX 20, GTX 16, Quadro RTX, T4", "75", 580, 550},
    {80, "Ampere", "A100, A30", "80", 580, 550},
    {86, "Ampere", "RTX 30, RTX A2000 to A6000, A10, A40", "86", 580, 550},
    {87, "Ampere", "Jetson Orin", "PTX", 580, 0},
    {89, "Ada", "RTX 40, RTX 6000 Ada, L4, L40", "89", 580, 550},
    {90, "Hopper", "H100, H200, GH200", "90a", 580, 550},
    {100, "Blackwell", "B200, GB200", "100", 580, 570},
    {103, "Blackwell Ultra", "B300, GB300", "100", 580, 0},
    {110, "Blackwell", "Jetson Thor", "PTX", 580, 0},
    {120, "Blackwell", "RTX 50, RTX PRO Blackwell", "120", 580, 570},
    {121, "Blackwell", "GB10 (DGX Spark)", "120", 580, 0},
};

/* CUDA 13 does not compile for them; they are refused by their capability. */
static const struct {
    int capability;
    const char *family, *gpus;
} refused[] = {
    {52, "Maxwell", "GTX 9, Tesla M40"},
    {60, "Pascal", "Tesla P100"},
    {61, "Pascal", "GTX 10, Tesla P4, P40"},
    {70, "Volta", "V100, Titan V"},
};

const struct cuda_support *cuda_support_of(int capability) {
    for (int i = 0; i < CUDA_SUPPORT_ROWS; i++)
        if (cuda_support_rows[i].capability == capability) return &cuda_support_rows[i];
    return NULL;
}

/* Kernels for tensor cores are compiled from 8.0 on (kernels.list: "80+"); PTX holds the others. */
static const char *kernels_of(const struct cuda_support *s) {
    return s->capability >= 80 && s->image[0] != 'P' ? "all" : "without tensor cores";
}

static void put_rows(struct sb *out) {
    sb_puts(out, "| GPUs | family | compute capability | our image | kernels | driver | older drivers, through PTX |\n"
                 "|---|---|---|---|---|---|---|\n");
    for (size_t i = 0; i < sizeof refused / sizeof refused[0]; i++)
        sb_fmt(out, "| %s | %s | %d.%d | refused | - | - | - |\n", refused[i].gpus, refused[i].family, refused[i].capability / 10,
               refused[i].capability % 10);
    for (int i = 0; i < CUDA_SUPPORT_ROWS; i++) {
        const struct cuda_support *s = &cuda_support_rows[i];
        sb_fmt(out, "| %s | %s | %d.%d | %s%s | %s | %d | ", s->gpus, s->family, s->capability / 10, s->capability % 10,
               s->image[0] == 'P' ? "" : "sm_", s->image, kernels_of(s), s->driver);
        if (s->driver_ptx) sb_fmt(out, "%d, without tensor cores |\n", s->driver_ptx);
        else sb_puts(out, "- |\n");
    }
}

void cuda_support_page(struct sb *out) {
    sb_puts(out,
            "# Which GPU runs what\n\n"
            "<!-- made by `kernelc --compatibility` from the table in src/backend/cuda/device/support.c; the unit test cuda.support_table "
            "compares -->\n"
            "Releases carry machine code for every NVIDIA GPU from Turing on and need the driver alone: no CUDA toolkit, no runtime "
            "libraries.\n"
            "`mlxcel doctor` names the GPUs of a machine and the image that each would run, or why none does.\n\n");
    put_rows(out);
    sb_puts(out,
            "\n"
            "- Driver: the branch (the first number of `nvidia-smi`'s driver version, Linux and Windows) from which the image loads. Below "
            "550 every\n"
            "  driver is refused by name. From 550 to 579 the driver compiles PTX when a model is loaded, where a release says that it "
            "carries PTX for\n"
            "  them; the kernels are then those without tensor cores.\n"
            "- RTX 50 is compute capability 12.0 (sm_120), not the 10.0 of B200: machine code for one does not run on the other.\n"
            "- Refused: CUDA 13 has no compiler for GPUs before 7.5. With `--device cuda` mlxcel says so and ends; it does not take the "
            "processor instead.\n"
            "- Formats: f32, f16 and bf16, MLX affine with 2, 3, 4, 5, 6 and 8 bits, mxfp4, mxfp8 and nvfp4, on every GPU that is "
            "covered: the kernels\n"
            "  unpack them, no GPU needs the format in hardware.\n"
            "- Run so far: one H200 (9.0), with the Linux program and with the Windows program under Wine. Every other row is compiled "
            "and checked for\n"
            "  registers and spills, and has not been run. What RTX 30, 40 and 50 have of their own, decode kernels for 99 KB of shared "
            "memory, was compiled\n"
            "  for that H200 too and run there within 99 KB.\n");
}
