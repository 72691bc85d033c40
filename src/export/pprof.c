/* SPDX-License-Identifier: MIT */
/*
 * profile.proto, gzip: what `go tool pprof` and others read. A sample for each path of calls, innermost function first,
 * with three values: calls, time of its own, time off the processor. Numbers of fields are those of
 * github.com/google/pprof/proto/profile.proto.
 *
 *   Profile:  sample_type 1, sample 2, mapping 3, location 4, function 5, string_table 6, time_nanos 9,
 *             duration_nanos 10, comment 13, default_sample_type 14
 *   Sample:   location_id 1, value 2      Mapping:  id 1, filename 5, has_functions 7, has_filenames 8,
 * has_line_numbers 9 Location: id 1, mapping_id 2, address 3, line 4       Line: function_id 1, line 2 Function: id 1,
 * name 2, system_name 3, filename 4, start_line 5
 *
 * A function has one location of the same number. Strings: first the fixed ones, then three for each function.
 */
#include "export/json.h"
#include "export/sums.h"

#include <contrail/text.h>

enum { NUMBER = 0, BYTES = 2 };
enum string { EMPTY, CALLS, COUNT, TIME, NANOSECONDS, OFF, WRITER, LOST, FIXED_STRINGS };
static const char *const fixed[FIXED_STRINGS] = {
    "", "calls", "count", "time", "nanoseconds", "off", "written by contrail", "some events were lost"};

struct pprof {
  struct ct_sink *out;
  const struct ct_export_job *job;
  const struct ct_paths *paths;
  uint32_t *order, *rank; /* of functions: by name, so that it does not depend on who read which thread first */
  uint32_t names;         /* functions; after these come what is no function, by enum special */
  uint32_t *modules;      /* of each function: the number of its mapping, from 1 on */
  uint32_t *firsts;       /* of each mapping: the first function that has it */
  uint32_t mappings;
};
enum special { OTHER, STACKS, LOST_TIME, SPECIALS };
static const uint32_t specials[SPECIALS] = {CT_PATH_OTHER, CT_PATH_STACKS, CT_PATH_LOST};

static void
put_key(struct ct_sink *out, uint32_t field, uint32_t type)
{
  ct_out_varint(out, field << 3 | type);
}

static unsigned
varint_bytes(uint64_t value)
{
  uint8_t bytes[10];
  return (unsigned)(ct_varint_put(bytes, value) - bytes);
}

/* A message of numbers: fields and values in turn, those that are 0 left out. */
static void
put_numbers(struct ct_sink *out, uint32_t field, const uint64_t (*pairs)[2], unsigned count)
{
  uint8_t bytes[160], *at = bytes;
  for (unsigned i = 0; i < count; i++) {
    if (pairs[i][1] != 0) {
      at = ct_varint_put(ct_varint_put(at, pairs[i][0] << 3 | NUMBER), pairs[i][1]);
    }
  }
  put_key(out, field, BYTES);
  ct_out_varint(out, (uint64_t)(at - bytes));
  ct_out_put(out, bytes, (size_t)(at - bytes));
}

static void
put_string(struct ct_sink *out, const char *text)
{
  char *clean = ct_utf8_copy(text);
  const char *shown = clean != NULL ? clean : "?";
  put_key(out, 6, BYTES);
  ct_out_varint(out, strlen(shown));
  ct_out_text(out, shown);
  free(clean);
}

static uint64_t
number_of(const struct pprof *pprof, uint32_t name)
{
  for (uint32_t i = 0; i < SPECIALS; i++) {
    if (specials[i] == name) {
      return pprof->names + i + 1;
    }
  }
  return (uint64_t)pprof->rank[name] + 1;
}

static void
put_sample(const struct pprof *pprof, uint32_t at)
{
  struct ct_sink *out = pprof->out;
  const struct ct_path *paths = pprof->paths->paths, *path = &paths[at];
  uint64_t values[3] = {path->calls, ct_trace_ticks_ns(pprof->job->trace, path->self_ticks),
                        ct_trace_ticks_ns(pprof->job->trace, path->self_off_ticks)};
  uint64_t locations = 0, numbers = 0;
  if ((values[0] | values[1] | values[2]) == 0) {
    return;
  }
  for (uint32_t up = at; up != CT_PATH_TOP; up = paths[up].parent) {
    locations += varint_bytes(number_of(pprof, paths[up].name));
  }
  for (int i = 0; i < 3; i++) {
    numbers += varint_bytes(values[i]);
  }
  put_key(out, 2, BYTES);
  ct_out_varint(out, 2 + varint_bytes(locations) + locations + varint_bytes(numbers) + numbers);
  put_key(out, 1, BYTES);
  ct_out_varint(out, locations);
  for (uint32_t up = at; up != CT_PATH_TOP; up = paths[up].parent) {
    ct_out_varint(out, number_of(pprof, paths[up].name));
  }
  put_key(out, 2, BYTES);
  ct_out_varint(out, numbers);
  for (int i = 0; i < 3; i++) {
    ct_out_varint(out, values[i]);
  }
}

static int
compare(const void *a, const void *b, void *names)
{
  return ct_view_names_compare(names, *(const uint32_t *)a, *(const uint32_t *)b);
}

/* The i-th function. */
static const struct ct_view_name *
name_at(const struct pprof *pprof, uint32_t i)
{
  return &pprof->paths->names.names[pprof->order[i]];
}

static int
order_names(struct pprof *pprof)
{
  pprof->order = calloc((size_t)pprof->names + 1, sizeof(*pprof->order));
  pprof->rank = calloc((size_t)pprof->names + 1, sizeof(*pprof->rank));
  if (pprof->order == NULL || pprof->rank == NULL) {
    return CT_ENOMEM;
  }
  for (uint32_t i = 0; i < pprof->names; i++) {
    pprof->order[i] = i;
  }
  qsort_r(pprof->order, pprof->names, sizeof(*pprof->order), compare, (void *)&pprof->paths->names);
  for (uint32_t i = 0; i < pprof->names; i++) {
    pprof->rank[pprof->order[i]] = i;
  }
  return CT_OK;
}

static int
find_mappings(struct pprof *pprof)
{
  pprof->modules = calloc((size_t)pprof->names + 1, sizeof(*pprof->modules));
  pprof->firsts = calloc((size_t)pprof->names + 1, sizeof(*pprof->firsts));
  if (pprof->modules == NULL || pprof->firsts == NULL) {
    return CT_ENOMEM;
  }
  for (uint32_t i = 0; i < pprof->names; i++) {
    uint32_t known = 0;
    while (known < pprof->mappings &&
           strcmp(name_at(pprof, pprof->firsts[known])->path, name_at(pprof, i)->path) != 0) {
      known++;
    }
    if (known == pprof->mappings) {
      pprof->firsts[pprof->mappings++] = i;
    }
    pprof->modules[i] = known + 1;
  }
  return CT_OK;
}

static void
put_function(const struct pprof *pprof, uint32_t i)
{
  struct ct_sink *out = pprof->out;
  const struct ct_view_name *name = i < pprof->names ? name_at(pprof, i) : NULL;
  uint64_t id = i + 1, strings = FIXED_STRINGS + 3 * (uint64_t)i, line = name != NULL ? name->line : 0;
  const uint64_t function[][2] = {
      {1, id}, {2, strings}, {3, strings}, {4, name != NULL && name->file != NULL ? strings + 2 : EMPTY}, {5, line}};
  put_numbers(out, 5, function, 5);
  uint8_t bytes[80], inner[40], *at = bytes, *in = inner;
  in = ct_varint_put(ct_varint_put(in, 1 << 3 | NUMBER), id);
  in = ct_varint_put(ct_varint_put(in, 2 << 3 | NUMBER), line);
  at = ct_varint_put(ct_varint_put(at, 1 << 3 | NUMBER), id);
  if (name != NULL) {
    at = ct_varint_put(ct_varint_put(at, 2 << 3 | NUMBER), pprof->modules[i]);
    at = ct_varint_put(ct_varint_put(at, 3 << 3 | NUMBER), name->address);
  }
  at = ct_varint_put(ct_varint_put(at, 4 << 3 | BYTES), (uint64_t)(in - inner));
  memcpy(at, inner, (size_t)(in - inner));
  at += in - inner;
  put_key(out, 4, BYTES);
  ct_out_varint(out, (uint64_t)(at - bytes));
  ct_out_put(out, bytes, (size_t)(at - bytes));
}

static void
put_tables(const struct pprof *pprof)
{
  struct ct_sink *out = pprof->out;
  /* The first one is taken for the program. */
  const struct ct_trace_module *program = ct_trace_module(pprof->job->trace, 0);
  uint32_t main_mapping = 0;
  for (uint32_t i = 0; i < pprof->mappings && program != NULL; i++) {
    main_mapping = strcmp(name_at(pprof, pprof->firsts[i])->path, program->path) == 0 ? i : main_mapping;
  }
  for (uint32_t n = 0; n < pprof->mappings; n++) {
    uint32_t i = n == 0 ? main_mapping : n == main_mapping ? 0 : n;
    const struct ct_view_name *first = name_at(pprof, pprof->firsts[i]);
    const uint64_t mapping[][2] = {{1, i + 1u},
                                   {5, FIXED_STRINGS + 3 * (uint64_t)pprof->firsts[i] + 1},
                                   {7, 1},
                                   {8, first->file != NULL},
                                   {9, first->file != NULL}};
    put_numbers(out, 3, mapping, 5);
  }
  for (uint32_t i = 0; i < pprof->names + SPECIALS; i++) {
    put_function(pprof, i);
  }
  for (int i = 0; i < FIXED_STRINGS; i++) {
    put_string(out, fixed[i]);
  }
  for (uint32_t i = 0; i < pprof->names; i++) {
    put_string(out, name_at(pprof, i)->name);
    put_string(out, name_at(pprof, i)->path);
    put_string(out, name_at(pprof, i)->file != NULL ? name_at(pprof, i)->file : "");
  }
  for (uint32_t i = 0; i < SPECIALS; i++) {
    put_string(out, ct_paths_name(pprof->paths, specials[i]));
    put_string(out, "");
    put_string(out, "");
  }
}

static void
put_about(const struct pprof *pprof)
{
  struct ct_sink *out = pprof->out;
  const struct ct_trace *trace = pprof->job->trace;
  static const uint64_t types[3][2][2] = {
      {{1, CALLS}, {2, COUNT}}, {{1, TIME}, {2, NANOSECONDS}}, {{1, OFF}, {2, NANOSECONDS}}};
  for (int i = 0; i < 3; i++) {
    put_numbers(out, 1, types[i], 2);
  }
  uint64_t start = (uint64_t)json_integer_value(json_object_get(ct_trace_manifest(trace), "start_wall_ns"));
  uint64_t end = ct_trace_ns(trace, ct_trace_end_tsc(trace)), begin = ct_trace_start_ns(trace);
  const uint64_t numbers[][2] = {{9, start},
                                 {10, end > begin ? end - begin : 0},
                                 {13, WRITER},
                                 {13, pprof->job->summary->lost != 0 ? LOST : EMPTY},
                                 {14, TIME}};
  for (int i = 0; i < 5; i++) {
    if (numbers[i][1] != 0) {
      put_key(out, (uint32_t)numbers[i][0], NUMBER);
      ct_out_varint(out, numbers[i][1]);
    }
  }
}

static int
write_pprof(const struct ct_export_job *job, struct ct_sink *out, struct ct_diag *diag)
{
  struct ct_export_sums sums;
  struct pprof pprof = {.out = out, .job = job, .paths = &sums.paths};
  int err = ct_export_sums_collect(job, &sums, diag);
  pprof.names = err == CT_OK ? sums.paths.names.count : 0;
  if (err == CT_OK && (order_names(&pprof) != CT_OK || find_mappings(&pprof) != CT_OK)) {
    err = ct_fail(diag, CT_ENOMEM, "out of memory for the functions of the trace");
  }
  if (err == CT_OK) {
    put_about(&pprof);
    for (uint32_t at = CT_PATH_TOP; (at = ct_paths_next(pprof.paths, at, true)) != CT_PATH_NONE;) {
      put_sample(&pprof, at);
    }
    put_tables(&pprof);
  }
  free(pprof.order);
  free(pprof.rank);
  free(pprof.modules);
  free(pprof.firsts);
  ct_export_sums_destroy(&sums);
  return err;
}

static int
write_format(const struct ct_export_job *job, struct ct_diag *diag)
{
  if (job->options->weight != CT_WEIGHT_TIME) {
    return ct_fail(diag, CT_EINVAL, "pprof has all weights: leave out --weight");
  }
  return ct_export_file(job, CT_OUT_GZIP, write_pprof, diag);
}

const struct ct_export_writer ct_export_pprof = {
    .format = {.name = "pprof",
               .summary = "profile.proto, gzip, for go tool pprof",
               .has_weight = true,
               .takes_filters = true},
    .write = write_format,
};
