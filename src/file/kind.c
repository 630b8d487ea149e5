/* Kinds of files, in a table: the first row that fits is the answer. */
#include "file/kind.h"

#include "base/str.h"
#include "os/os.h"

#include <string.h>

#define GIVE_MODEL "give a model folder, a .safetensors or .gguf file, or OWNER/NAME"
#define TAKE_SAFETENSORS "take the .safetensors files of the same model"
#define UNPACK "unpack it and give the folder"
#define PICKLE "a file of PyTorch's pickled weights, which can run any program when it is read,"

enum { HEAD_BYTES = 512 };

struct head {
    struct str name, bytes;
};

static bool is_pickle(const struct head *h) {
    return h->bytes.n > 2 && (unsigned char)h->bytes.p[0] == 0x80 && (unsigned char)h->bytes.p[1] < 6;
}

/* PyTorch's newer files: the first entry of the archive is the pickle. */
static bool is_pickle_archive(const struct head *h) {
    return str_starts(h->bytes, STR("PK\3\4")) && str_find(h->bytes, STR("data.pkl"), 0) != STR_NONE;
}

static bool is_tar(const struct head *h) {
    return h->bytes.n > 262 && memcmp(h->bytes.p + 257, "ustar", 5) == 0;
}

/* The length of the header, which fits into seven bytes, and the header. */
static bool is_safetensors(const struct head *h) {
    return str_ends(h->name, STR(".safetensors")) || (h->bytes.n > 8 && h->bytes.p[7] == 0 && h->bytes.p[8] == '{');
}

/* A tokenizer of SentencePiece: pieces, each a message of its own. */
static bool is_pieces(const struct head *h) {
    return h->bytes.n > 8 && h->bytes.p[0] == '\n' && h->bytes.p[2] == '\n';
}

static bool is_text(const struct head *h) {
    for (size_t i = 0; i < h->bytes.n; i++) {
        unsigned char c = (unsigned char)h->bytes.p[i];
        if (c < 32 && c != '\n' && c != '\r' && c != '\t') return false;
    }
    return h->bytes.n > 0;
}

static bool is_json(const struct head *h) {
    struct str text = str_trim(h->bytes);
    return is_text(h) && text.n > 0 && (text.p[0] == '{' || text.p[0] == '[');
}

static bool is_empty(const struct head *h) {
    return h->bytes.n == 0;
}

/* fits, or else magic and name as far as they are given; fix NULL: what every refusal says. in_folder: the model is the folder that has it. */
static const struct kind {
    const char *magic, *name;
    bool (*fits)(const struct head *h);
    const char *what, *fix;
    bool in_folder;
} kinds[] = {
    {.fits = is_empty, .what = "empty"},
    {.fits = is_pickle, .what = PICKLE, .fix = TAKE_SAFETENSORS},
    {.fits = is_pickle_archive, .what = PICKLE, .fix = TAKE_SAFETENSORS},
    {.magic = "PK\3\4", .name = "*.bin", .what = PICKLE, .fix = TAKE_SAFETENSORS},
    {.magic = "PK\3\4", .name = "*.pt", .what = PICKLE, .fix = TAKE_SAFETENSORS},
    {.magic = "PK\3\4", .name = "*.pth", .what = PICKLE, .fix = TAKE_SAFETENSORS},
    {.magic = "PK\3\4", .name = "*.ckpt", .what = PICKLE, .fix = TAKE_SAFETENSORS},
    {.magic = "PK\3\4", .name = "*.npz", .what = "a file of NumPy's arrays", .fix = TAKE_SAFETENSORS},
    {.magic = "\x93NUMPY", .what = "a file of NumPy's arrays", .fix = TAKE_SAFETENSORS},
    {.magic = "\x89HDF", .what = "a file of Keras or TensorFlow", .fix = TAKE_SAFETENSORS},
    {.name = "*.onnx", .what = "a file of ONNX", .fix = TAKE_SAFETENSORS},
    {.magic = "lmgg", .what = "a file of GGML from before GGUF", .fix = "take a .gguf file of the same model"},
    {.magic = "fmgg", .what = "a file of GGML from before GGUF", .fix = "take a .gguf file of the same model"},
    {.magic = "tjgg", .what = "a file of GGML from before GGUF", .fix = "take a .gguf file of the same model"},
    {.magic = "PK\3\4", .what = "a ZIP archive", .fix = UNPACK},
    {.fits = is_tar, .what = "a tar archive", .fix = UNPACK},
    {.magic = "\x1f\x8b", .what = "a compressed file", .fix = UNPACK},
    {.magic = "BZh", .what = "a compressed file", .fix = UNPACK},
    {.magic = "\xfd\x37zXZ", .what = "a compressed file", .fix = UNPACK},
    {.magic = "\x28\xb5\x2f\xfd", .what = "a compressed file", .fix = UNPACK},
    {.magic = "7z\xbc\xaf", .what = "a compressed file", .fix = UNPACK},
    {.magic = "\x89PNG", .what = "a picture", .fix = "pictures go with --image FILE"},
    {.magic = "\xff\xd8\xff", .what = "a picture", .fix = "pictures go with --image FILE"},
    {.magic = "GIF8", .what = "a picture", .fix = "pictures go with --image FILE"},
    {.magic = "\x7f\x45LF", .what = "a program"},
    {.magic = "MZ", .what = "a program"},
    {.magic = "%PDF", .what = "a PDF document"},
    {.fits = is_pieces, .what = "a tokenizer", .in_folder = true},
    {.fits = is_json, .what = "JSON", .in_folder = true},
    {.name = "*.jinja", .what = "a chat template", .in_folder = true},
    {.name = "*.tiktoken", .what = "a tokenizer", .in_folder = true},
    {.fits = is_text, .what = "a text"},
    {.what = "a file of another kind"},
};

static const struct kind *kind_of(const struct head *h) {
    const struct kind *k = kinds;
    for (;; k++) {
        bool fits = k->fits ? k->fits(h) : (!k->magic || str_starts(h->bytes, str_of(k->magic)));
        if (fits && (!k->name || str_glob(str_of(k->name), h->name))) return k;
    }
}

bool file_kind_is_text_part(const char *path) {
    static const char *const patterns[] = {"*.json", "*.model", "*.model.v*", "*.tiktoken", "*.jinja"};
    for (size_t i = 0; i < sizeof patterns / sizeof *patterns; i++)
        if (str_glob(str_of(patterns[i]), str_of(path))) return true;
    return false;
}

static int read_head(const char *path, char head[HEAD_BYTES], struct str *out, struct err *err) {
    struct os_file *f;
    uint64_t size = 0;
    TRY(os_file_open(path, OS_READ, &f, err));
    int code = os_file_size(f, &size, err);
    size_t n = size < HEAD_BYTES ? (size_t)size : HEAD_BYTES;
    if (!code) code = os_file_read_at(f, head, n, 0, err);
    os_file_close(f);
    *out = str_n(head, n);
    return code;
}

int file_kind_check_bytes(const char *path, struct str bytes, struct err *err) {
    struct head h = {.name = str_of(path), .bytes = bytes.n > HEAD_BYTES ? str_sub(bytes, 0, HEAD_BYTES) : bytes};
    if (str_starts(h.bytes, STR("GGUF")) || is_safetensors(&h)) return ERR_OK;
    const struct kind *k = kind_of(&h);
    if (k->in_folder) {
        size_t cut = h.name.n;
        while (cut > 0 && h.name.p[cut - 1] != '/' && h.name.p[cut - 1] != '\\') cut--;
        struct str folder = cut > 1 ? str_sub(h.name, 0, cut - 1) : cut ? STR("/") : STR(".");
        return err_set(err, ERR_EFORMAT,
                       "%s is %s and no model; give the model's folder (perhaps \"%.*s\"), a .safetensors or .gguf file, or OWNER/NAME",
                       path, k->what, STR_ARG(folder));
    }
    return err_set(err, ERR_EFORMAT, "%s is %s and no model; %s", path, k->what, k->fix ? k->fix : GIVE_MODEL);
}

int file_kind_check(const char *path, struct err *err) {
    char head[HEAD_BYTES];
    struct str bytes;
    TRY(read_head(path, head, &bytes, err));
    return file_kind_check_bytes(path, bytes, err);
}
