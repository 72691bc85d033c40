/* SPDX-License-Identifier: MIT */
/*
 * Checks: what a script wants to be true of a trace, a line each, with the value that it has there.
 *
 *   PATTERN.FIELD OP NUMBER[UNIT]    setCommand.p99 < 1ms      every function that the pattern matches
 *   no losses                        no event was lost, and nothing of the trace is gone
 *   no crash                         no signal ended the program
 *   no open PATTERN                  no call of these functions was open when the program or the trace ended
 *   exit == NUMBER                   the program's exit status
 *
 * PATTERN is that of report --function. FIELD: calls, open, total, self, min, avg, p50, p95, p99, max. OP: < <= > >= ==
 * !=. UNIT: ns, us, ms or s for times; for calls and open none, or k, M, G (thousands). A line is taken apart from its
 * right end, so a pattern may have blanks, dots and operators in it: `Text::operator<.calls <= 3`.
 *
 * A pattern that matches several functions is a check of each: all have to hold, and the value shown is the worst one.
 * A function of the trace that was never called has 0 calls, total and self; it has no other times, and is left out of
 * checks of these if others match. Percentiles are as exact as those of the report (0.8 %).
 *
 * Of a process tree, functions of several processes are one when module, name and address are the same, as in its
 * report; no crash is about every process, exit about the first one.
 *
 * Where the trace does not know everything (events were lost, the recording was cut short, sampled, or held to a
 * budget) a value is a bound, and a check is answered where the bound is enough: 5 calls that were seen are more than 3
 * whatever was lost.
 */
#ifndef CONTRAIL_CHECK_H
#define CONTRAIL_CHECK_H

#include <contrail/error.h>
#include <contrail/view.h>

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#ifdef __cplusplus
extern "C" {
#endif

struct ct_checks; /* opaque: a list of lines; of one thread at a time */

struct ct_checks *ct_checks_create(void);      /* NULL: out of memory */
void ct_checks_free(struct ct_checks *checks); /* accepts NULL */
/* 0, CT_ENOMEM, or CT_EINVAL with the reason. */
int ct_checks_add(struct ct_checks *checks, const char *line, struct ct_diag *diag);
/*
 * The lines of a file, one after the other; empty ones, and what follows a # at the begin of a line or after a blank,
 * are passed over. CT_ENOENT, CT_EIO, and those of ct_checks_add, with the number of the line.
 */
int ct_checks_add_file(struct ct_checks *checks, const char *path, struct ct_diag *diag);
size_t ct_checks_count(const struct ct_checks *checks);

/* Of all lines: FAIL when one fails, else UNANSWERED when one cannot be answered. */
enum ct_check_result { CT_CHECK_HOLDS = 0, CT_CHECK_FAILS = 1, CT_CHECK_UNANSWERED = 2 };

struct ct_check_options {
  size_t struct_size;
  const uint32_t *tids; /* only these threads; all when tid_count is 0 */
  size_t tid_count;
  unsigned workers; /* threads to read with; 0: one */
  bool json;
  enum ct_view_time time;
  struct ct_view_progress progress;
  bool family; /* of all processes that were followed too: no tids, and no piece of the trace */
};

/* Writes a line for each check. *result is set when 0 is returned; notes may be NULL. */
struct ct_trace;
int ct_checks_write(struct ct_trace *trace, const struct ct_checks *checks, const struct ct_check_options *options,
                    FILE *out, enum ct_check_result *result, struct ct_view_notes *notes, struct ct_diag *diag);

#ifdef __cplusplus
}
#endif

#endif
