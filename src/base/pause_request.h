/* SPDX-License-Identifier: MIT */
/*
 * While a program's threads are stopped, for a moment, what is done to them needs the processors: each thread must run
 * once more to see that it is to stop, and some of the work is done by one of them. A thread of ours that would keep a
 * processor busy meanwhile (the program's drain) yields; on two processors that amounts to tens of milliseconds.
 */
#ifndef CT_BASE_PAUSE_REQUEST_H
#define CT_BASE_PAUSE_REQUEST_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

struct ct_pause_request {
  _Atomic uint32_t asked; /* how often; a futex. 0 to begin with */
};

/* Requests a pause, and does not wait for it. Whoever requests one must not wait for the busy thread. Accept NULL:
 * nobody is. */
void ct_pause_request_begin(struct ct_pause_request *pause_request);
void ct_pause_request_end(struct ct_pause_request *pause_request);

/* For the busy thread. */
bool ct_pause_requested(const struct ct_pause_request *pause_request);
/* Waits until nobody requests a pause any more. Not while it holds a lock. */
void ct_pause_request_yield(const struct ct_pause_request *pause_request);

#endif
