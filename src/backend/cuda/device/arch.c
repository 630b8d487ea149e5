/* Which image runs where. */
#include "backend/cuda/device/arch.h"

#include <stdio.h>

bool cuda_arch_parse(struct str text, struct cuda_arch *out) {
    if (str_starts(text, STR("sm_"))) text = str_from(text, 3);
    if (str_starts(text, STR("compute_"))) text = str_from(text, 8);
    struct cuda_arch arch = {0};
    size_t i = 0;
    int n_digits = 0;
    for (; i < text.n && arch.number < 1000; i++) {
        if (text.p[i] == '.' && n_digits > 0 && i + 2 >= text.n - (text.p[text.n - 1] >= 'a')) continue;
        if (text.p[i] < '0' || text.p[i] > '9') break;
        arch.number = arch.number * 10 + (text.p[i] - '0');
        n_digits++;
    }
    if (i + 1 == text.n && (text.p[i] == 'a' || text.p[i] == 'f')) arch.suffix = text.p[i++];
    if (i != text.n || arch.number < 30 || arch.number > 999) return false;
    *out = arch;
    return true;
}

void cuda_arch_format(struct cuda_arch arch, char out[16]) {
    snprintf(out, 16, "%d%c", arch.number, arch.suffix);
}

static bool is_tegra(int number) {
    return number == 87 || number == 88 || number == 110;
}

bool cuda_arch_runs(struct cuda_arch image, int device) {
    if (image.suffix == 'a') return image.number == device;
    if (is_tegra(device) || is_tegra(image.number)) return image.number == device;
    return image.number / 10 == device / 10 && image.number <= device;
}

int cuda_arch_pick(const struct cuda_arch *images, int n, int device) {
    int best = -1;
    for (int i = 0; i < n; i++) {
        if (!cuda_arch_runs(images[i], device)) continue;
        if (best < 0 || images[i].number > images[best].number ||
            (images[i].number == images[best].number && images[i].suffix > images[best].suffix))
            best = i;
    }
    return best;
}
