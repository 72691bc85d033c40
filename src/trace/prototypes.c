/* SPDX-License-Identifier: MIT */
/*
 * prototypes.tsv: what functions take and give, of those that have values in the trace. The first line has a checksum
 * of all others, so that a damaged file gives no wrong types: none is taken then. Read when somebody asks.
 */
#include "trace/reader_internal.h"

#include "base/crc32c.h"

#include <contrail/text.h>

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

struct ct_trace_prototypes {
  char *text;             /* UTF-8, line ends made zero bytes */
  const char **of;        /* for each function the fields after its id; NULL: none */
  const char **constants; /* the lists, by number from 1 up */
  uint32_t constants_count;
  struct ct_trace_object *objects;
  size_t object_count;
  const char *damage; /* NULL: none */
};

/* Digits and a tab; what comes after, or NULL. */
static char *
take_id(char *p, uint32_t *id)
{
  char *end;
  if (*p < '0' || *p > '9') {
    return NULL;
  }
  unsigned long long value = strtoull(p, &end, 10);
  *id = (uint32_t)value;
  return *end == '\t' && value <= UINT32_MAX ? end + 1 : NULL;
}

/* The text after the first line when that is right. */
static char *
check_first_line(char *text, size_t size)
{
  char expected[sizeof(CT_PROTOTYPES_HEAD) + 16];
  char *end = memchr(text, '\n', size);
  if (end == NULL || memchr(text, '\0', size) != NULL) {
    return NULL;
  }
  uint32_t crc = ct_crc32c(0, end + 1, size - (size_t)(end + 1 - text));
  int length = snprintf(expected, sizeof(expected), "%s%08" PRIx32 "\n", CT_PROTOTYPES_HEAD, crc);
  return end + 1 - text == length && memcmp(text, expected, (size_t)length) == 0 ? end + 1 : NULL;
}

/* The fields of an object after the function's id; false when they are none. */
static bool
take_object(const struct ct_trace *trace, struct ct_trace_prototypes *prototypes, uint32_t fn, char *fields)
{
  char *end;
  struct ct_trace_object object = {.fn = fn, .address = strtoull(fields, &end, 16)};
  if (end == fields || *end != '\t') {
    return false;
  }
  fields = end + 1;
  object.size = strtoull(fields, &end, 10);
  if (end == fields || *end != '\t' || end[1] == '\0') {
    return false;
  }
  object.name = end + 1;
  size_t n = prototypes->object_count;
  if (fn >= trace->function_count || object.size > INT64_MAX || object.address > INT64_MAX) {
    return true; /* of no use */
  }
  if ((n & (n - 1)) == 0) {
    struct ct_trace_object *grown = reallocarray(prototypes->objects, n == 0 ? 1 : 2 * n, sizeof(*grown));
    if (grown == NULL) {
      return false;
    }
    prototypes->objects = grown;
  }
  prototypes->objects[prototypes->object_count++] = object;
  return true;
}

/* One line; false when it is none. */
static bool
take_line(const struct ct_trace *trace, struct ct_trace_prototypes *prototypes, char *line)
{
  uint32_t id;
  if ((line[0] == 0 || strchr("feo", line[0]) == NULL) || line[1] != '\t' || (line[2] < '0' || line[2] > '9')) {
    return line[0] >= 'a' && line[0] <= 'z' && line[1] == '\t'; /* a kind that is not known */
  }
  char *fields = take_id(line + 2, &id);
  if (fields == NULL) {
    return false;
  }
  if (line[0] == 'o') {
    return take_object(trace, prototypes, id, fields);
  }
  if (line[0] == 'f') {
    if (id < trace->function_count) {
      prototypes->of[id] = fields;
    }
    return true;
  }
  uint32_t n = prototypes->constants_count;
  if (id != n + 1) {
    return false;
  }
  if ((n & (n - 1)) == 0) {
    const char **grown = reallocarray(prototypes->constants, n == 0 ? 1 : 2 * (size_t)n, sizeof(*grown));
    if (grown == NULL) {
      return false;
    }
    prototypes->constants = grown;
  }
  prototypes->constants[prototypes->constants_count++] = fields;
  return true;
}

static void
load(struct ct_trace *trace, struct ct_trace_prototypes *prototypes)
{
  char *raw, *end;
  size_t size;
  int code = ct_trace_read_file(trace, CT_TRACE_PROTOTYPES, &raw, &size);
  if (code != CT_OK) {
    prototypes->damage = code == CT_ENOENT ? NULL : "cannot be read";
    return;
  }
  char *lines = check_first_line(raw, size);
  prototypes->damage = lines == NULL ? "is damaged" : NULL;
  prototypes->text = lines != NULL ? ct_utf8_copy(lines) : NULL;
  prototypes->of = calloc((size_t)trace->function_count + 1, sizeof(*prototypes->of));
  free(raw);
  if (prototypes->text == NULL || prototypes->of == NULL) {
    return;
  }
  for (char *line = prototypes->text; (end = strchr(line, '\n')) != NULL; line = end + 1) {
    *end = '\0';
    if (!take_line(trace, prototypes, line)) {
      prototypes->damage = "has lines that are none";
    }
  }
}

static const struct ct_trace_prototypes *
load_once(struct ct_trace *trace)
{
  pthread_mutex_lock(&trace->lock);
  if (trace->prototypes == NULL && (trace->prototypes = calloc(1, sizeof(*trace->prototypes))) != NULL) {
    load(trace, trace->prototypes);
  }
  pthread_mutex_unlock(&trace->lock);
  return trace->prototypes;
}

void
ct_trace_prototypes_free(struct ct_trace *trace)
{
  if (trace->prototypes != NULL) {
    free(trace->prototypes->text);
    free(trace->prototypes->of);
    free(trace->prototypes->constants);
    free(trace->prototypes->objects);
    free(trace->prototypes);
  }
}

const char *
ct_trace_prototype(struct ct_trace *trace, uint32_t fn)
{
  const struct ct_trace_prototypes *prototypes = load_once(trace);
  bool has = prototypes != NULL && prototypes->text != NULL && prototypes->of != NULL && fn < trace->function_count;
  return has ? prototypes->of[fn] : NULL;
}

const char *
ct_trace_constants(struct ct_trace *trace, uint32_t number)
{
  const struct ct_trace_prototypes *prototypes = load_once(trace);
  bool has = prototypes != NULL && number != 0 && number <= prototypes->constants_count;
  return has ? prototypes->constants[number - 1] : NULL;
}

const char *
ct_trace_prototypes_damage(struct ct_trace *trace)
{
  const struct ct_trace_prototypes *prototypes = load_once(trace);
  return prototypes != NULL ? prototypes->damage : "cannot be read: out of memory";
}

const struct ct_trace_object *
ct_trace_objects(struct ct_trace *trace, size_t *count)
{
  const struct ct_trace_prototypes *prototypes = load_once(trace);
  *count = prototypes != NULL ? prototypes->object_count : 0;
  return prototypes != NULL ? prototypes->objects : NULL;
}
