/* SPDX-License-Identifier: MIT */
/* The report by module, file, thread, process or class, as text or JSON; the numbers come from groups.c. */
#include "views/groups.h"
#include "views/report.h"

#include "base/json.h"
#include "views/filter.h"
#include "views/warnings.h"

#include <stdlib.h>
#include <string.h>

struct groups_view {
  const struct ct_report_options *options;
  struct ct_trace *trace;
  struct ct_groups groups;
  struct ct_view_reading reading;
  struct ct_group **rows;
  size_t count;
  uint64_t self_ticks; /* of all rows */
};

static uint64_t
sort_key(const struct ct_group *group, enum ct_report_sort sort)
{
  return sort == CT_SORT_SELF    ? group->self_ticks
         : sort == CT_SORT_CALLS ? group->calls
         : sort == CT_SORT_OFF   ? group->off_ticks
         : sort == CT_SORT_NAME  ? 0
                                 : group->total_ticks;
}

static int
compare_rows(const void *a, const void *b, void *arg)
{
  const struct groups_view *view = arg;
  const struct ct_group *x = *(struct ct_group *const *)a, *y = *(struct ct_group *const *)b;
  enum ct_report_sort sort = view->options->sort;
  uint64_t p = sort_key(x, sort), q = sort_key(y, sort);
  if (p != q) {
    return p < q ? 1 : -1;
  }
  if (x->self_ticks != y->self_ticks && sort != CT_SORT_NAME) {
    return x->self_ticks < y->self_ticks ? 1 : -1;
  }
  if (x->name != NULL && y->name != NULL && x->id != y->id) {
    return x->id < y->id ? -1 : 1;
  }
  return strcmp(x->key, y->key);
}

/* The time in which events were lost is a row of its own, unless there are filters; as that of the functions. */
static bool
has_gap(const struct groups_view *view)
{
  return view->reading.gap_ticks != 0 && !ct_report_is_filtered(view->options->filter);
}

static int
make_rows(struct groups_view *view, struct ct_group *gap)
{
  struct ct_groups *groups = &view->groups;
  view->rows = malloc((groups->count + 2) * sizeof(*view->rows));
  if (view->rows == NULL) {
    return CT_ENOMEM;
  }
  for (size_t i = 0; i < groups->count; i++) {
    struct ct_group *group = &groups->groups[i];
    if (group->functions != 0) {
      view->rows[view->count++] = group;
      view->self_ticks += group->self_ticks;
    }
  }
  if (has_gap(view)) {
    gap->has_time = true;
    gap->total_ticks = gap->self_ticks = view->reading.gap_ticks;
    view->rows[view->count++] = gap;
    view->self_ticks += gap->self_ticks;
  }
  qsort_r(view->rows, view->count, sizeof(*view->rows), compare_rows, view);
  return 0;
}

static size_t
shown_rows(const struct groups_view *view)
{
  uint64_t limit = view->options->filter->limit;
  return limit != 0 && limit < view->count ? (size_t)limit : view->count;
}

static const char *
what(const struct groups_view *view)
{
  static const char *const texts[] = {
      [CT_ROWS_MODULES] = "module",    [CT_ROWS_FILES] = "file",    [CT_ROWS_THREADS] = "thread",
      [CT_ROWS_PROCESSES] = "process", [CT_ROWS_CLASSES] = "class",
  };
  return texts[view->options->rows];
}

static int
put_json(const struct groups_view *view, FILE *out)
{
  fputs("{\"warnings\":", out);
  int code = ct_report_put_json(out, json_incref(view->reading.warnings));
  fprintf(out, ",\n\"by\":\"%s\",\n\"groups\":[", what(view));
  for (size_t i = 0; i < shown_rows(view) && code == 0; i++) {
    const struct ct_group *group = view->rows[i];
    json_t *json = json_object();
    json_object_set_new(json, "name", ct_json_string(group->name != NULL ? group->name : group->key));
    if (group->name != NULL) {
      ct_json_put(json, view->options->rows == CT_ROWS_THREADS ? "tid" : "pid", group->id);
    }
    if (group->name != NULL && view->options->rows == CT_ROWS_THREADS) {
      ct_json_put(json, "pid", group->pid);
    }
    ct_json_put(json, "functions", group->functions);
    ct_json_put(json, "calls", group->calls);
    ct_report_put_ns(json, "total_ns", group->has_time, ct_trace_ticks_ns(view->trace, group->total_ticks));
    ct_report_put_ns(json, "self_ns", group->has_time, ct_trace_ticks_ns(view->trace, group->self_ticks));
    ct_report_put_ns(json, "off_ns", group->has_time && !view->reading.off_is_bound,
                     ct_trace_ticks_ns(view->trace, group->off_ticks));
    double share = view->self_ticks != 0 ? 100.0 * (double)group->self_ticks / (double)view->self_ticks : 0;
    json_object_set_new(json, "self_percent", view->self_ticks != 0 ? json_real(share) : json_null());
    fputs(i == 0 ? "\n" : ",\n", out);
    code = ct_report_put_json(out, json);
  }
  ct_report_put_end(out, view->reading.events, view->reading.dropped);
  return code;
}

static void
put_label(const struct groups_view *view, const struct ct_group *group, FILE *out)
{
  if (group->name == NULL) {
    ct_text_put_name(out, group->key, view->options->short_names && view->options->rows == CT_ROWS_CLASSES, 0);
    return;
  }
  ct_put_printable(out, group->name, SIZE_MAX);
  fprintf(out, "%s%llu", group->name[0] != '\0' ? "/" : "", (unsigned long long)group->id);
  if (view->options->rows == CT_ROWS_THREADS && view->reading.processes > 1) {
    fprintf(out, " of process %llu", (unsigned long long)group->pid);
  }
}

static void
put_text(const struct groups_view *view, FILE *out)
{
  bool has_off = false;
  size_t shown = shown_rows(view);
  char calls[CT_COUNT_CHARS], functions[CT_COUNT_CHARS];
  for (size_t i = 0; i < shown; i++) {
    has_off |= view->rows[i]->off_ticks != 0 && !view->reading.off_is_bound;
  }
  ct_view_put_list(view->reading.warnings, "", out);
  fprintf(out, "%10s %10s %6s ", "total", "self", "self %");
  if (has_off) {
    fprintf(out, "%10s ", "off");
  }
  fprintf(out, "%12s %9s  %s\n", "calls", "functions", what(view));
  for (size_t i = 0; i < shown; i++) {
    const struct ct_group *group = view->rows[i];
    ct_report_put_time(out, group->has_time, ct_trace_ticks_ns(view->trace, group->total_ticks));
    ct_report_put_time(out, group->has_time, ct_trace_ticks_ns(view->trace, group->self_ticks));
    ct_report_put_share(out, group->has_time, group->self_ticks, view->self_ticks);
    if (has_off) {
      ct_report_put_time(out, group->has_time, ct_trace_ticks_ns(view->trace, group->off_ticks));
    }
    fprintf(out, "%12s %9s  ", ct_format_count(calls, group->calls), ct_format_count(functions, group->functions));
    put_label(view, group, out);
    putc('\n', out);
  }
  if (shown < view->count) {
    fprintf(out, "... and %s more; --limit 0 shows all\n", ct_format_count(calls, view->count - shown));
  } else if (view->count == 0) {
    fputs("no calls\n", out);
  }
  ct_report_put_reading(out, &view->reading);
}

int
ct_report_write_groups(struct ct_trace *trace, const struct ct_report_options *options, FILE *out,
                       struct ct_view_notes *notes, struct ct_diag *diag)
{
  struct groups_view view = {.options = options, .trace = trace, .groups = {.rows = options->rows}};
  struct ct_group gap = {.key = (char *)"(events lost)"};
  view.reading = ct_report_reading(trace, options);
  int code = ct_report_check_sort(options->sort, diag);
  if (code != 0) {
    goto free_view;
  }
  code = ct_groups_collect(&view.groups, &view.reading, diag);
  if (code != 0) {
    goto free_view;
  }
  if (make_rows(&view, &gap) != 0) {
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
  ct_view_reading_destroy(&view.reading);
  ct_groups_destroy(&view.groups);
  return code;
}
