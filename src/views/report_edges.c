/* SPDX-License-Identifier: MIT */
/* The report of callers and callees, as text or JSON; the numbers come from edges.c. */
#include "views/edges.h"
#include "views/report.h"

#include "base/json.h"
#include "views/warnings.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

enum { MODULE_COLUMNS_MAX = 24 };

/* A function that is asked about, with its rows. */
struct section {
  uint32_t function;
  uint64_t sort_key;
  const struct ct_edge **rows;
  size_t count;
};

struct edges_view {
  const struct ct_report_options *options;
  struct ct_trace *trace;
  struct ct_edges edges;
  struct ct_view_reading reading;
  const struct ct_edge **rows; /* of all sections */
  struct section *sections;
  size_t count;
};

struct ct_view_reading
ct_report_reading(struct ct_trace *trace, const struct ct_report_options *options)
{
  return (struct ct_view_reading){.trace = trace,
                                  .filter = options->filter,
                                  .family = options->family,
                                  .time = options->time,
                                  .progress = &options->progress,
                                  .workers = options->workers,
                                  .makes_index = true};
}

int
ct_report_end(int code, FILE *out, const struct ct_view_reading *reading, size_t shown, struct ct_view_notes *notes,
              struct ct_diag *diag)
{
  if (code == 0 && (fflush(out) != 0 || ferror(out))) {
    code = ct_fail(diag, CT_EIO, "cannot write the report: %s", strerror(errno));
  }
  notes->shown = shown;
  notes->damaged_threads = reading->notes.damaged_threads;
  notes->first_damaged_tid = reading->notes.first_damaged_tid;
  return code;
}

int
ct_report_check_sort(enum ct_report_sort sort, struct ct_diag *diag)
{
  switch (sort) {
  case CT_SORT_TOTAL:
  case CT_SORT_SELF:
  case CT_SORT_CALLS:
  case CT_SORT_NAME:
  case CT_SORT_OFF:
    return 0;
  default:
    return ct_fail(diag, CT_EINVAL, "these rows can be sorted by total, self, off, calls and name alone");
  }
}

void
ct_report_put_reading(FILE *out, const struct ct_view_reading *reading)
{
  char events[CT_COUNT_CHARS], dropped[CT_COUNT_CHARS];
  fprintf(out, "\n%s events in %zu thread%s", ct_format_count(events, reading->events), reading->threads,
          reading->threads == 1 ? "" : "s");
  if (reading->family) {
    fprintf(out, " of %zu process%s", reading->processes, reading->processes == 1 ? "" : "es");
  }
  fprintf(out, ", %s dropped\n", ct_format_count(dropped, reading->dropped));
}

void
ct_report_put_ns(json_t *json, const char *key, bool known, uint64_t ns)
{
  if (known) {
    ct_json_put(json, key, ns);
  } else {
    json_object_set_new(json, key, json_null());
  }
}

static uint64_t
sort_key(const struct ct_edge_sums *sums, enum ct_report_sort sort)
{
  return sort == CT_SORT_SELF    ? sums->self_ticks
         : sort == CT_SORT_CALLS ? sums->calls
         : sort == CT_SORT_OFF   ? sums->off_ticks
         : sort == CT_SORT_NAME  ? 0
                                 : sums->total_ticks;
}

static const char *
other_name(const struct edges_view *view, int32_t other)
{
  static const char *const texts[] = {
      [-CT_EDGE_ROOT] = "(root)", [-CT_EDGE_STACK] = "(root of another stack)", [-CT_EDGE_COUNTED] = "(counted only)",
      [-CT_EDGE_SELF] = "(self)", [-CT_EDGE_AWAY] = "(on other stacks)",
  };
  return other >= 0 ? view->edges.names.names[other].name : texts[-other];
}

static const char *
other_module(const struct edges_view *view, int32_t other)
{
  return other >= 0 ? view->edges.names.names[other].module : "";
}

/* ---- order ---- */

static int
compare_rows(const void *a, const void *b, void *arg)
{
  const struct edges_view *view = arg;
  const struct ct_edge *x = *(const struct ct_edge *const *)a, *y = *(const struct ct_edge *const *)b;
  enum ct_report_sort sort = view->options->sort;
  uint64_t p = sort_key(&x->sums, sort), q = sort_key(&y->sums, sort);
  if (p != q) {
    return p < q ? 1 : -1;
  }
  if (sort != CT_SORT_NAME && x->sums.calls != y->sums.calls) {
    return x->sums.calls < y->sums.calls ? 1 : -1;
  }
  int order = strcmp(other_name(view, x->other), other_name(view, y->other));
  return order != 0 ? order
         : x->other >= 0 && y->other >= 0
             ? ct_view_names_compare(&view->edges.names, (uint32_t)x->other, (uint32_t)y->other)
             : (x->other > y->other) - (x->other < y->other);
}

static int
compare_by_function(const void *a, const void *b)
{
  const struct ct_edge *x = *(const struct ct_edge *const *)a, *y = *(const struct ct_edge *const *)b;
  return x->function < y->function ? -1 : x->function > y->function;
}

static int
compare_sections(const void *a, const void *b, void *arg)
{
  const struct edges_view *view = arg;
  const struct section *x = a, *y = b;
  if (x->sort_key != y->sort_key) {
    return x->sort_key < y->sort_key ? 1 : -1;
  }
  return ct_view_names_compare(&view->edges.names, x->function, y->function);
}

/* The rows of each function together, in order. */
static int
make_sections(struct edges_view *view)
{
  const struct ct_edges *edges = &view->edges;
  view->rows = malloc((edges->count + 1) * sizeof(*view->rows));
  view->sections = malloc((edges->count + 1) * sizeof(*view->sections));
  if (view->rows == NULL || view->sections == NULL) {
    return CT_ENOMEM;
  }
  for (size_t i = 0; i < edges->count; i++) {
    view->rows[i] = &edges->edges[i];
  }
  qsort(view->rows, edges->count, sizeof(*view->rows), compare_by_function);
  for (size_t i = 0; i < edges->count; i++) {
    uint32_t function = view->rows[i]->function;
    if (view->count == 0 || view->sections[view->count - 1].function != function) {
      view->sections[view->count++] = (struct section){
          .function = function,
          .sort_key = sort_key(&edges->functions[function], view->options->sort),
          .rows = &view->rows[i],
      };
    }
    view->sections[view->count - 1].count++;
  }
  for (size_t i = 0; i < view->count; i++) {
    qsort_r(view->sections[i].rows, view->sections[i].count, sizeof(*view->rows), compare_rows, view);
  }
  qsort_r(view->sections, view->count, sizeof(*view->sections), compare_sections, view);
  return 0;
}

static size_t
cut(const struct edges_view *view, size_t count)
{
  uint64_t limit = view->options->filter->limit;
  return limit != 0 && limit < count ? (size_t)limit : count;
}

/* ---- JSON ---- */

static json_t *
sums_json(const struct edges_view *view, uint32_t number, bool is_function, const char *kind,
          const struct ct_edge_sums *sums, int32_t other)
{
  const struct ct_trace *trace = view->trace;
  json_t *json = json_object();
  if (kind != NULL) {
    json_object_set_new(json, "kind", json_string(kind));
  }
  const struct ct_view_name *name = is_function ? &view->edges.names.names[number] : NULL;
  json_object_set_new(json, "name", ct_json_string(name != NULL ? name->name : other_name(view, other)));
  json_object_set_new(json, "module", name != NULL ? ct_json_string(name->module) : json_null());
  if (name != NULL && name->file != NULL) {
    json_object_set_new(json, "file", ct_json_string(name->file));
    json_object_set_new(json, "line", name->line != 0 ? json_integer(name->line) : json_null());
  }
  ct_json_put(json, "calls", sums->calls);
  ct_report_put_ns(json, "total_ns", sums->has_time, ct_trace_ticks_ns(trace, sums->total_ticks));
  ct_report_put_ns(json, "self_ns", sums->has_time, ct_trace_ticks_ns(trace, sums->self_ticks));
  ct_report_put_ns(json, "off_ns", sums->has_time && !view->reading.off_is_bound,
                   ct_trace_ticks_ns(trace, sums->off_ticks));
  return json;
}

static const char *
kind_of(int32_t other)
{
  static const char *const kinds[] = {
      [-CT_EDGE_ROOT] = "root", [-CT_EDGE_STACK] = "other root", [-CT_EDGE_COUNTED] = "counted",
      [-CT_EDGE_SELF] = "self", [-CT_EDGE_AWAY] = "away",
  };
  return other >= 0 ? "function" : kinds[-other];
}

static int
put_json(const struct edges_view *view, FILE *out)
{
  const char *key = view->options->rows == CT_ROWS_CALLERS ? "callers" : "callees";
  fputs("{\"warnings\":", out);
  int code = ct_report_put_json(out, json_incref(view->reading.warnings));
  fputs(",\n\"functions\":[", out);
  for (size_t i = 0; i < cut(view, view->count) && code == 0; i++) {
    const struct section *section = &view->sections[i];
    json_t *json =
        sums_json(view, section->function, true, NULL, &view->edges.functions[section->function], CT_EDGE_SELF);
    json_t *rows = json_array();
    for (size_t n = 0; n < cut(view, section->count); n++) {
      const struct ct_edge *edge = section->rows[n];
      json_array_append_new(rows, sums_json(view, (uint32_t)edge->other, edge->other >= 0, kind_of(edge->other),
                                            &edge->sums, edge->other));
    }
    json_object_set_new(json, key, rows);
    fputs(i == 0 ? "\n" : ",\n", out);
    code = ct_report_put_json(out, json);
  }
  ct_report_put_end(out, view->reading.events, view->reading.dropped);
  return code;
}

/* ---- text ---- */

static void
put_name(FILE *out, const struct edges_view *view, int32_t other)
{
  const struct ct_view_name *name = other >= 0 ? &view->edges.names.names[other] : NULL;
  ct_text_put_name(out, other_name(view, other), view->options->short_names, 0);
  if (view->options->source && name != NULL && name->file != NULL) {
    fputs("  ", out);
    ct_put_printable(out, name->file, SIZE_MAX);
    if (name->line != 0) {
      fprintf(out, ":%u", name->line);
    }
  }
}

static void
put_row(FILE *out, const struct edges_view *view, const struct ct_edge *edge, bool has_off, size_t module_columns)
{
  const struct ct_edge_sums *sums = &edge->sums, *all = &view->edges.functions[edge->function];
  char calls[CT_COUNT_CHARS];
  bool has_calls = edge->other != CT_EDGE_SELF && edge->other != CT_EDGE_AWAY;
  bool has_time = sums->has_time;
  ct_report_put_time(out, has_time, ct_trace_ticks_ns(view->trace, sums->total_ticks));
  ct_report_put_share(out, has_time, sums->total_ticks, all->total_ticks);
  ct_report_put_time(out, has_time && edge->other != CT_EDGE_AWAY, ct_trace_ticks_ns(view->trace, sums->self_ticks));
  if (has_off) {
    ct_report_put_time(out, has_time, ct_trace_ticks_ns(view->trace, sums->off_ticks));
  }
  fprintf(out, "%12s  ", has_calls ? ct_format_count(calls, sums->calls) : "-");
  ct_report_put_padded(out, other_module(view, edge->other), module_columns);
  fputs("  ", out);
  put_name(out, view, edge->other);
  putc('\n', out);
}

static void
put_section(FILE *out, const struct edges_view *view, const struct section *section)
{
  const struct ct_edge_sums *sums = &view->edges.functions[section->function];
  bool is_callers = view->options->rows == CT_ROWS_CALLERS;
  size_t shown = cut(view, section->count), module_columns = strlen("module");
  bool has_off = sums->off_ticks != 0 && !view->reading.off_is_bound;
  char text[CT_COUNT_CHARS], duration[CT_DURATION_CHARS];
  fprintf(out, "%s ", is_callers ? "callers of" : "called by");
  put_name(out, view, (int32_t)section->function);
  fputs(" (", out);
  ct_put_printable(out, other_module(view, (int32_t)section->function), SIZE_MAX);
  fprintf(out, "): %s call%s", ct_format_count(text, sums->calls), sums->calls == 1 ? "" : "s");
  fprintf(out, ", total %s", ct_format_duration(duration, ct_trace_ticks_ns(view->trace, sums->total_ticks)));
  fprintf(out, ", self %s\n", ct_format_duration(duration, ct_trace_ticks_ns(view->trace, sums->self_ticks)));
  for (size_t i = 0; i < shown; i++) {
    size_t columns = ct_text_columns(other_module(view, section->rows[i]->other));
    columns = columns < MODULE_COLUMNS_MAX ? columns : MODULE_COLUMNS_MAX;
    module_columns = columns > module_columns ? columns : module_columns;
  }
  fprintf(out, "%10s %6s %10s ", "total", "%", "self");
  if (has_off) {
    fprintf(out, "%10s ", "off");
  }
  fprintf(out, "%12s  %-*s  %s\n", "calls", (int)module_columns, "module", is_callers ? "caller" : "function");
  for (size_t i = 0; i < shown; i++) {
    put_row(out, view, section->rows[i], has_off, module_columns);
  }
  if (shown < section->count) {
    fprintf(out, "... and %s more; --limit 0 shows all\n", ct_format_count(text, section->count - shown));
  }
}

static void
put_text(const struct edges_view *view, FILE *out)
{
  size_t shown = cut(view, view->count);
  char text[CT_COUNT_CHARS];
  ct_view_put_list(view->reading.warnings, "", out);
  for (size_t i = 0; i < shown; i++) {
    fputs(i == 0 ? "" : "\n", out);
    put_section(out, view, &view->sections[i]);
  }
  if (shown < view->count) {
    fprintf(out, "\n... and %s more function%s; --limit 0 shows all\n", ct_format_count(text, view->count - shown),
            view->count == shown + 1 ? "" : "s");
  } else if (view->count == 0) {
    fputs("no calls\n", out);
  }
  ct_report_put_reading(out, &view->reading);
}

int
ct_report_write_edges(struct ct_trace *trace, const struct ct_report_options *options, FILE *out,
                      struct ct_view_notes *notes, struct ct_diag *diag)
{
  struct edges_view view = {.options = options, .trace = trace};
  view.reading = ct_report_reading(trace, options);
  int code = ct_report_check_sort(options->sort, diag);
  if (code != 0) {
    goto free_view;
  }
  code = options->rows == CT_ROWS_CALLERS ? ct_edges_collect_callers(&view.edges, &view.reading, diag)
                                          : ct_edges_collect_callees(&view.edges, &view.reading, diag);
  if (code != 0) {
    goto free_view;
  }
  if (make_sections(&view) != 0) {
    code = ct_fail(diag, CT_ENOMEM, "out of memory for the rows of the report");
    goto free_view;
  }
  if (options->json) {
    code = put_json(&view, out);
  } else {
    put_text(&view, out);
  }
free_view:
  code = ct_report_end(code, out, &view.reading, view.count, notes, diag);
  free(view.rows);
  free(view.sections);
  ct_view_reading_destroy(&view.reading);
  ct_edges_destroy(&view.edges);
  return code;
}
