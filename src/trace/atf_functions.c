/* SPDX-License-Identifier: MIT */
/*
 * The functions of an ATF directory: functions.tsv of ours (module id, symbol index, address, size, mode, raw name in a
 * line), or tables in the manifest, which are made the same text. Our ids are positions in the order of the files' ids.
 */
#include "trace/atf_internal.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

void
ct_atf_free(struct ct_atf *atf)
{
  if (atf != NULL) {
    json_decref(atf->manifest);
    free(atf->functions);
    free(atf);
  }
}

uint32_t
ct_atf_function(const struct ct_atf *atf, uint64_t function)
{
  uint32_t low = 0, high = atf->function_count;
  while (low < high) {
    uint32_t middle = low + (high - low) / 2;
    if (atf->functions[middle] < function) {
      low = middle + 1;
    } else {
      high = middle;
    }
  }
  return low < atf->function_count && atf->functions[low] == function ? low : atf->function_count;
}

/* A line for each entry of a module's table: an object, or a name alone; its position is the symbol index. */
static void
put_table(FILE *out, uint64_t module, const json_t *table)
{
  for (size_t i = 0; i < json_array_size(table); i++) {
    const json_t *item = json_array_get(table, i);
    const char *name = json_string_value(json_is_string(item) ? item : json_object_get(item, "name"));
    json_int_t address = json_integer_value(json_object_get(item, "address"));
    json_int_t size = json_integer_value(json_object_get(item, "size"));
    const json_t *index = json_object_get(item, "index");
    fprintf(out, "%llu\t%llu\t%llx\t%llu\tfull\t", (unsigned long long)module,
            json_is_integer(index) ? (unsigned long long)json_integer_value(index) : (unsigned long long)i,
            (unsigned long long)address, size > 0 ? (unsigned long long)size : 0ull);
    for (const char *p = name != NULL ? name : ""; *p != '\0'; p++) {
      putc(*p == '\n' || *p == '\r' ? '?' : *p, out);
    }
    putc('\n', out);
  }
}

static int
tables_as_text(struct ct_trace *trace, size_t *size)
{
  const json_t *modules = json_object_get(trace->atf->manifest, "modules");
  FILE *out = open_memstream(&trace->functions_text, size);
  if (out == NULL) {
    return CT_ENOMEM;
  }
  for (size_t i = 0; i < json_array_size(modules); i++) {
    const json_t *module = json_array_get(modules, i), *functions = json_object_get(module, "functions");
    const json_t *id = json_object_get(module, "id");
    put_table(out, json_is_integer(id) ? (uint64_t)json_integer_value(id) : i,
              json_is_array(functions) ? functions : json_object_get(functions, "table"));
  }
  return fclose(out) == 0 ? CT_OK : CT_ENOMEM;
}

/* Each is the files' id and, after it, the line. */
struct line {
  uint64_t function;
  struct ct_trace_function what;
};

static int
by_function(const void *a, const void *b)
{
  uint64_t x = ((const struct line *)a)->function, y = ((const struct line *)b)->function;
  return (x > y) - (x < y);
}

/* The lines that are whole, in order. */
static size_t
read_lines(char *text, size_t size, struct line *lines)
{
  size_t count = 0;
  char *end;
  for (char *at = text; (end = memchr(at, '\n', (size_t)(text + size - at))) != NULL; at = end + 1) {
    *end = '\0';
    struct line *line = &lines[count];
    if (ct_function_line(at, &line->what)) {
      line->function = (uint64_t)line->what.id << 32 | line->what.module;
      line->what.module = line->what.id;
      count++;
    }
  }
  qsort(lines, count, sizeof(*lines), by_function);
  return count;
}

/* The position of a module in the manifest's list, by its id there. */
static uint32_t
module_of(const struct ct_trace *trace, uint32_t id)
{
  const json_t *modules = json_object_get(trace->atf->manifest, "modules");
  for (uint32_t i = 0; i < trace->module_count; i++) {
    const json_t *given = json_object_get(json_array_get(modules, i), "id");
    if (json_is_integer(given) ? (uint64_t)json_integer_value(given) == id : i == id) {
      return i;
    }
  }
  return UINT32_MAX;
}

int
ct_atf_functions_load(struct ct_trace *trace, struct ct_diag *diag)
{
  size_t size = 0, most = 0;
  int err = ct_trace_read_file(trace, CT_ATF_FUNCTIONS, &trace->functions_text, &size);
  err = err == CT_ENOENT ? tables_as_text(trace, &size) : err;
  if (err != CT_OK) {
    return ct_fail(diag, err, "cannot read %s/" CT_ATF_FUNCTIONS ": %s", trace->path, ct_err_text(err));
  }
  trace->bytes += size;
  for (size_t i = 0; i < size; i++) {
    most += trace->functions_text[i] == '\n';
  }
  struct line *lines = calloc(most + 1, sizeof(*lines));
  trace->functions = calloc(most + 1, sizeof(*trace->functions));
  trace->atf->functions = calloc(most + 1, sizeof(*trace->atf->functions));
  if (lines == NULL || trace->functions == NULL || trace->atf->functions == NULL || most >= CT_FUNCTION_ID_MAX) {
    free(lines);
    return ct_fail(diag, CT_ENOMEM, "out of memory for the %zu functions of %s", most, trace->path);
  }
  size_t count = read_lines(trace->functions_text, size, lines);
  uint32_t module = UINT32_MAX, id = UINT32_MAX, n = 0;
  for (size_t i = 0; i < count; i++) {
    if (n > 0 && trace->atf->functions[n - 1] == lines[i].function) {
      continue;
    }
    if (lines[i].what.module != id) {
      id = lines[i].what.module;
      module = module_of(trace, id);
    }
    trace->atf->functions[n] = lines[i].function;
    trace->functions[n] = lines[i].what;
    trace->functions[n].id = n;
    trace->functions[n++].module = module;
  }
  trace->function_count = trace->atf->function_count = n;
  free(lines);
  return CT_OK;
}
