/* SPDX-License-Identifier: MIT */
/*
 * While the threads of a program are being stopped each of them needs a processor once more, to see that it is to
 * stop. Our own threads that would keep the processors busy for long (the drain, the output) give way meanwhile: on two
 * processors that makes out tens of milliseconds.
 *
 * The count is one for all sessions of this process, as the processors are.
 */
#ifndef CT_BASE_QUIET_H
#define CT_BASE_QUIET_H

#include <stdbool.h>

/* Asks for quiet. Does not wait for it. Nests; whoever is waited for by the busy threads must not ask. */
void ct_quiet_begin(void);
void ct_quiet_end(void);

bool ct_quiet_asked(void);

/* For a busy thread that holds no lock: returns when nobody asks any more. */
void ct_quiet_give_way(void);

#endif
