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
  const char *rule, *name, *function;
  uint64_t ns;
  uint64_t call;  /* which one of the function, 0: not known ... */
  const char *is; /* ... "": that one; "least": or a later one; "about" */
};

static bool
reason_at(struct ct_trace *trace, size_t n, size_t i, struct reason *reason)
{
  const json_t *window = json_array_get(json_object_get(ct_trace_manifest(trace), "windows"), n);
  const json_t *item = json_array_get(json_object_get(window, "reasons"), i);
  const char *rule = json_string_value(json_object_get(item, "rule")),
             *name = json_string_value(json_object_get(item, "name")),
             *is = json_string_value(json_object_get(item, "call_is"));
  const json_t *id = json_object_get(item, "function");
  const struct ct_trace_function *function =
      json_is_integer(id) && (uint64_t)json_integer_value(id) < ct_trace_function_count(trace)
          ? ct_trace_function(trace, (uint32_t)json_integer_value(id))
          : NULL;
  *reason = (struct reason){.rule = rule != NULL ? rule : "?",
                            .name = name != NULL ? name : "",
                            .function = function != NULL && function->name != NULL ? function->name : "",
                            .ns = since_start_ns(trace, ct_json_get(item, "tsc")),
                            .call = ct_json_get(item, "call"),
                            .is = is != NULL ? is : ""};
  return item != NULL;
}

static bool
is_new(struct ct_trace *trace, size_t n, size_t i, const struct reason *reason)
{
  struct reason other;
  bool is_known = false;
  for (size_t k = 0; k < i && !is_known && reason_at(trace, n, k, &other); k++) {
    is_known = strcmp(other.rule, reason->rule) == 0 && strcmp(other.name, reason->name) == 0;
  }
  return !is_known;
}

/* " (call 7,123,456 of F, or a later one)" */
static void
write_call(const struct reason *reason, FILE *out)
{
  char count[CT_COUNT_CHARS];
  if (reason->call == 0) {
    return;
  }
  fprintf(out, " (%scall %s", strcmp(reason->is, "about") == 0 ? "about " : "", ct_format_count(count, reason->call));
  if (reason->function[0] != '\0') {
    fputs(" of ", out);
    ct_put_printable(out, reason->function, 200);
  }
  fputs(strcmp(reason->is, "least") == 0 ? ", or a later one)" : ")", out);
}

/* "by hand (NAME) at 1.200000 s, F > 1ms at 1.300000 s (call 7 of F) and 3 more marks" */
static void
write_reasons(struct ct_trace *trace, size_t n, uint64_t marks, FILE *out)
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
    write_call(&reason, out);
  }
  if (marks > shown) {
    fprintf(out, "%s%s more mark%s", shown != 0 ? " and " : "", ct_format_count(more, marks - shown),
            marks - shown == 1 ? "" : "s");
  }
}

static json_t *
reasons_json(struct ct_trace *trace, size_t n)
{
  json_t *list = json_array();
  struct reason reason;
  for (size_t i = 0; reason_at(trace, n, i, &reason); i++) {
    json_t *item = json_object();
    json_object_set_new(item, "reason", ct_json_string(reason.rule));
    json_object_set_new(item, "name", reason.name[0] != '\0' ? ct_json_string(reason.name) : json_null());
    ct_json_put(item, "ns", reason.ns);
    json_object_set_new(item, "function", reason.function[0] != '\0' ? ct_json_string(reason.function) : json_null());
    json_object_set_new(item, "call", reason.call != 0 ? json_integer((json_int_t)reason.call) : json_null());
    json_object_set_new(item, "call_is", reason.is[0] != '\0' ? ct_json_string(reason.is) : json_null());
    json_array_append_new(list, item);
  }
  return list;
}

void
ct_windows_write(struct ct_trace *trace, const char *label, int label_columns, FILE *out)
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
ct_windows_json(struct ct_trace *trace)
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
