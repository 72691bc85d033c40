/* SPDX-License-Identifier: MIT */
/*
 * Where values go that have JSON's structure: into text, for who writes it, or into json_t, for who looks at it. `key`
 * is NULL in a list. What does not fit in memory is left out.
 */
#ifndef CT_VIEWS_VALUE_SINK_H
#define CT_VIEWS_VALUE_SINK_H

#include "views/value_text.h"

#include <jansson.h>
#include <stdbool.h>
#include <stdint.h>

enum { CT_SINK_DEPTH = 8 }; /* values have half of it */

struct ct_value_sink {
  void (*open)(struct ct_value_sink *sink, const char *key, bool is_list);
  void (*close)(struct ct_value_sink *sink, bool is_list);
  void (*string)(struct ct_value_sink *sink, const char *key, const char *text);
  void (*integer)(struct ct_value_sink *sink, const char *key, int64_t value);
  /* A finite number, by its digits; NULL: null. */
  void (*number)(struct ct_value_sink *sink, const char *key, const char *digits);
  void (*boolean)(struct ct_value_sink *sink, const char *key, bool value);
};

struct ct_text_sink {
  struct ct_value_sink sink;
  struct ct_value_text *out;
  bool goes_on; /* something is before it, at the same place */
};

struct ct_json_sink {
  struct ct_value_sink sink;
  json_t *places[CT_SINK_DEPTH]; /* borrowed, but for the first */
  uint32_t depth;
  json_t *whole; /* NULL: nothing has come, or there is no memory */
};

void ct_text_sink_init(struct ct_text_sink *sink, struct ct_value_text *out);
void ct_json_sink_init(struct ct_json_sink *sink);

#endif
