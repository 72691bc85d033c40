/* SPDX-License-Identifier: MIT */
/* See windows.h. */
#include "views/windows.h"

#include "base/json.h"
#include "views/text.h"

enum { SHOWN = 12 };

static uint64_t
since_start_ns(const struct ct_trace *trace, uint64_t tsc)
{
  uint64_t ns = ct_trace_ns(trace, tsc), start = ct_trace_start_ns(trace);
  return ns > start ? ns - start : 0;
}

void
ct_windows_write(const struct ct_trace *trace, const char *label, int label_columns, FILE *out)
{
  size_t count = ct_trace_window_count(trace);
  char length[CT_DURATION_CHARS], marks[CT_COUNT_CHARS];
  struct ct_trace_window window;
  for (size_t i = 0; i < count && i < SHOWN; i++) {
    fprintf(out, "%-*s %zu: ", label_columns, i == 0 ? label : "", i + 1);
    if (!ct_trace_window(trace, i, &window)) {
      fputs("what the manifest says of it makes no sense\n", out);
      continue;
    }
    uint64_t begin = since_start_ns(trace, window.begin_tsc), end = since_start_ns(trace, window.end_tsc);
    fprintf(out, "%.6f s, %s long, ", (double)begin / 1e9, ct_format_duration(length, end - begin));
    ct_put_printable(out, window.reason != NULL ? window.reason : "?", 200);
    fprintf(out, " at %.6f s", (double)since_start_ns(trace, window.reason_tsc) / 1e9);
    if (window.marks > 1) {
      fprintf(out, " and %s more marks", ct_format_count(marks, window.marks - 1));
    }
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
    json_array_append_new(list, item);
  }
  return list;
}
