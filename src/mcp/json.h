/* SPDX-License-Identifier: MIT */
/* JSON as the server needs it: texts that may be anything, members with defaults, schemas. */
#ifndef CT_MCP_JSON_H
#define CT_MCP_JSON_H

#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* A string of any bytes: what is not UTF-8 becomes U+FFFD, control characters but for line ends and tabs '?'. JSON's
 * null for NULL, or when memory is exhausted. */
json_t *mcp_text(const char *text);
json_t *mcp_textf(const char *fmt, ...) __attribute__((format(printf, 1, 2)));
/* The same, cut in its middle when it is long: names, wherever they are shown. */
json_t *mcp_name(const char *text);
/* mcp_text, or mcp_name, of a JSON string, in which there may be zero bytes: '?' for each. */
json_t *mcp_string(const json_t *string, bool shortens);
/* Cuts a text as mcp_name does, in place: NAME_MAX_BYTES at most. */
void mcp_shorten(char *text);

/* Members; the default where there is none of that type. */
const char *mcp_get_text(const json_t *object, const char *key); /* NULL */
uint64_t mcp_get_count(const json_t *object, const char *key, uint64_t otherwise);
double mcp_get_number(const json_t *object, const char *key, double otherwise);
bool mcp_get_flag(const json_t *object, const char *key);

/*
 * Holds a value against a schema: type, enum, minimum, maximum, maxLength, properties, required, additionalProperties:
 * false, items, maxItems. False: in wrong, what is wrong and where, with the name that may be meant.
 */
bool mcp_schema_check(const json_t *schema, const json_t *value, char *wrong, size_t size);

#endif
