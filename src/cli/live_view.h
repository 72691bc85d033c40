/* SPDX-License-Identifier: MIT */
/*
 * record --live and attach --live: contrail top, beside the recording that it is of, in a process of its own.
 *
 * The program's files and terminal are not touched. Of a program that we run the tables go to standard error, in a
 * process group of their own, so that the program's has nobody else in it; its output must go elsewhere. Of a process
 * that runs already the terminal is ours: the screen with keys.
 */
#ifndef CT_CLI_LIVE_VIEW_H
#define CT_CLI_LIVE_VIEW_H

#include "cli/command.h"

struct ct_control;

/* Of a program that we run: whether there is a place for tables. CT_EXIT_OK, or the exit code after a message. */
int ct_live_view_check(const struct ct_command *command);
/* The process that shows the session; 0, after a note on stderr: there is none. beside: of a program that we run. */
pid_t ct_live_view_start(const struct ct_control *control, bool beside);
/* The trace is complete: what it is in the end is shown, and the process has ended. 0 is accepted. */
void ct_live_view_end(pid_t view);

#endif
