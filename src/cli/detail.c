/* SPDX-License-Identifier: MIT */
/* See detail.h. */
#include "cli/detail.h"

#include <contrail/select.h>

enum { SAMPLE_MAX = 256 };

static int
set_values(const struct ct_command *command, enum ct_select_values values, struct ct_selection **selection)
{
  if (*selection == NULL && (*selection = ct_selection_create()) == NULL) {
    return ct_command_failed(command, "out of memory");
  }
  ct_selection_set_values(*selection, values);
  return CT_EXIT_OK;
}

int
ct_detail_option(const struct ct_command *command, int option, const char *argument, struct ct_session_options *session)
{
  uint64_t number;
  switch (option) {
  case CT_OPTION_ARGS:
    return set_values(command, CT_VALUES_ALL, &session->selection);
  case CT_OPTION_NO_ARGS:
    return set_values(command, CT_VALUES_NONE, &session->selection);
  case CT_OPTION_SAMPLE:
    if (!ct_parse_number(argument, SAMPLE_MAX, &number) || number < 1 || (number & (number - 1)) != 0) {
      return ct_usage_error(command, "--sample takes a power of two, 1 to %u, not '%s'", SAMPLE_MAX, argument);
    }
    session->sample = (uint32_t)number;
    return CT_EXIT_OK;
  default:
    session->no_sampling = true;
    return CT_EXIT_OK;
  }
}
