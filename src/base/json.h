/* SPDX-License-Identifier: MIT */
/* Text from outside as JSON can have it. */
#ifndef CT_BASE_JSON_H
#define CT_BASE_JSON_H

#include <jansson.h>

/* A string; what is not UTF-8 in it becomes U+FFFD (RFC 8259 has no other text). NULL: out of memory. */
json_t *ct_json_string(const char *text);

#endif
