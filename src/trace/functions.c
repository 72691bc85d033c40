/* SPDX-License-Identifier: MIT */
/*
 * functions.tsv: id, module, address, size, mode and raw name of each function, one line each.
 *
 * The text is read in one piece and cut into strings in place. A line that is not whole (no line
 * end, a field missing, an id that is no index) is passed over, its id has no function then.
 * Names are demangled when first asked for and kept; the trace's lock covers that.
 */
#include "trace/atf_internal.h"

#include "base/demangle.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define IDS_MAX     (1u << 24) /* the ring has 23 bits for one */
#define UNKNOWN_MAX (1u << 21) /* lines that are gone */

/* Digits of base 10 or 16 up to a tab; NULL when there are none or the number is too large. */
static const char *
parse_number(const char *p, unsigned base, uint64_t max, uint64_t *out)
{
  uint64_t value = 0;
  const char *begin = p;
  for (;; p++) {
    unsigned digit = (unsigned char)*p - '0';
    if (digit > 9) {
      digit = ((unsigned char)*p | 0x20u) - 'a';
      if (base == 10 || digit > 5) {
        break;
      }
      digit += 10;
    }
    if (value > (max - digit) / base) {
      return NULL;
    }
    value = value * base + digit;
  }
  if (p == begin || *p != '\t') {
    return NULL;
  }
  *out = value;
  return p + 1;
}

bool
ct_function_line(const char *line, struct ct_trace_function *out)
{
  uint64_t id, module;
  const char *p = parse_number(line, 10, UINT32_MAX, &id);
  if (p == NULL) {
    return false;
  }
  p = parse_number(p, 10, UINT32_MAX, &module);
  if (p == NULL) {
    return false;
  }
  p = parse_number(p[0] == '0' && p[1] == 'x' ? p + 2 : p, 16, UINT64_MAX, &out->address);
  if (p == NULL) {
    return false;
  }
  p = parse_number(p, 10, UINT64_MAX, &out->size);
  if (p == NULL) {
    return false;
  }
  const char *tab = strchr(p, '\t');
  if (tab == NULL) {
    return false;
  }
  out->enter_only = strncmp(p, "enter\t", 6) == 0;
  out->id = (uint32_t)id;
  out->module = (uint32_t)module;
  out->raw_name = tab + 1;
  out->name = NULL;
  return true;
}

/* The number of lines, and in *ids one more than the highest id: in a child that was forked after an exec they begin
 * far up. */
static size_t
count_lines(const char *text, size_t size, size_t *ids)
{
  size_t lines = 0;
  const char *end = text + size;
  *ids = 0;
  for (const char *p = text, *next; (next = memchr(p, '\n', (size_t)(end - p))) != NULL; p = next + 1) {
    unsigned long id = strtoul(p, NULL, 10); /* ends at the tab, or at the line's end */
    if (id < IDS_MAX && id >= *ids) {
      *ids = id + 1;
    }
    lines++;
  }
  return lines;
}

/* As many as the manifest knows, so that each whose line is gone stays apart from the others. */
static size_t
count_functions(const struct ct_trace *trace, size_t ids)
{
  json_int_t known = json_integer_value(json_object_get(trace->manifest, "function_count"));
  return known > 0 && (size_t)known > ids && (size_t)known <= ids + UNKNOWN_MAX ? (size_t)known : ids;
}

int
ct_functions_load(struct ct_trace *trace, struct ct_diag *diag)
{
  size_t size = 0, ids = 0;
  if (trace->atf != NULL) {
    return ct_atf_functions_load(trace, diag);
  }
  int err = ct_trace_read_file(trace, CT_TRACE_FUNCTIONS, &trace->functions_text, &size);
  if (err != CT_OK && err != CT_ENOENT) {
    return ct_fail(diag, err, "cannot read %s/" CT_TRACE_FUNCTIONS ": %s", trace->path, ct_err_text(err));
  }
  trace->bytes += size;
  size_t lines = size == 0 ? 0 : count_lines(trace->functions_text, size, &ids), count = count_functions(trace, ids);
  if (count == 0) {
    return CT_OK;
  }
  trace->functions = calloc(count, sizeof(*trace->functions));
  if (trace->functions == NULL) {
    return ct_fail(diag, CT_ENOMEM, "out of memory for the %zu functions of %s", count, trace->path);
  }
  char *line = trace->functions_text;
  for (size_t i = 0; i < lines; i++) {
    char *end = memchr(line, '\n', (size_t)(trace->functions_text + size - line));
    *end = '\0';
    struct ct_trace_function function;
    if (ct_function_line(line, &function) && function.id < ids && trace->functions[function.id].raw_name == NULL) {
      trace->functions[function.id] = function;
      if (function.id >= trace->function_count) {
        trace->function_count = function.id + 1;
      }
    }
    line = end + 1;
  }
  trace->functions_bytes = size == 0 ? 0 : (uint64_t)(line - trace->functions_text);
  for (size_t id = 0; count > ids && id < count; id++) {
    if (trace->functions[id].raw_name == NULL) {
      trace->functions[id] = (struct ct_trace_function){.id = (uint32_t)id, .module = UINT32_MAX, .raw_name = ""};
    }
  }
  trace->function_count = count > ids ? (uint32_t)count : trace->function_count;
  return CT_OK;
}

void
ct_functions_free(struct ct_trace *trace)
{
  for (uint32_t i = 0; i < trace->function_count; i++) {
    const struct ct_trace_function *function = &trace->functions[i];
    if (function->name != function->raw_name && !ct_function_is_unknown(function)) {
      free((char *)trace->functions[i].name);
    }
  }
  free(trace->functions);
  free(trace->functions_text);
}

uint32_t
ct_trace_function_count(const struct ct_trace *trace)
{
  return trace->function_count;
}

uint64_t
ct_trace_functions_bytes(const struct ct_trace *trace)
{
  return trace->functions_bytes;
}

/* Its line has not been read, or is gone. */
bool
ct_function_is_unknown(const struct ct_trace_function *function)
{
  return function->module == UINT32_MAX && function->address == 0 && function->raw_name != NULL &&
         function->raw_name[0] == '\0';
}

/* Until the trace is closed: its line may come yet, and the name that it had be pointed to. */
static const char *
name_unknown(struct ct_trace *trace, const struct ct_trace_function *function)
{
  enum { NAME_CHARS = 24 };
  struct ct_functions_text *text = malloc(sizeof(*text) + NAME_CHARS);
  if (text == NULL) {
    return function->raw_name;
  }
  snprintf(text->text, NAME_CHARS, "(function %u)", function->id);
  text->next = trace->more_functions;
  trace->more_functions = text;
  return text->text;
}

static const char *
make_name(struct ct_trace *trace, const struct ct_trace_function *function)
{
  if (ct_function_is_unknown(function)) {
    return name_unknown(trace, function);
  }
  if (function->raw_name[0] != '\0') {
    const char *name = ct_demangle(function->raw_name);
    return name != NULL ? name : function->raw_name;
  }
  const char *module = ct_trace_module_name(trace, function->module);
  size_t size = strlen(module) + 24;
  char *name = malloc(size);
  if (name == NULL) {
    return function->raw_name;
  }
  snprintf(name, size, "%s+0x%llx", module, (unsigned long long)function->address);
  return name;
}

bool
ct_trace_knows_modules(const struct ct_trace *trace)
{
  for (uint32_t i = 0; i < trace->function_count; i++) {
    uint32_t number = trace->functions[i].module;
    if (number != UINT32_MAX && (number >= trace->module_count || trace->modules[number].path[0] == '\0')) {
      return false;
    }
  }
  return true;
}

const struct ct_trace_function *
ct_trace_function(struct ct_trace *trace, uint32_t id)
{
  if (id >= trace->function_count || trace->functions[id].raw_name == NULL) {
    return NULL;
  }
  struct ct_trace_function *function = &trace->functions[id];
  /* Acquire: pairs with the release below, so that the text is there when the pointer is. A structure of the library,
   * which C++ reads too, has no _Atomic. */
  if (__atomic_load_n(&function->name, __ATOMIC_ACQUIRE) == NULL) {
    pthread_mutex_lock(&trace->lock);
    if (function->name == NULL) {
      __atomic_store_n(&function->name, make_name(trace, function), __ATOMIC_RELEASE);
    }
    pthread_mutex_unlock(&trace->lock);
  }
  return function;
}
