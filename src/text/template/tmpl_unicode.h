/* What Python's str knows of characters: white space, classes, case mappings with their special cases. */
#ifndef MLXCEL_TEXT_TEMPLATE_TMPL_UNICODE_H
#define MLXCEL_TEXT_TEMPLATE_TMPL_UNICODE_H

#include "base/str.h"

bool uni_is_space(uint32_t code);      /* str.isspace */
bool uni_is_line_break(uint32_t code); /* str.splitlines; \r\n is the caller's */
bool uni_is_word(uint32_t code);       /* \w of a regular expression */
bool uni_is_printable(uint32_t code);
bool uni_is_alpha(uint32_t code);
bool uni_is_decimal(uint32_t code);
bool uni_is_digit(uint32_t code);
bool uni_is_numeric(uint32_t code);
bool uni_is_lower(uint32_t code);
bool uni_is_upper(uint32_t code);
bool uni_is_title(uint32_t code);
bool uni_is_cased(uint32_t code);
bool uni_is_case_ignorable(uint32_t code);

/* Up to three characters; returns how many. lower does not see context: the final sigma is the caller's. */
int uni_upper(uint32_t code, uint32_t out[3]);
int uni_lower(uint32_t code, uint32_t out[3]);
int uni_title(uint32_t code, uint32_t out[3]);
int uni_fold(uint32_t code, uint32_t out[3]);

struct str uni_strip_left(struct str s);
struct str uni_strip_right(struct str s);

#endif
