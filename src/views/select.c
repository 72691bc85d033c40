/* SPDX-License-Identifier: MIT */
/* Choice of threads, functions and modules; see select.h. */
#include "views/select.h"

#include "base/demangle.h"

#include <fnmatch.h>
#include <stdlib.h>
#include <string.h>

static bool
has_tid(const uint32_t *tids, size_t count, uint32_t tid)
{
  for (size_t i = 0; i < count; i++) {
    if (tids[i] == tid)
      return true;
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
    while (t < all && ct_trace_thread(trace, t)->tid != tids[i])
      t++;
    if (t == all)
      return ct_fail(diag, CT_ERANGE, "no thread %u in the trace; `contrail info` lists its threads", tids[i]);
  }
  uint32_t *chosen = malloc(((size_t)all + 1) * sizeof(*chosen));
  if (chosen == NULL)
    return ct_fail(diag, CT_ENOMEM, "out of memory for the list of threads");
  size_t n = 0;
  for (uint32_t t = 0; t < all; t++) {
    if (tid_count == 0 || has_tid(tids, tid_count, ct_trace_thread(trace, t)->tid))
      chosen[n++] = t;
  }
  *threads = chosen;
  *count = n;
  return 0;
}

bool
ct_function_matches(const struct ct_trace_function *fn, const char *glob)
{
  if (glob == NULL)
    return true;
  if (fn == NULL)
    return false;
  if (fnmatch(glob, fn->name, 0) == 0 || fnmatch(glob, fn->raw_name, 0) == 0)
    return true;
  size_t length = ct_demangled_name_length(fn->name);
  if (fn->name[length] == '\0')
    return false;
  char *plain = strndup(fn->name, length);
  bool matches = plain != NULL && fnmatch(glob, plain, 0) == 0;
  free(plain);
  return matches;
}

bool
ct_module_matches(const struct ct_trace *trace, uint32_t module, const char *glob)
{
  if (glob == NULL)
    return true;
  const struct ct_trace_module *m = ct_trace_module(trace, module);
  if (fnmatch(glob, ct_trace_module_name(trace, module), 0) == 0)
    return true;
  return m != NULL && m->path != NULL && fnmatch(glob, m->path, 0) == 0;
}
