/* SPDX-License-Identifier: MIT */
/* For those who wait for calls that are recorded as instructions, and do not want to wait. */
#ifndef CT_RECORD_ITRACE_LIVE_H
#define CT_RECORD_ITRACE_LIVE_H

#include <contrail/session.h>

#include <stdbool.h>
#include <stdint.h>

/* The probe that has that number when the wait begins: the number may be another one's later. */
struct session_itrace_wait {
  uint32_t number;
  uint64_t serial;
  uint64_t after; /* it is over too when more than that of its calls have ended; UINT64_MAX: not for that */
};

/* 0 or CT_ENOENT: there is no such probe. */
int session_itrace_wait_begin(struct ct_session *session, uint32_t number, uint64_t after,
                              struct session_itrace_wait *wait);
/* See ct_session_itrace_wait. Any thread's; waits for nobody. */
bool session_itrace_wait_is_over(struct ct_session *session, const struct session_itrace_wait *wait);
/* The number is still the same probe's. */
bool session_itrace_wait_is_of(struct ct_session *session, const struct session_itrace_wait *wait);
/*
 * The calls of the probe that have ended after those, as a JSON array of objects: call (which, from 1 on), tid,
 * function (null: it has no name), fn, first_step, steps, outcome. As far as they are among the last of all, which are
 * kept. By malloc(); NULL: out of memory.
 */
char *session_itrace_ended(struct ct_session *session, const struct session_itrace_wait *wait);

#endif
