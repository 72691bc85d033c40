/* SPDX-License-Identifier: MIT */
/*
 * How the program was ended by a signal: what crash.json has, and the last calls of each thread as the trace has
 * them. Without crash.json (a signal that nobody can handle, or that the program handled itself) the signal is from the
 * manifest.
 */
#ifndef CT_VIEWS_CRASH_H
#define CT_VIEWS_CRASH_H

#include "span/clock.h"

#include <stdio.h>

/* The paragraphs that `contrail info` begins with; nothing when no signal ended the program. 0 or CT_ENOMEM. */
int ct_crash_write(struct ct_trace *trace, enum ct_view_time time, FILE *out);
/* What the threads were in when contrail attached; nothing of a program that it started. */
void ct_stacks_write(const struct ct_trace *trace, FILE *out);
/* The same for --json: all of crash.json, with "last_calls" in each thread. null when there is nothing to tell. */
json_t *ct_crash_json(struct ct_trace *trace, enum ct_view_time time);

#endif
