/* SPDX-License-Identifier: MIT */
/* Selection of threads, functions and modules; see select.h. */
#include "views/select.h"

#include "base/likely.h"
#include "views/filter.h"
#include "views/pattern.h"

#include <contrail/view.h>

#include <stdlib.h>
#include <string.h>

static bool
has_tid(const uint32_t *tids, size_t count, uint32_t tid)
{
  for (size_t i = 0; i < count; i++) {
    if (tids[i] == tid) {
      return true;
    }
  }
  return false;
}

int
ct_choose_threads(const struct ct_trace *trace, const uint32_t *tids, size_t tid_count, uint32_t **threads,
                  size_t *count, struct ct_diag *diag)
{
  uint32_t all = ct_trace_thread_count(trace);
  for (size_t i = 0; i < tid_count; i++) {
    uint32_t t = 0;
    while (t < all && ct_trace_thread(trace, t)->tid != tids[i]) {
      t++;
    }
    if (t == all) {
      return ct_fail(diag, CT_ERANGE, "no thread %u in the trace; `contrail info` lists its threads", tids[i]);
    }
  }
  uint32_t *selected = malloc(((size_t)all + 1) * sizeof(*selected));
  if (selected == NULL) {
    return ct_fail(diag, CT_ENOMEM, "out of memory for the list of threads");
  }
  size_t n = 0;
  for (uint32_t t = 0; t < all; t++) {
    if (tid_count == 0 || has_tid(tids, tid_count, ct_trace_thread(trace, t)->tid)) {
      selected[n++] = t;
    }
  }
  *threads = selected;
  *count = n;
  return 0;
}

/* ---- what may be meant ---- */

static void
find_likely(struct ct_trace *trace, const char *glob, const char *names[], size_t size)
{
  struct ct_likely likely;
  ct_likely_begin(&likely, glob);
  for (uint32_t id = 0; likely.asked[0] != '\0' && id < ct_trace_function_count(trace); id++) {
    const struct ct_trace_function *fn = ct_trace_function(trace, id);
    if (fn != NULL) {
      ct_likely_add(&likely, fn->name, id);
    }
  }
  for (size_t i = 0; i < size; i++) {
    names[i] = i < likely.count ? ct_trace_function(trace, likely.ids[i])->name : "";
  }
}

size_t
ct_view_matches(struct ct_trace *trace, const struct ct_filter *given, const char *likely[], size_t size)
{
  size_t count = 0;
  struct ct_filter filter;
  struct ct_view_pattern pattern;
  if (likely != NULL && size != 0) {
    likely[0] = "";
  }
  if (ct_filter_take_after(given, &filter, NULL) != 0 ||
      ct_view_pattern_init(&pattern, trace, filter.function, filter.module, filter.file, NULL) != 0) {
    return 0;
  }
  for (uint32_t id = 0; id < ct_trace_function_count(trace); id++) {
    const struct ct_trace_function *fn = ct_trace_function(trace, id);
    count += fn != NULL && ct_view_pattern_has_place(&pattern, fn) && ct_view_pattern_has_function(&pattern, fn);
  }
  ct_view_pattern_destroy(&pattern);
  if (count == 0 && likely != NULL && filter.function != NULL) {
    find_likely(trace, filter.function, likely, size);
  }
  return count;
}

static bool
has_thread(const struct ct_trace *trace, uint32_t tid)
{
  for (uint32_t i = 0; i < ct_trace_thread_count(trace); i++) {
    if (ct_trace_thread(trace, i)->tid == tid) {
      return true;
    }
  }
  return false;
}

int
ct_own_threads(const struct ct_trace *trace, const uint32_t *tids, size_t tid_count, uint32_t **own, size_t *count)
{
  *count = 0;
  *own = calloc(tid_count + 1, sizeof(**own));
  if (*own == NULL) {
    return CT_ENOMEM;
  }
  for (size_t i = 0; i < tid_count; i++) {
    if (has_thread(trace, tids[i])) {
      (*own)[(*count)++] = tids[i];
    }
  }
  return CT_OK;
}
