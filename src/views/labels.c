/* SPDX-License-Identifier: MIT */
/* Labels of functions; see labels.h. */
#include "views/labels.h"

#include "base/demangle.h"
#include "base/json.h"
#include "views/text.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

int
ct_labels_init(struct ct_labels *labels, struct ct_trace *trace, struct ct_view_pattern *pattern)
{
  uint32_t count = ct_trace_function_count(trace);
  *labels = (struct ct_labels){.trace = trace, .pattern = pattern, .fn_count = count};
  labels->of = calloc((size_t)count + 1, sizeof(*labels->of));
  return labels->of != NULL ? 0 : CT_ENOMEM;
}

void
ct_labels_destroy(struct ct_labels *labels)
{
  for (size_t i = 0; labels->of != NULL && i <= labels->fn_count; i++) {
    free(labels->of[i].text);
    free(labels->of[i].json);
  }
  free(labels->of);
  *labels = (struct ct_labels){0};
}

/* file may be NULL. */
static char *
json_members(const char *name, const char *module, const char *file, uint32_t line)
{
  char *members = NULL;
  char *n = ct_json_quoted(name), *m = ct_json_quoted(module), *f = file != NULL ? ct_json_quoted(file) : NULL;
  int length = n == NULL || m == NULL || (file != NULL && f == NULL) ? -1
               : f == NULL ? asprintf(&members, "\"name\":%s,\"module\":%s", n, m)
               : line == 0 ? asprintf(&members, "\"name\":%s,\"module\":%s,\"file\":%s,\"line\":null", n, m, f)
                           : asprintf(&members, "\"name\":%s,\"module\":%s,\"file\":%s,\"line\":%u", n, m, f, line);
  free(n);
  free(m);
  free(f);
  return length >= 0 ? members : NULL;
}

/* The name with "()", and where it is written (file may be NULL). */
static char *
label_text(const char *name, const char *file, uint32_t line)
{
  char *text = NULL;
  const char *parameters = strchr(name, '(') == NULL ? "()" : "";
  int length = file == NULL ? asprintf(&text, "%s%s", name, parameters)
               : line == 0  ? asprintf(&text, "%s%s [%s]", name, parameters, file)
                            : asprintf(&text, "%s%s [%s:%u]", name, parameters, file, line);
  return length >= 0 ? text : NULL;
}

const struct ct_label *
ct_labels_make(struct ct_labels *labels, uint32_t fn)
{
  const struct ct_trace_function *function = fn < labels->fn_count ? ct_trace_function(labels->trace, fn) : NULL;
  struct ct_label *label = &labels->of[fn < labels->fn_count ? fn : labels->fn_count];
  const char *name = function != NULL ? function->name : "?";
  uint32_t module = function != NULL ? function->module : UINT32_MAX;
  uint32_t line = 0;
  const char *file = function != NULL ? ct_trace_function_source(labels->trace, fn, &line) : NULL;
  char *json = json_members(name, ct_trace_module_name(labels->trace, module), file, line);
  char *shown = strdup(name);
  if (shown != NULL && labels->short_names) {
    ct_shorten_name(shown);
  }
  char *text = shown != NULL ? label_text(shown, labels->source ? file : NULL, line) : NULL;
  if (text == NULL || json == NULL) {
    free(shown);
    free(text);
    free(json);
    return NULL;
  }
  for (char *p = text; *p != '\0'; p++) {
    if ((unsigned char)*p < 0x20 || *p == 0x7f) {
      *p = '?';
    }
  }
  label->text = text;
  label->text_length = (uint32_t)strlen(text);
  label->name_length = (uint32_t)(strchr(shown, '(') == NULL ? strlen(shown) : ct_demangled_name_length(shown));
  label->suffix_start = (uint32_t)(strlen(shown) + (strchr(shown, '(') == NULL ? strlen("()") : 0));
  free(shown);
  label->fn = fn;
  label->json = json;
  label->json_length = (uint32_t)strlen(json);
  label->function_matches = ct_view_pattern_has_function(labels->pattern, function);
  label->place_matches = ct_view_pattern_has_place(labels->pattern, function);
  return label;
}
