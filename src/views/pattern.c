/* SPDX-License-Identifier: MIT */
/* See pattern.h. */
#include "views/pattern.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static bool
is_written_below(const struct ct_view_pattern *pattern, const struct ct_trace_function *fn)
{
  uint32_t line;
  const char *file = ct_trace_function_source(pattern->trace, fn->id, &line);
  return file != NULL && ct_source_is_below(file, pattern->root);
}

/* Whether no function of the trace is the user's by its file: then @usercode is the program. */
static bool
has_no_usercode(const struct ct_view_pattern *pattern)
{
  for (uint32_t id = 0; id < ct_trace_function_count(pattern->trace); id++) {
    const struct ct_trace_function *fn = ct_trace_function(pattern->trace, id);
    if (fn != NULL && is_written_below(pattern, fn)) {
      return false;
    }
  }
  return true;
}

static int
compile_function(struct ct_view_pattern *pattern, const char *text, struct ct_diag *diag)
{
  const char *separator = ct_glob_separator(text);
  const char *function = separator != NULL ? separator + 1 : text;
  if (text[0] == '\0' || separator == text) {
    return ct_fail(diag, CT_EINVAL, text[0] == '\0' ? "it is empty" : "no module before the '!'");
  }
  int code = separator != NULL ? ct_glob_compile(text, (size_t)(separator - text), &pattern->owner, diag) : 0;
  if (code != 0) {
    return code;
  }
  if (function[0] == '@') {
    pattern->is_about_sources = true;
    code = ct_source_glob_compile(function, &pattern->source, diag);
    if (code == 0 && pattern->source.glob == NULL) {
      pattern->root = realpath(".", NULL);
      pattern->is_program = pattern->root == NULL || has_no_usercode(pattern);
    }
    return code;
  }
  if (function[0] == '\0' && separator != NULL) {
    return 0; /* all functions of these modules */
  }
  return ct_name_glob_compile(function, &pattern->names, diag);
}

/* FILE as in @file:FILE. */
static int
compile_file(const char *file, struct ct_source_glob *place, struct ct_diag *diag)
{
  char *text = NULL;
  if (asprintf(&text, "@file:%s", file) < 0) {
    return ct_fail(diag, CT_ENOMEM, "out of memory");
  }
  int code = ct_source_glob_compile(text, place, diag);
  free(text);
  return code;
}

int
ct_view_pattern_init(struct ct_view_pattern *pattern, struct ct_trace *trace, const char *function, const char *module,
                     const char *file, struct ct_diag *diag)
{
  struct ct_diag why = {""};
  const char *option = "module", *text = module;
  struct ct_view_pattern own = {.trace = trace, .has_function = function != NULL};
  int code = module != NULL ? ct_glob_compile(module, strlen(module), &own.module, &why) : 0;
  if (code == 0 && file != NULL) {
    option = "file";
    text = file;
    code = compile_file(file, &own.place, &why);
  }
  if (code == 0 && function != NULL) {
    option = "function";
    text = function;
    code = compile_function(&own, function, &why);
  }
  if (code != 0) {
    ct_view_pattern_destroy(&own);
    *pattern = own;
    return ct_fail(diag, code, "--%s '%.200s': %s", option, text, why.text);
  }
  *pattern = own;
  return 0;
}

void
ct_view_pattern_destroy(struct ct_view_pattern *pattern)
{
  ct_glob_free(pattern->module);
  ct_glob_free(pattern->owner);
  ct_name_glob_free(&pattern->names);
  ct_source_glob_free(&pattern->source);
  ct_source_glob_free(&pattern->place);
  free(pattern->root);
  *pattern = (struct ct_view_pattern){0};
}

static bool
module_matches(const struct ct_view_pattern *pattern, const struct ct_glob *glob, uint32_t index)
{
  if (glob == NULL) {
    return true;
  }
  const struct ct_trace_module *module = ct_trace_module(pattern->trace, index);
  const char *name = ct_trace_module_name(pattern->trace, index);
  return ct_glob_matches(glob, name, strlen(name)) ||
         (module != NULL && module->path != NULL && ct_glob_matches(glob, module->path, strlen(module->path)));
}

bool
ct_view_pattern_has_place(const struct ct_view_pattern *pattern, const struct ct_trace_function *fn)
{
  uint32_t line;
  if (!module_matches(pattern, pattern->module, fn != NULL ? fn->module : UINT32_MAX)) {
    return false;
  }
  const char *file =
      pattern->place.glob != NULL && fn != NULL ? ct_trace_function_source(pattern->trace, fn->id, &line) : NULL;
  return pattern->place.glob == NULL || (file != NULL && ct_source_glob_matches(&pattern->place, file));
}

bool
ct_view_pattern_owns_module(const struct ct_view_pattern *pattern, uint32_t module)
{
  return module_matches(pattern, pattern->owner, module);
}

bool
ct_view_pattern_has_function(struct ct_view_pattern *pattern, const struct ct_trace_function *fn)
{
  if (!pattern->has_function) {
    return true;
  }
  if (fn == NULL || !module_matches(pattern, pattern->owner, fn->module)) {
    return false;
  }
  if (pattern->is_about_sources) {
    uint32_t line;
    const char *file = ct_trace_function_source(pattern->trace, fn->id, &line);
    return pattern->is_program            ? fn->module == 0
           : pattern->source.glob == NULL ? is_written_below(pattern, fn)
                                          : file != NULL && ct_source_glob_matches(&pattern->source, file);
  }
  return ct_name_glob_matches(&pattern->names, fn->name, fn->raw_name);
}
