/* SPDX-License-Identifier: MIT */
/* What record and attach do about their trace before and after: where it goes, whose it is, and the line at the end. */
#ifndef CT_CLI_CLOSING_H
#define CT_CLI_CLOSING_H

#include "cli/command.h"

#include <contrail/session.h>

/* --format. Member: const char *. */
#define CT_OPTION_FORMAT(type, where)                                                                                  \
  {                                                                                                                    \
    .name = "format", .argument = "FORMAT",                                                                            \
    .help = "the format of the trace: contrail (default), or atf2: when the recording has ended, the trace "           \
            "becomes a directory in ATF V2, as by contrail export. Only with --output",                                \
    .values = "contrail atf2", .apply = ct_apply_recording_format, .offset = offsetof(type, where)                     \
  }
int ct_apply_recording_format(const struct ct_applied *applied);
/* Before the recording: CT_EXIT_OK, or the exit code after a message. format: NULL, none was given. */
int ct_check_format(const struct ct_command *command, const struct ct_session_options *options, const char *format);
/* After it: the trace in another format. CT_EXIT_OK; else it is still there, and on stderr stands why. */
int ct_convert_trace(const struct ct_session_options *options, const char *format, bool quiet);

/* The default directory when none was given, in place of the last one; under sudo the trace is the invoking user's. */
void ct_place_trace(struct ct_session_options *options);
/*
 * On stderr: what is in the trace, how large it is, what was lost, that children are not in it, and what to type next;
 * after a crash the signal, the function and the line. Says nothing when the trace cannot be read.
 */
void ct_report_trace(const char *directory);
/* False when nothing was recorded; on stderr why. */
bool ct_report_gaps(const struct ct_session_options *options, const struct ct_session_status *status);

#endif
