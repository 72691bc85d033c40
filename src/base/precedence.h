/* SPDX-License-Identifier: MIT */
/*
 * While a program's threads are held, for a moment, what is done to them needs the processors: each thread must run
 * once more to see that it is to stop, and some of the work is done by one of them. A thread of ours that would keep a
 * processor busy meanwhile (the program's drain) gives way; on two processors that makes out tens of milliseconds.
 */
#ifndef CT_BASE_PRECEDENCE_H
#define CT_BASE_PRECEDENCE_H

#include <stdbool.h>
#include <stdint.h>

struct ct_precedence {
  uint32_t asked; /* how often; a futex. 0 to begin with */
};

/* Asks for precedence, and does not wait for it. Whoever asks must not wait for the busy thread. Accept NULL: nobody
 * is. */
void ct_precedence_begin(struct ct_precedence *precedence);
void ct_precedence_end(struct ct_precedence *precedence);

/* For the busy thread. */
bool ct_precedence_asked(const struct ct_precedence *precedence);
/* Returns when nobody asks any more. Not while it holds a lock. */
void ct_precedence_give_way(const struct ct_precedence *precedence);

#endif
