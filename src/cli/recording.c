/* SPDX-License-Identifier: MIT */
/* See recording.h. */
#include "cli/recording.h"

#include <contrail/exclude.h>
#include <contrail/select.h>
#include <contrail/text.h>

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
  case CT_OPTION_LOSSLESS: /* nothing is lost, nothing is estimated */
    session->no_sampling = true;
    return set_flag(&session->lossless);
  case CT_OPTION_NO_WAIT:
    session->lossless = false;
    return CT_EXIT_OK;
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

/* A line for each reason: what helps against one does not help against another. */
static void
warn_drops(const struct ct_session_options *options, const char *what, const uint64_t *dropped_by, uint64_t events,
           const char *ring_option)
{
  char a[CT_COUNT_CHARS], b[CT_COUNT_CHARS];
  for (int reason = 0; reason < CT_DROP_COUNT; reason++) {
    bool room = reason == CT_DROP_OVERWRITTEN || reason == CT_DROP_NO_SEGMENT;
    if (dropped_by[reason] != 0) {
      fprintf(stderr, "contrail: %s %s were dropped (%s recorded): %s", ct_format_count(a, dropped_by[reason]), what,
              ct_format_count(b, events), ct_drop_text(reason));
      if (room) {
        fprintf(stderr, "; %sa larger %s keeps them", options->lossless ? "" : "--lossless or ", ring_option);
      }
      fputc('\n', stderr);
    }
  }
}

void
ct_recording_warn(const struct ct_session_options *options, const struct ct_session_status *status)
{
  ct_exclude_warn(options->exclude);
  ct_select_warn(options->selection);
  if (status->note[0] != '\0') {
    fputs("contrail: note: ", stderr);
    ct_put_printable(stderr, status->note, sizeof(status->note));
    fputc('\n', stderr);
  }
  if (status->children_lost != 0) {
    char count[CT_COUNT_CHARS];
    fprintf(stderr, "contrail: %s %s not recorded; contrail info %s tells why\n",
            ct_format_count(count, status->children_lost), status->children_lost == 1 ? "child was" : "children were",
            options->directory);
  }
  warn_drops(options, "events of children", status->child_dropped_by, status->child_events, "--child-ring-size");
  warn_drops(options, "events", status->dropped_by, status->events, "--ring-size");
}

void
ct_recording_options_free(struct ct_session_options *options)
{
  ct_exclude_free(options->exclude);
  ct_selection_free(options->selection);
}
