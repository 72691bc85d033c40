/* SPDX-License-Identifier: MIT */
/* See json.h. */
#include "mcp/json.h"

#include <contrail/text.h>

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { NAME_BYTES = 160, NAME_HEAD = 100, PLACE_BYTES = 200, WORDS_MAX = 64 };

/* ---- texts ---- */

/* Characters that nobody sees, or that change how others are seen: directions, marks of order, fillers,
 * tags, selectors of variants, by which any bytes can be hidden. */
static bool
is_hidden(uint32_t c)
{
  static const uint32_t ranges[][2] = {
      {0x0000, 0x0008},   {0x000b, 0x000c},   {0x000e, 0x001f},  {0x007f, 0x009f}, {0x00ad, 0x00ad}, {0x034f, 0x034f},
      {0x061c, 0x061c},   {0x115f, 0x1160},   {0x17b4, 0x17b5},  {0x180b, 0x180f}, {0x200b, 0x200f}, {0x2028, 0x202e},
      {0x2060, 0x206f},   {0x3164, 0x3164},   {0xfe00, 0xfe0d},  {0xfeff, 0xfeff}, {0xffa0, 0xffa0}, {0xfff0, 0xfffb},
      {0x1bca0, 0x1bca3}, {0x1d173, 0x1d17a}, {0xe0000, 0xe0fff}};
  for (size_t i = 0; i < sizeof(ranges) / sizeof(ranges[0]); i++) {
    if (c >= ranges[i][0] && c <= ranges[i][1]) {
      return true;
    }
  }
  return false;
}

/* Bytes of the character that begins there, in UTF-8 that is right, and the character. */
static size_t
decode(const unsigned char *at, uint32_t *c)
{
  size_t length = at[0] < 0x80 ? 1 : at[0] < 0xe0 ? 2 : at[0] < 0xf0 ? 3 : 4;
  *c = length == 1 ? at[0] : at[0] & (0xffu >> (length + 1));
  for (size_t i = 1; i < length; i++) {
    *c = *c << 6 | (at[i] & 0x3f);
  }
  return length;
}

/*
 * Control characters but for line ends and tabs become '?', since a client may show a text on a terminal; and so do
 * those that a model reads and nobody sees.
 */
static void
make_harmless(char *text)
{
  unsigned char *to = (unsigned char *)text;
  for (const unsigned char *at = (unsigned char *)text; *at != '\0';) {
    uint32_t c;
    size_t length = decode(at, &c);
    if (is_hidden(c)) {
      *to++ = '?';
    } else {
      memmove(to, at, length);
      to += length;
    }
    at += length;
  }
  *to = '\0';
}

json_t *
mcp_text(const char *text)
{
  char *copy = text != NULL ? ct_utf8_copy(text) : NULL;
  if (copy != NULL) {
    make_harmless(copy);
  }
  json_t *json = copy != NULL ? json_string(copy) : NULL;
  free(copy);
  return json != NULL ? json : json_null();
}

json_t *
mcp_textf(const char *fmt, ...)
{
  char *text = NULL;
  va_list words;
  va_start(words, fmt);
  int length = vasprintf(&text, fmt, words);
  va_end(words);
  json_t *json = mcp_text(length >= 0 ? text : NULL);
  if (length >= 0) {
    free(text);
  }
  return json;
}

static bool
is_inside_character(const char *at)
{
  return ((unsigned char)*at & 0xc0) == 0x80;
}

void
mcp_shorten(char *text)
{
  static const char dots[] = "...";
  size_t length = strlen(text);
  if (length <= NAME_BYTES) {
    return;
  }
  char *head = text + NAME_HEAD;
  const char *tail = text + length - (NAME_BYTES - NAME_HEAD - (sizeof(dots) - 1));
  while (head > text && is_inside_character(head)) {
    head--;
  }
  while (is_inside_character(tail)) {
    tail++;
  }
  memcpy(head, dots, sizeof(dots) - 1);
  memmove(head + sizeof(dots) - 1, tail, strlen(tail) + 1);
}

json_t *
mcp_name(const char *text)
{
  char *copy = text != NULL ? strdup(text) : NULL;
  if (copy == NULL) {
    return json_null();
  }
  mcp_shorten(copy);
  json_t *json = mcp_text(copy);
  free(copy);
  return json;
}

json_t *
mcp_string(const json_t *string, bool shortens)
{
  size_t length = json_string_length(string);
  char *copy = malloc(length + 1);
  if (copy == NULL) {
    return json_null();
  }
  for (size_t i = 0; i < length; i++) { /* else a text would end there, and hide what comes after */
    char c = json_string_value(string)[i];
    copy[i] = c == '\0' ? '?' : c;
  }
  copy[length] = '\0';
  json_t *json = shortens ? mcp_name(copy) : mcp_text(copy);
  free(copy);
  return json;
}

/* ---- members ---- */

const char *
mcp_get_text(const json_t *object, const char *key)
{
  return json_string_value(json_object_get(object, key));
}

uint64_t
mcp_get_count(const json_t *object, const char *key, uint64_t otherwise)
{
  const json_t *value = json_object_get(object, key);
  return json_is_integer(value) && json_integer_value(value) >= 0 ? (uint64_t)json_integer_value(value) : otherwise;
}

double
mcp_get_number(const json_t *object, const char *key, double otherwise)
{
  const json_t *value = json_object_get(object, key);
  return json_is_number(value) ? json_number_value(value) : otherwise;
}

bool
mcp_get_flag(const json_t *object, const char *key)
{
  return json_is_true(json_object_get(object, key));
}

/* ---- schemas ---- */

struct place {
  char *wrong;
  size_t size;
  char path[PLACE_BYTES]; /* "arguments.args[2]" */
};

static bool check_value(const json_t *schema, const json_t *value, struct place *place);

static bool complain(const struct place *place, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
static bool
complain(const struct place *place, const char *fmt, ...)
{
  char text[400];
  va_list words;
  va_start(words, fmt);
  vsnprintf(text, sizeof(text), fmt, words);
  va_end(words);
  snprintf(place->wrong, place->size, "%s %s", place->path[0] != '\0' ? place->path : "arguments:", text);
  return false;
}

static const char *
type_name(const json_t *value)
{
  return json_is_object(value)    ? "object"
         : json_is_array(value)   ? "array"
         : json_is_string(value)  ? "string"
         : json_is_boolean(value) ? "boolean"
         : json_is_integer(value) ? "integer"
         : json_is_real(value)    ? "number"
                                  : "null";
}

static bool
has_type(const char *type, const json_t *value)
{
  return strcmp(type, type_name(value)) == 0 || (strcmp(type, "number") == 0 && json_is_integer(value));
}

static bool
check_type(const json_t *type, const json_t *value, struct place *place)
{
  char list[100] = "";
  size_t i;
  json_t *one;
  if (type == NULL) {
    return true;
  }
  if (json_is_string(type)) {
    return has_type(json_string_value(type), value) ||
           complain(place, "is of type %s, not %s", json_string_value(type), type_name(value));
  }
  json_array_foreach((json_t *)type, i, one)
  {
    if (has_type(json_string_value(one), value)) {
      return true;
    }
    snprintf(list + strlen(list), sizeof(list) - strlen(list), "%s%s", i == 0 ? "" : " or ", json_string_value(one));
  }
  return complain(place, "is of type %s, not %s", list, type_name(value));
}

/* "a, b, c" and the word among them that is most like the given one. */
static const char *
closest(const char *word, const char *const *words, char *list, size_t size)
{
  list[0] = '\0';
  for (size_t i = 0; words[i] != NULL; i++) {
    size_t at = strlen(list);
    snprintf(list + at, size - at, "%s%s", i == 0 ? "" : ", ", words[i]);
  }
  return ct_closest_word(word, words);
}

static bool
check_enum(const json_t *values, const json_t *value, struct place *place)
{
  const char *words[WORDS_MAX + 1] = {NULL};
  char list[300];
  size_t i;
  json_t *one;
  if (values == NULL || !json_is_string(value)) {
    return true;
  }
  json_array_foreach((json_t *)values, i, one)
  {
    if (strcmp(json_string_value(one), json_string_value(value)) == 0) {
      return true;
    }
    if (i < WORDS_MAX) {
      words[i] = json_string_value(one);
    }
  }
  const char *likely = closest(json_string_value(value), words, list, sizeof(list));
  return complain(place, "is one of %s, not '%.60s'%s%s", list, json_string_value(value),
                  likely != NULL ? "; perhaps " : "", likely != NULL ? likely : "");
}

static bool
check_bounds(const json_t *schema, const json_t *value, struct place *place)
{
  const json_t *least = json_object_get(schema, "minimum"), *most = json_object_get(schema, "maximum"),
               *length = json_object_get(schema, "maxLength");
  if (json_is_number(value) && ((least != NULL && json_number_value(value) < json_number_value(least)) ||
                                (most != NULL && json_number_value(value) > json_number_value(most)))) {
    return complain(place, "is from %g to %g, not %g", least != NULL ? json_number_value(least) : 0,
                    most != NULL ? json_number_value(most) : 1e15, json_number_value(value));
  }
  if (json_is_string(value) && length != NULL && json_string_length(value) > (size_t)json_integer_value(length)) {
    return complain(place, "has at most %lld bytes, not %zu", (long long)json_integer_value(length),
                    json_string_length(value));
  }
  if (json_is_string(value) && strlen(json_string_value(value)) != json_string_length(value)) {
    return complain(place, "has a NUL character in it");
  }
  return true;
}

static bool
check_items(const json_t *schema, const json_t *value, struct place *place)
{
  const json_t *items = json_object_get(schema, "items"), *most = json_object_get(schema, "maxItems");
  size_t i, length = strlen(place->path);
  json_t *one;
  if (most != NULL && json_array_size(value) > (size_t)json_integer_value(most)) {
    return complain(place, "has at most %lld items, not %zu", (long long)json_integer_value(most),
                    json_array_size(value));
  }
  json_array_foreach((json_t *)value, i, one)
  {
    snprintf(place->path + length, sizeof(place->path) - length, "[%zu]", i);
    if (items != NULL && !check_value(items, one, place)) {
      return false;
    }
    place->path[length] = '\0';
  }
  return true;
}

static bool
check_unknown(const json_t *properties, const char *key, struct place *place)
{
  const char *words[WORDS_MAX + 1] = {NULL}, *name;
  char list[700];
  size_t count = 0;
  json_t *one;
  json_object_foreach((json_t *)properties, name, one)
  {
    if (count < WORDS_MAX) {
      words[count++] = name;
    }
  }
  const char *likely = closest(key, words, list, sizeof(list));
  return complain(place, "there is no '%.60s'%s%s; there are %.250s", key, likely != NULL ? "; perhaps " : "",
                  likely != NULL ? likely : "", list);
}

static bool
check_members(const json_t *schema, const json_t *value, struct place *place)
{
  const json_t *properties = json_object_get(schema, "properties"), *required = json_object_get(schema, "required"),
               *others = json_object_get(schema, "additionalProperties");
  size_t i, length = strlen(place->path);
  const char *key;
  json_t *one;
  json_array_foreach((json_t *)required, i, one)
  {
    if (json_object_get(value, json_string_value(one)) == NULL) {
      return complain(place, "'%s' is missing", json_string_value(one));
    }
  }
  json_object_foreach((json_t *)value, key, one)
  {
    const json_t *inner = json_object_get(properties, key);
    if (inner == NULL && json_is_false(others)) {
      return check_unknown(properties, key, place);
    }
    inner = inner == NULL && json_is_object(others) ? others : inner;
    snprintf(place->path + length, sizeof(place->path) - length, "%s%.60s", length != 0 ? "." : "", key);
    if (inner != NULL && !check_value(inner, one, place)) {
      return false;
    }
    place->path[length] = '\0';
  }
  return true;
}

static bool
check_value(const json_t *schema, const json_t *value, struct place *place)
{
  return check_type(json_object_get(schema, "type"), value, place) &&
         check_enum(json_object_get(schema, "enum"), value, place) && check_bounds(schema, value, place) &&
         (!json_is_array(value) || check_items(schema, value, place)) &&
         (!json_is_object(value) || check_members(schema, value, place));
}

bool
mcp_schema_check(const json_t *schema, const json_t *value, char *wrong, size_t size)
{
  struct place place = {.wrong = wrong, .size = size};
  return check_value(schema, value, &place);
}
