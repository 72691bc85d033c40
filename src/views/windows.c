/* SPDX-License-Identifier: MIT */
/* See windows.h. */
#include "views/windows.h"

#include "base/json.h"
#include "trace/batch.h"
#include "views/text.h"

#include <string.h>

enum { SHOWN = 12, REASONS_SHOWN = 4 };

static uint64_t
since_start_ns(const struct ct_trace *trace, uint64_t tsc)
{
  uint64_t ns = ct_trace_ns(trace, tsc), start = ct_trace_start_ns(trace);
  return ns > start ? ns - start : 0;
}

/* Why the window n is there: the first mark of each rule, and of each name that was given by hand. Borrowed, "": none.
 */
struct reason {
  const char *rule, *name;
  uint64_t ns;
};

static bool
reason_at(const struct ct_trace *trace, size_t n, size_t i, struct reason *reason)
{
  const json_t *window = json_array_get(json_object_get(ct_trace_manifest(trace), "windows"), n);
  const json_t *item = json_array_get(json_object_get(window, "reasons"), i);
  const char *rule = json_string_value(json_object_get(item, "rule")),
             *name = json_string_value(json_object_get(item, "name"));
  *reason = (struct reason){rule != NULL ? rule : "?", name != NULL ? name : "",
                            since_start_ns(trace, ct_json_get(item, "tsc"))};
  return item != NULL;
}

static bool
is_new(const struct ct_trace *trace, size_t n, size_t i, const struct reason *reason)
{
  struct reason other;
  bool is_known = false;
  for (size_t k = 0; k < i && !is_known && reason_at(trace, n, k, &other); k++) {
    is_known = strcmp(other.rule, reason->rule) == 0 && strcmp(other.name, reason->name) == 0;
  }
  return !is_known;
}

/* "by hand (NAME) at 1.200000 s, F > 1ms at 1.300000 s and 3 more marks" */
static void
write_reasons(const struct ct_trace *trace, size_t n, uint64_t marks, FILE *out)
{
  char more[CT_COUNT_CHARS];
  struct reason reason;
  uint64_t shown = 0;
  for (size_t i = 0; shown < REASONS_SHOWN && reason_at(trace, n, i, &reason); i++) {
    if (!is_new(trace, n, i, &reason)) {
      continue;
    }
    fputs(shown++ != 0 ? ", " : "", out);
    ct_put_printable(out, reason.rule, 200);
    if (reason.name[0] != '\0') {
      fputs(" (", out);
      ct_put_printable(out, reason.name, 200);
      putc(')', out);
    }
    fprintf(out, " at %.6f s", (double)reason.ns / 1e9);
  }
  if (marks > shown) {
    fprintf(out, "%s%s more mark%s", shown != 0 ? " and " : "", ct_format_count(more, marks - shown),
            marks - shown == 1 ? "" : "s");
  }
}

static json_t *
reasons_json(const struct ct_trace *trace, size_t n)
{
  json_t *list = json_array();
  struct reason reason;
  for (size_t i = 0; reason_at(trace, n, i, &reason); i++) {
    json_t *item = json_object();
    json_object_set_new(item, "reason", ct_json_string(reason.rule));
    json_object_set_new(item, "name", reason.name[0] != '\0' ? ct_json_string(reason.name) : json_null());
    ct_json_put(item, "ns", reason.ns);
    json_array_append_new(list, item);
  }
  return list;
}

void
ct_windows_write(const struct ct_trace *trace, const char *label, int label_columns, FILE *out)
{
  size_t count = ct_trace_window_count(trace);
  char length[CT_DURATION_CHARS];
  struct ct_trace_window window;
  for (size_t i = 0; i < count && i < SHOWN; i++) {
    fprintf(out, "%-*s %zu: ", label_columns, i == 0 ? label : "", i + 1);
    if (!ct_trace_window(trace, i, &window)) {
      fputs("what the manifest says of it makes no sense\n", out);
      continue;
    }
    uint64_t begin = since_start_ns(trace, window.begin_tsc), end = since_start_ns(trace, window.end_tsc);
    fprintf(out, "%.6f s, %s long, ", (double)begin / 1e9, ct_format_duration(length, end - begin));
    write_reasons(trace, i, window.marks, out);
    putc('\n', out);
  }
  if (count > SHOWN) {
    fprintf(out, "%-*s ... and %zu more; --json has all\n", label_columns, "", count - SHOWN);
  }
}

json_t *
ct_windows_json(const struct ct_trace *trace)
{
  size_t count = ct_trace_window_count(trace);
  json_t *list = count != 0 ? json_array() : NULL;
  struct ct_trace_window window;
  for (size_t i = 0; i < count; i++) {
    if (!ct_trace_window(trace, i, &window)) {
      json_array_append_new(list, json_null());
      continue;
    }
    json_t *item = json_object();
    ct_json_put(item, "window", i + 1);
    ct_json_put(item, "begin_ns", since_start_ns(trace, window.begin_tsc));
    ct_json_put(item, "end_ns", since_start_ns(trace, window.end_tsc));
    ct_json_put(item, "marks", window.marks);
    json_object_set_new(item, "reason", window.reason != NULL ? ct_json_string(window.reason) : json_null());
    ct_json_put(item, "reason_ns", since_start_ns(trace, window.reason_tsc));
    json_object_set_new(item, "reasons", reasons_json(trace, i));
    json_array_append_new(list, item);
  }
  return list;
}
