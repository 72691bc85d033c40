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
