/* SPDX-License-Identifier: MIT */
#include "base/json.h"

#include <contrail/text.h>

#include <stdlib.h>

json_t *
ct_json_string(const char *text)
{
  json_t *json = json_string(text);
  if (json != NULL) {
    return json;
  }
  char *clean = ct_utf8_copy(text);
  json = clean != NULL ? json_string(clean) : NULL;
  free(clean);
  return json;
}

char *
ct_json_quoted(const char *text)
{
  json_t *json = ct_json_string(text);
  char *quoted = json != NULL ? json_dumps(json, JSON_ENCODE_ANY) : NULL;
  json_decref(json);
  return quoted;
}

uint64_t
ct_json_get(const json_t *object, const char *key)
{
  json_int_t value = json_integer_value(json_object_get(object, key));
  return value < 0 ? 0 : (uint64_t)value;
}

void
ct_json_put(json_t *object, const char *key, uint64_t value)
{
  json_object_set_new(object, key, json_integer(value <= INT64_MAX ? (json_int_t)value : INT64_MAX));
}
