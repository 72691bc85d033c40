/* SPDX-License-Identifier: MIT */
/* What record and attach share: the options about what is recorded and how, and what is reported at the end. */
#ifndef CT_CLI_RECORDING_H
#define CT_CLI_RECORDING_H

#include "cli/command.h"
#include "cli/select.h"

#include <contrail/session.h>

enum { CT_EXIT_RECORDING = 125 }; /* recording itself failed */

/* --output, which each command describes with what it says of its own. Member: struct ct_session_options. */
#define CT_OPTION_OUTPUT(type, where)                                                                                  \
  {                                                                                                                    \
    .name = "output", .letter = 'o', .argument = "DIR",                                                                \
    .help = "write the trace to DIR, which must not exist yet. Default: " CT_DEFAULT_TRACE                             \
            "; an existing " CT_DEFAULT_TRACE " moves to " CT_DEFAULT_TRACE ".old",                                    \
    .values = CT_COMPLETE_DIRECTORY, .apply = ct_apply_text, .offset = offsetof(type, where.directory)                 \
  }
/* All others but --follow, which each command describes itself. Member: struct ct_session_options. */
extern const struct ct_option ct_recording_options[];

/* On stderr, after a recording that is good: patterns that matched nothing, notes, and what was dropped. */
void ct_recording_warn(const struct ct_session_options *options, const struct ct_session_status *status);
/* Frees what the options have gathered. */
void ct_recording_options_free(struct ct_session_options *options);

#endif
