/* SPDX-License-Identifier: MIT */
/* Text from outside as JSON can have it. */
#ifndef CT_BASE_JSON_H
#define CT_BASE_JSON_H

#include <jansson.h>
#include <stdint.h>

/* A string; what is not UTF-8 in it becomes U+FFFD (RFC 8259 has no other text). NULL: out of memory. */
json_t *ct_json_string(const char *text);
/* The same as JSON's text, with its quotes, for free; NULL: out of memory. */
char *ct_json_quoted(const char *text);

/* An integer of an object; 0 where there is none, or a negative one. */
uint64_t ct_json_get(const json_t *object, const char *key);
/* Sets one; jansson has none above INT64_MAX, which stands for those. */
void ct_json_put(json_t *object, const char *key, uint64_t value);

#endif
