/* stub */
#include "file/gguf_open.h"
int gguf_tokenizer(const struct gguf *g, struct sb *out, struct err *err) { (void)out; return err_set(err, ERR_ENOTFOUND, "%s", g->source.name);}
int gguf_tokenizer_config(const struct gguf *g, struct sb *out, struct err *err){ (void)out; return err_set(err, ERR_ENOTFOUND, "%s", g->source.name);}
int gguf_generation_config(const struct gguf *g, struct sb *out, struct err *err){ (void)err;(void)g; sb_puts(out,"{}"); return 0;}
