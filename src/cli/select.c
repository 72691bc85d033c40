/* SPDX-License-Identifier: MIT */
/* The options about selection, and what is reported about patterns. */
#include "cli/select.h"

#include <contrail/text.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { LINES_MAX = 8 };

static int
parse_mode(const struct ct_command *command, const char *text, enum ct_select_mode *mode)
{
  for (int m = CT_SELECT_AUTO; m <= CT_SELECT_LIGHT; m++) {
    if (strcmp(text, ct_select_mode_name((enum ct_select_mode)m)) == 0) {
      *mode = (enum ct_select_mode)m;
      return CT_EXIT_OK;
    }
  }
  return ct_usage_error(command, "--mode takes full, light or auto, not '%.200s'", text);
}

int
ct_select_option(const struct ct_command *command, int option, const char *argument, struct ct_selection **selection)
{
  struct ct_diag diag = {""};
  enum ct_select_mode mode = CT_SELECT_AUTO;
  if (*selection == NULL && (*selection = ct_selection_create()) == NULL) {
    return ct_command_failed(command, "out of memory");
  }
  if (option == CT_OPTION_MODE) {
    int code = parse_mode(command, argument, &mode);
    if (code == CT_EXIT_OK) {
      ct_selection_set_mode(*selection, mode);
    }
    return code;
  }
  if (option == CT_OPTION_TRACE && strcmp(argument, "none") == 0) {
    ct_selection_set_none(*selection);
    return CT_EXIT_OK;
  }
  int rc = option == CT_OPTION_ROOT ? ct_selection_set_root(*selection, argument, &diag)
                                    : ct_selection_add(*selection, argument, CT_SELECT_AUTO, &diag);
  return rc == 0 ? CT_EXIT_OK
                 : ct_usage_error(command, "%s '%.200s': %s", option == CT_OPTION_ROOT ? "--project-root" : "--trace",
                                  argument, diag.text);
}

void
ct_select_warn(const struct ct_selection *selection)
{
  struct ct_select_info info = {.struct_size = sizeof(info)};
  size_t unmatched = 0;
  for (size_t n = 0; ct_selection_info(selection, n, &info) == 0; n++) {
    if (info.matched == 0 && unmatched++ < LINES_MAX) {
      const char *more = info.note[0] != '\0' ? info.note : info.likely;
      fprintf(stderr, "contrail: --trace '%s' matched no function%s", info.pattern, more[0] != '\0' ? ": " : "");
      ct_put_printable(stderr, more, SIZE_MAX);
      fputc('\n', stderr);
    } else if (info.matched != 0 && info.note[0] != '\0') {
      fprintf(stderr, "contrail: --trace '%s': %s\n", info.pattern, info.note);
    }
  }
  if (unmatched > LINES_MAX) {
    fprintf(stderr, "contrail: ... nor did %zu more patterns\n", unmatched - LINES_MAX);
  }
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
ct_select_print(const struct ct_selection *selection)
{
  struct ct_select_info info = {.struct_size = sizeof(info)};
  for (size_t n = 0; ct_selection_info(selection, n, &info) == 0; n++) {
    if (n == 0) {
      printf("\n%9s %9s %9s  %-5s %-8s pattern\n", "matched", "hooked", "refused", "mode", "class");
    }
    printf("%9zu %9zu %9zu  %-5s %-8s %s\n", info.matched, info.hooked, info.matched - info.hooked,
           ct_select_mode_name(info.mode), ct_select_kind_name(info.kind), info.pattern);
    for (int r = 1; r < CT_REFUSED_COUNT; r++) {
      size_t count = ct_selection_refused(selection, n, (enum ct_refusal)r);
      if (count != 0) {
        printf("%29zu  %s\n", count, ct_refusal_text((enum ct_refusal)r));
      }
    }
  }
}
