/* SPDX-License-Identifier: MIT */
/*
 * Filters at work; see <contrail/filter.h>. Whether a function matches is found out when it is first asked about, since
 * that takes its demangled name, and kept: a byte for each function. A reader of the byte needs no lock; who has to
 * find it out takes one, for patterns have scratch memory.
 */
#include "views/filter.h"

#include "base/sized.h"
#include "index/index.h"
#include "trace/batch.h"
#include "views/pattern.h"
#include "views/process_tree.h"
#include "views/select.h"

#include <contrail/span.h>
#include <contrail/text.h>

#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { UNKNOWN = 0, PASSES = 1, IS_OUT = 2 };

struct ct_filter_compiled {
  struct ct_filter filter;
  struct ct_trace *trace;
  bool is_about_functions;
  uint32_t fn_count;
  _Atomic uint8_t *functions; /* fn_count + 1, the last one for all other ids; relaxed: a byte says all there is */
  pthread_mutex_t lock;       /* of the pattern */
  struct ct_view_pattern pattern;
};

int
ct_filter_take_after(const struct ct_filter *given, struct ct_filter *own, struct ct_diag *diag)
{
  *own = (struct ct_filter){.struct_size = sizeof(*own)};
  return given != NULL ? ct_sized_take(own, sizeof(*own), given, diag) : CT_OK;
}

int
ct_filter_take(const struct ct_filter *given, struct ct_filter *own, struct ct_diag *diag)
{
  int code = ct_filter_take_after(given, own, diag);
  return code == CT_OK && own->after != 0
             ? ct_fail(diag, CT_EINVAL, "nothing comes after a call here: only replay has the order for it")
             : code;
}

int
ct_filter_take_with(void *own, size_t size, const void *given, const struct ct_filter **of, struct ct_filter *filter,
                    struct ct_diag *diag)
{
  int code = ct_sized_take(own, size, given, diag);
  if (code != CT_OK) {
    return code;
  }
  code = ct_filter_take(*of, filter, diag);
  *of = filter;
  return code;
}

int
ct_filter_set_range(const struct ct_filter *given, struct ct_trace *trace)
{
  struct ct_filter filter;
  int code = ct_filter_take_after(given, &filter, NULL);
  if (code != CT_OK || (filter.from_tsc == 0 && filter.to_tsc == 0)) {
    return code;
  }
  code = ct_trace_set_range(trace, filter.from_tsc, filter.to_tsc != 0 ? filter.to_tsc : UINT64_MAX);
  return code == CT_OK && filter.from_tsc != 0 ? ct_index_give_places(trace) : code;
}

int
ct_filter_choose_window(struct ct_filter *filter, const struct ct_trace *trace, uint64_t number, struct ct_diag *diag)
{
  struct ct_trace_window window;
  size_t count = ct_trace_window_count(trace);
  if (count == 0) {
    return ct_fail(diag, CT_ERANGE, "the trace has no windows: nothing was marked (record --on, contrail mark)");
  }
  if (number == 0 || number > count) {
    return ct_fail(diag, CT_ERANGE, "there is no window %llu: the trace has %zu (contrail info lists them)",
                   (unsigned long long)number, count);
  }
  if (!ct_trace_window(trace, number - 1, &window)) {
    return ct_fail(diag, CT_EFORMAT, "what the manifest says of window %llu makes no sense",
                   (unsigned long long)number);
  }
  filter->from_tsc = window.begin_tsc;
  filter->to_tsc = window.end_tsc;
  return CT_OK;
}

int
ct_filter_open_process(struct ct_trace *first, uint32_t pid, struct ct_trace **out, struct ct_diag *diag)
{
  const json_t *manifest = ct_trace_manifest(first), *child;
  size_t i;
  if (json_integer_value(json_object_get(manifest, "pid")) == pid) {
    *out = first;
    return CT_OK;
  }
  json_array_foreach(json_object_get(manifest, "children"), i, child)
  {
    const char *directory = ct_process_tree_directory(child);
    if (json_integer_value(json_object_get(child, "pid")) != pid) {
      continue;
    }
    if (directory == NULL) {
      return ct_fail(diag, CT_ERANGE, "process %u was not recorded; `contrail info` says why", pid);
    }
    int code = ct_process_tree_open(first, directory, out, diag);
    if (code == CT_OK) { /* ids of its calls are those that SQL gives, of the whole process tree */
      ct_trace_set_place(*out, 0, (uint32_t)i + 1);
    }
    return code;
  }
  return ct_fail(diag, CT_ERANGE, "no process %u in the trace; `contrail info` lists those that were followed", pid);
}

/* ---- calls ---- */

bool
ct_filter_limits_calls(const struct ct_filter *filter)
{
  return filter->min_ns != 0 || filter->max_ns != 0 || filter->levels != 0 || filter->has_depths ||
         filter->reasons != 0 || filter->types != 0;
}

bool
ct_filter_call_passes(const struct ct_filter *filter, uint64_t ns, uint32_t depth, unsigned end)
{
  bool is_point = end == CT_SPAN_POINT || end == CT_SPAN_COUNTED;
  bool has_duration = !is_point && end != CT_SPAN_ORPHAN;
  if ((filter->min_ns != 0 || filter->max_ns != 0) && !has_duration) {
    return false;
  }
  if ((filter->levels != 0 || filter->has_depths) && end == CT_SPAN_COUNTED) {
    return false; /* its depth is of the place where the number stands */
  }
  return ns >= filter->min_ns && (filter->max_ns == 0 || ns <= filter->max_ns) &&
         (filter->levels == 0 || depth < filter->levels) &&
         (!filter->has_depths || (depth >= filter->first_depth && depth <= filter->last_depth)) &&
         (filter->reasons == 0 || (end < 32 && (filter->reasons >> end & 1) != 0)) &&
         (filter->types == 0 || (filter->types & (is_point ? CT_FILTER_POINT : CT_FILTER_CALL)) != 0);
}

struct line {
  char *text;
  size_t length;
};

static void __attribute__((format(printf, 2, 3))) add(struct line *line, const char *format, ...)
{
  va_list words;
  va_start(words, format);
  int length = vsnprintf(line->text + line->length, CT_FILTER_TEXT_CHARS - line->length, format, words);
  va_end(words);
  size_t end = line->length + (length > 0 ? (size_t)length : 0);
  line->length = end < CT_FILTER_TEXT_CHARS ? end : CT_FILTER_TEXT_CHARS - 1;
}

void
ct_filter_describe_calls(const struct ct_filter *filter, char text[CT_FILTER_TEXT_CHARS])
{
  char duration[CT_DURATION_CHARS];
  struct line line = {text, 0};
  add(&line, "counted: calls");
  if (filter->min_ns != 0) {
    add(&line, " of at least %s", ct_format_duration(duration, filter->min_ns));
  }
  if (filter->max_ns != 0) {
    add(&line, "%s at most %s", filter->min_ns != 0 ? " and" : " of", ct_format_duration(duration, filter->max_ns));
  }
  if (filter->levels != 0) {
    add(&line, " on the outermost %u level%s", filter->levels, filter->levels == 1 ? "" : "s");
  }
  if (filter->has_depths && filter->last_depth == UINT32_MAX) {
    add(&line, " at depth %u or more", filter->first_depth);
  } else if (filter->has_depths) {
    add(&line, " at depths %u to %u", filter->first_depth, filter->last_depth);
  }
  unsigned types = filter->types & (CT_FILTER_CALL | CT_FILTER_POINT);
  if (types == CT_FILTER_CALL || types == CT_FILTER_POINT) {
    add(&line, types == CT_FILTER_CALL ? " with an end" : " without an end (enter only, or counted only)");
  }
  for (unsigned end = 0, count = 0; end < CT_SPAN_ENDS; end++) {
    const char *name = ct_span_end_text((enum ct_span_end)end);
    bool again = end != 0 && (filter->reasons >> CT_SPAN_EXIT & 1) != 0 && end == CT_SPAN_EXITED; /* both are "exit" */
    if ((filter->reasons >> end & 1) != 0 && !again) {
      add(&line, "%s%s", count++ == 0 ? " that ended as: " : ", ", name);
    }
  }
}

/* ---- compiled ---- */

int
ct_filter_compile(const struct ct_filter *given, struct ct_trace *trace, struct ct_filter_compiled **out,
                  struct ct_diag *diag)
{
  struct ct_filter filter;
  uint32_t *threads;
  size_t count;
  int code = ct_filter_take(given, &filter, diag);
  if (code == CT_OK) {
    code = ct_choose_threads(trace, filter.tids, filter.tid_count, &threads, &count, diag);
  }
  if (code != CT_OK) {
    return code;
  }
  free(threads);
  struct ct_filter_compiled *compiled = calloc(1, sizeof(*compiled));
  if (compiled == NULL) {
    return ct_fail(diag, CT_ENOMEM, "out of memory for a filter");
  }
  compiled->filter = filter;
  compiled->trace = trace;
  compiled->is_about_functions = filter.function != NULL || filter.module != NULL || filter.file != NULL;
  compiled->fn_count = ct_trace_function_count(trace);
  pthread_mutex_init(&compiled->lock, NULL);
  code = ct_view_pattern_init(&compiled->pattern, trace, filter.function, filter.module, filter.file, diag);
  if (code == CT_OK && compiled->is_about_functions) {
    compiled->functions = calloc((size_t)compiled->fn_count + 1, sizeof(*compiled->functions));
    code = compiled->functions != NULL ? CT_OK : ct_fail(diag, CT_ENOMEM, "out of memory for a filter");
  }
  if (code != CT_OK) {
    ct_filter_free_compiled(compiled);
    return code;
  }
  *out = compiled;
  return CT_OK;
}

void
ct_filter_free_compiled(struct ct_filter_compiled *compiled)
{
  if (compiled != NULL) {
    ct_view_pattern_destroy(&compiled->pattern);
    pthread_mutex_destroy(&compiled->lock);
    free(compiled->functions);
    free(compiled);
  }
}

static __attribute__((noinline)) uint8_t
find_out(struct ct_filter_compiled *compiled, uint32_t id)
{
  const struct ct_trace_function *fn = id < compiled->fn_count ? ct_trace_function(compiled->trace, id) : NULL;
  pthread_mutex_lock(&compiled->lock);
  bool passes =
      ct_view_pattern_has_place(&compiled->pattern, fn) && ct_view_pattern_has_function(&compiled->pattern, fn);
  pthread_mutex_unlock(&compiled->lock);
  uint8_t answer = passes ? PASSES : IS_OUT;
  atomic_store_explicit(&compiled->functions[id < compiled->fn_count ? id : compiled->fn_count], answer,
                        memory_order_relaxed);
  return answer;
}

bool
ct_filter_has_function(struct ct_filter_compiled *compiled, uint32_t fn)
{
  if (!compiled->is_about_functions) {
    return true;
  }
  uint8_t known = atomic_load_explicit(&compiled->functions[fn < compiled->fn_count ? fn : compiled->fn_count],
                                       memory_order_relaxed);
  return (known != UNKNOWN ? known : find_out(compiled, fn)) == PASSES;
}

bool
ct_filter_has_thread(const struct ct_filter_compiled *compiled, uint32_t tid)
{
  bool has = compiled->filter.tid_count == 0;
  for (size_t i = 0; i < compiled->filter.tid_count && !has; i++) {
    has = compiled->filter.tids[i] == tid;
  }
  return has;
}

bool
ct_filter_has_call(const struct ct_filter_compiled *compiled, uint64_t ns, uint32_t depth, unsigned end)
{
  return ct_filter_call_passes(&compiled->filter, ns, depth, end);
}

bool
ct_filter_is_about_calls(const struct ct_filter_compiled *compiled)
{
  return ct_filter_limits_calls(&compiled->filter);
}
