/* SPDX-License-Identifier: MIT */
/* What a stop has interrupted goes on as if there had been none. */
#ifndef CT_PROCESS_AGAIN_H
#define CT_PROCESS_AGAIN_H

#include <stdbool.h>
#include <sys/types.h>

/* The thread is stopped, for no signal but one that it ignores. When it goes on, it makes the system call again that
 * the stop has ended; true: it does not, and gets EINTR. */
bool ct_make_again(pid_t tid);

#endif
