/* SPDX-License-Identifier: MIT */
/* What record and attach do about their trace before and after: where it goes, whose it is, and the line at the end. */
#ifndef CT_CLI_CLOSING_H
#define CT_CLI_CLOSING_H

#include <contrail/session.h>

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
