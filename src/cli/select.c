/* SPDX-License-Identifier: MIT */
/* The options about selection, and what is reported about patterns. */
#include "cli/select.h"

#include <contrail/text.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { LINES_MAX = 8 };

static int
need_selection(const struct ct_command *command, struct ct_selection **selection)
{
  if (*selection == NULL && (*selection = ct_selection_create()) == NULL) {
    return ct_command_failed(command, "out of memory");
  }
  return CT_EXIT_OK;
}

int
ct_select_pattern(const struct ct_command *command, const char *pattern, struct ct_selection **selection)
{
  struct ct_diag diag = {""};
  int code = need_selection(command, selection);
  if (code != CT_EXIT_OK) {
    return code;
  }
  if (strcmp(pattern, "none") == 0) {
    ct_selection_set_none(*selection);
    return CT_EXIT_OK;
  }
  return ct_selection_add(*selection, pattern, CT_SELECT_AUTO, &diag) == 0
             ? CT_EXIT_OK
             : ct_usage_error(command, "--trace '%.200s': %s", pattern, diag.text);
}

static int
apply_trace(const struct ct_applied *applied)
{
  return ct_select_pattern(applied->command, applied->value, applied->member);
}

static int
apply_mode(const struct ct_applied *applied)
{
  struct ct_selection **selection = applied->member;
  int code = need_selection(applied->command, selection);
  for (int m = CT_SELECT_AUTO; code == CT_EXIT_OK && m <= CT_SELECT_LIGHT; m++) {
    if (strcmp(applied->value, ct_select_mode_name((enum ct_select_mode)m)) == 0) {
      ct_selection_set_mode(*selection, (enum ct_select_mode)m);
      return CT_EXIT_OK;
    }
  }
  return code != CT_EXIT_OK
             ? code
             : ct_usage_error(applied->command, "--mode takes full, light or auto, not '%.200s'", applied->value);
}

static int
apply_root(const struct ct_applied *applied)
{
  struct ct_selection **selection = applied->member;
  struct ct_diag diag = {""};
  int code = need_selection(applied->command, selection);
  if (code == CT_EXIT_OK && ct_selection_set_root(*selection, applied->value, &diag) != 0) {
    code = ct_usage_error(applied->command, "--project-root '%.200s': %s", applied->value, diag.text);
  }
  return code;
}

const struct ct_option ct_select_options[] = {
    {.name = "trace",
     .argument = "PATTERN",
     .help = "hook only functions that match: foo::bar, foo::* (one scope), foo::** (deep), @file:FILE, "
             "@usercode, MODULE!PATTERN. May be given several times. none: hook nothing, until contrail trace "
             "add",
     .values = CT_COMPLETE_PATTERN,
     .adds_up = true,
     .apply = apply_trace},
    {.name = "mode",
     .argument = "MODE",
     .help = "how functions are hooked: full (enter and return), light (enter only) or auto (default): light "
             "for **, @file: and @usercode that match more than ten functions, else full",
     .values = "full light auto",
     .apply = apply_mode},
    {.name = "project-root",
     .argument = "DIR",
     .help = "the directory that @usercode means (default: the current directory)",
     .values = CT_COMPLETE_DIRECTORY,
     .apply = apply_root},
    CT_OPTIONS_END,
};

/* Which patterns of this option have matched nothing. */
static void
warn_of(const struct ct_selection *selection, const char *option)
{
  struct ct_select_info info = {.struct_size = sizeof(info)};
  size_t unmatched = 0;
  for (size_t n = 0; ct_selection_info(selection, n, &info) == 0; n++) {
    if (info.matched == 0 && unmatched++ < LINES_MAX) {
      const char *more = info.note[0] != '\0' ? info.note : info.likely;
      fprintf(stderr, "contrail: %s '%s' matched no function%s", option, info.pattern, more[0] != '\0' ? ": " : "");
      ct_put_printable(stderr, more, SIZE_MAX);
      fputc('\n', stderr);
    } else if (info.matched != 0 && info.note[0] != '\0') {
      fprintf(stderr, "contrail: %s '%s': %s\n", option, info.pattern, info.note);
    }
  }
  if (unmatched > LINES_MAX) {
    fprintf(stderr, "contrail: ... nor did %zu more patterns\n", unmatched - LINES_MAX);
  }
}

void
ct_select_warn(const struct ct_selection *selection)
{
  warn_of(selection, "--trace");
  warn_of(ct_selection_detail(selection), "--detail");
}

json_t *
ct_select_json(const struct ct_selection *selection)
{
  char *text = ct_selection_json(selection);
  json_t *json = text != NULL ? json_loads(text, 0, NULL) : NULL;
  free(text);
  return json != NULL ? json : json_array();
}

void
ct_select_print(const struct ct_selection *selection, FILE *out)
{
  struct ct_select_info info = {.struct_size = sizeof(info)};
  for (size_t n = 0; ct_selection_info(selection, n, &info) == 0; n++) {
    if (n == 0) {
      fprintf(out, "\n%9s %9s %9s  %-5s %-8s pattern\n", "matched", "hooked", "refused", "mode", "class");
    }
    fprintf(out, "%9zu %9zu %9zu  %-5s %-8s %s\n", info.matched, info.hooked, info.matched - info.hooked,
            ct_select_mode_name(info.mode), ct_select_kind_name(info.kind), info.pattern);
    for (int r = 1; r < CT_REFUSED_COUNT; r++) {
      size_t count = ct_selection_refused(selection, n, (enum ct_refusal)r);
      if (count != 0) {
        fprintf(out, "%29zu  %s\n", count, ct_refusal_text((enum ct_refusal)r));
      }
    }
  }
}
