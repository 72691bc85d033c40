/* SPDX-License-Identifier: MIT */
/* See recording.h. */
#include "cli/recording.h"

#include <contrail/exclude.h>
#include <contrail/select.h>

#include <inttypes.h>
#include <stdio.h>

enum { SAMPLE_MAX = 256, RING_MIB_MAX = 256, OUTPUT_MIB_MAX = 4096, MAX_DEPTH = 1000000 };

static int
set_values(const struct ct_command *command, enum ct_select_values values, struct ct_selection **selection)
{
  if (*selection == NULL && (*selection = ct_selection_create()) == NULL) {
    return ct_command_failed(command, "out of memory");
  }
  ct_selection_set_values(*selection, values);
  return CT_EXIT_OK;
}

/* A number from 1 to max, of unit. */
static int
set_number(const struct ct_command *command, const char *name, uint32_t max, const char *unit, uint32_t *value)
{
  uint64_t number;
  if (!ct_parse_number(optarg, max, &number) || number < 1) {
    return ct_usage_error(command, "--%s takes 1 to %" PRIu32 "%s, not '%s'", name, max, unit, optarg);
  }
  *value = (uint32_t)number;
  return CT_EXIT_OK;
}

static int
set_sample(const struct ct_command *command, uint32_t *sample)
{
  uint64_t number;
  if (!ct_parse_number(optarg, SAMPLE_MAX, &number) || number < 1 || (number & (number - 1)) != 0) {
    return ct_usage_error(command, "--sample takes a power of two, 1 to %u, not '%s'", SAMPLE_MAX, optarg);
  }
  *sample = (uint32_t)number;
  return CT_EXIT_OK;
}

static int
set_flag(bool *flag)
{
  *flag = true;
  return CT_EXIT_OK;
}

int
ct_recording_option(const struct ct_command *command, int option, char **argv, struct ct_session_options *session)
{
  switch (option) {
  case 'o':
    session->directory = optarg;
    return CT_EXIT_OK;
  case 'f':
    return set_flag(&session->follow);
  case CT_OPTION_LOSSLESS:
    return set_flag(&session->lossless);
  case CT_OPTION_NO_CACHE:
    return set_flag(&session->no_cache);
  case CT_OPTION_NO_OUTPUT:
    return set_flag(&session->no_output);
  case CT_OPTION_SOURCE:
    return set_flag(&session->sources);
  case CT_OPTION_NO_SAMPLING:
    return set_flag(&session->no_sampling);
  case CT_OPTION_RING_SIZE:
    return set_number(command, "ring-size", RING_MIB_MAX, " (MiB)", &session->ring_mib);
  case CT_OPTION_CHILD_RING_SIZE:
    return set_number(command, "child-ring-size", RING_MIB_MAX, " (MiB)", &session->child_ring_mib);
  case CT_OPTION_MAX_OUTPUT:
    return set_number(command, "max-output", OUTPUT_MIB_MAX, " (MiB)", &session->output_mib);
  case CT_OPTION_MAX_DEPTH:
    return set_number(command, "max-depth", MAX_DEPTH, "", &session->max_depth);
  case CT_OPTION_SAMPLE:
    return set_sample(command, &session->sample);
  case CT_OPTION_ARGS:
    return set_values(command, CT_VALUES_ALL, &session->selection);
  case CT_OPTION_NO_ARGS:
    return set_values(command, CT_VALUES_NONE, &session->selection);
  case CT_OPTION_EXCLUDE:
  case CT_OPTION_EXCLUDE_FROM:
  case CT_OPTION_EXCLUDE_HOT:
    return ct_exclude_option(command, option, optarg, &session->exclude);
  case CT_OPTION_TRACE:
  case CT_OPTION_MODE:
  case CT_OPTION_ROOT:
    return ct_select_option(command, option, optarg, &session->selection);
  default:
    return ct_bad_option(command, argv, option);
  }
}

void
ct_recording_remark(const struct ct_session_options *options, const struct ct_session_status *status)
{
  ct_exclude_warn(options->exclude);
  ct_select_warn(options->selection);
  if (status->note[0] != '\0') {
    fprintf(stderr, "contrail: note: %s\n", status->note);
  }
  if (status->child_dropped != 0) {
    fprintf(stderr,
            "contrail: %" PRIu64 " events of children were dropped (%" PRIu64
            " recorded); --lossless or a larger --child-ring-size keeps them\n",
            status->child_dropped, status->child_events);
  }
  if (status->dropped != 0) {
    fprintf(stderr,
            "contrail: %" PRIu64 " events were dropped (%" PRIu64
            " recorded); --lossless or a larger --ring-size keeps them\n",
            status->dropped, status->events);
  }
}

void
ct_recording_options_free(struct ct_session_options *options)
{
  ct_exclude_free(options->exclude);
  ct_selection_free(options->selection);
}
