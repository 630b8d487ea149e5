/* What the files of llama-server's protocol share. lcpp: llama.cpp, whose server it is. */
#ifndef MLXCEL_SERVER_WIRE_LCPP_H
#define MLXCEL_SERVER_WIRE_LCPP_H

#include "server/generate.h"

/* A generation whose answer is llama-server's completion; params come from the body. Prompts are the caller's to fill. */
int lcpp_prepare(struct call *c, struct generation **out);
/* Answers 501: the message says what is missing. */
void lcpp_refuse(struct call *c, const char *why);

#endif
