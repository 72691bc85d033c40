/* SPDX-License-Identifier: MIT */
/* See suggest.h. */
#include "select/suggest.h"

#include "base/glob.h"
#include "select/names.h"

#include "base/demangle.h"
#include "target/source.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct ct_suggestion *
ct_suggestion_create(const char *pattern)
{
  static const char file[] = "@file:";
  struct ct_suggestion *suggestion = calloc(1, sizeof(*suggestion));
  if (suggestion == NULL) {
    return NULL;
  }
  const char *separator = ct_glob_separator(pattern);
  const char *function = separator != NULL ? separator + 1 : pattern;
  char module[CT_LIKELY_CHARS + 2] = "";
  if (separator != NULL && (size_t)(separator - pattern) < sizeof(module)) {
    memcpy(module, pattern, (size_t)(separator - pattern));
  }
  suggestion->has_module = separator != NULL;
  suggestion->by_file = strncmp(function, file, sizeof(file) - 1) == 0;
  const char *path = suggestion->by_file ? function + sizeof(file) - 1 : "", *slash = strrchr(path, '/');
  const char *last = strstr(function, "::") != NULL ? strrchr(function, ':') + 1 : function;
  ct_likely_begin(&suggestion->modules, module);
  ct_likely_begin(&suggestion->files, slash != NULL ? slash + 1 : path);
  ct_likely_begin(&suggestion->functions, suggestion->by_file || function[0] == '@' ? "" : last);
  return suggestion;
}

static void
match_function(struct ct_likely *likely, const char *raw)
{
  char *name = raw != NULL ? ct_demangle_name(raw) : NULL;
  if (raw != NULL) {
    ct_likely_add(likely, name != NULL ? name : raw, 0);
  }
  free(name);
}

static void
match_files(struct ct_likely *likely, const struct ct_sources *sources)
{
  for (size_t i = 0; sources != NULL && i < sources->file_count; i++) {
    const char *slash = strrchr(sources->files[i], '/');
    ct_likely_add(likely, slash != NULL ? slash + 1 : sources->files[i], 0);
  }
}

void
ct_suggestion_match(struct ct_suggestion *suggestion, const struct ct_plan *plan, const char *path, bool in_module)
{
  char likely[300];
  const char *slash = strrchr(path, '/');
  ct_likely_add(&suggestion->modules, slash != NULL ? slash + 1 : path, 0);
  suggestion->module_seen |= in_module;
  if (in_module && suggestion->by_file) {
    match_files(&suggestion->files, ct_plan_sources(plan));
  }
  for (size_t i = 0; in_module && suggestion->functions.asked[0] != '\0' && i < plan->count; i++) {
    const struct ct_planned *planned = &plan->functions[i];
    const char *alias;
    match_function(&suggestion->functions, planned->name);
    for (size_t n = 0; (alias = ct_plan_alias(plan, planned, n)) != NULL; n++) {
      match_function(&suggestion->functions, alias);
    }
  }
  bool no_module = suggestion->has_module && !suggestion->module_seen;
  ct_likely_text(no_module             ? &suggestion->modules
                 : suggestion->by_file ? &suggestion->files
                                       : &suggestion->functions,
                 likely, sizeof(likely));
  snprintf(suggestion->text, sizeof(suggestion->text), "%s%s%s%s", no_module ? "no such module" : "",
           no_module && likely[0] != '\0' ? "; " : "", likely[0] != '\0' ? "perhaps " : "", likely);
}
