/* SPDX-License-Identifier: MIT */
#include "views/value_sink.h"

#include "base/json.h"

#include <assert.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

/* ---- Text ---- */

static struct ct_value_text *
text_of(struct ct_value_sink *sink, const char *key)
{
  struct ct_text_sink *text = (struct ct_text_sink *)sink;
  ct_value_put_text(text->out, text->goes_on ? "," : "");
  text->goes_on = true;
  if (key != NULL) {
    ct_value_put_json_string(text->out, key);
    ct_value_put_text(text->out, ":");
  }
  return text->out;
}

static void
text_open(struct ct_value_sink *sink, const char *key, bool is_list)
{
  ct_value_put_text(text_of(sink, key), is_list ? "[" : "{");
  ((struct ct_text_sink *)sink)->goes_on = false;
}

static void
text_close(struct ct_value_sink *sink, bool is_list)
{
  struct ct_text_sink *text = (struct ct_text_sink *)sink;
  ct_value_put_text(text->out, is_list ? "]" : "}");
  text->goes_on = true;
}

static void
text_string(struct ct_value_sink *sink, const char *key, const char *string)
{
  ct_value_put_json_string(text_of(sink, key), string);
}

static void
text_integer(struct ct_value_sink *sink, const char *key, int64_t value)
{
  ct_value_put_format(text_of(sink, key), "%" PRId64, value);
}

static void
text_number(struct ct_value_sink *sink, const char *key, const char *digits)
{
  ct_value_put_text(text_of(sink, key), digits != NULL ? digits : "null");
}

static void
text_boolean(struct ct_value_sink *sink, const char *key, bool value)
{
  ct_value_put_text(text_of(sink, key), value ? "true" : "false");
}

void
ct_text_sink_init(struct ct_text_sink *sink, struct ct_value_text *out)
{
  const struct ct_value_sink functions = {text_open, text_close, text_string, text_integer, text_number, text_boolean};
  *sink = (struct ct_text_sink){.sink = functions, .out = out};
}

/* ---- json_t ---- */

/* Takes the value. */
static void
put(struct ct_json_sink *json, const char *key, json_t *value)
{
  json_t *place = json->depth != 0 ? json->places[json->depth - 1] : NULL;
  if (json->depth == 0) {
    json_decref(json->whole);
    json->whole = value;
  } else if (key != NULL) {
    json_object_set_new(place, key, value);
  } else {
    json_array_append_new(place, value);
  }
}

static void
json_open(struct ct_value_sink *sink, const char *key, bool is_list)
{
  struct ct_json_sink *json = (struct ct_json_sink *)sink;
  json_t *value = is_list ? json_array() : json_object();
  assert(json->depth < CT_SINK_DEPTH);
  put(json, key, value);
  json->places[json->depth++] = value;
}

static void
json_close(struct ct_value_sink *sink, bool is_list)
{
  (void)is_list;
  ((struct ct_json_sink *)sink)->depth--;
}

static void
json_put_string(struct ct_value_sink *sink, const char *key, const char *string)
{
  put((struct ct_json_sink *)sink, key, ct_json_string(string));
}

static void
json_put_integer(struct ct_value_sink *sink, const char *key, int64_t value)
{
  put((struct ct_json_sink *)sink, key, json_integer(value));
}

/* Of which kind it is the digits say, as in the text. */
static void
json_put_number(struct ct_value_sink *sink, const char *key, const char *digits)
{
  json_t *value = digits == NULL                   ? json_null()
                  : strpbrk(digits, ".eE") != NULL ? json_real(strtod(digits, NULL))
                                                   : json_integer(strtoll(digits, NULL, 10));
  put((struct ct_json_sink *)sink, key, value);
}

static void
json_put_boolean(struct ct_value_sink *sink, const char *key, bool value)
{
  put((struct ct_json_sink *)sink, key, json_boolean(value));
}

void
ct_json_sink_init(struct ct_json_sink *sink)
{
  const struct ct_value_sink functions = {json_open,        json_close,      json_put_string,
                                          json_put_integer, json_put_number, json_put_boolean};
  *sink = (struct ct_json_sink){.sink = functions};
}
