/* SPDX-License-Identifier: MIT */
/* A look at a program before it is started: what exec would say, and whether we can trace it. */
#ifndef CT_RECORD_PROGRAM_H
#define CT_RECORD_PROGRAM_H

#include "base/error.h"

/*
 * Finds name as execvp does. 0, or an error with diag; *exec_errno is then ENOENT or EACCES when the program
 * cannot be executed, 0 when it could but cannot be traced (32-bit, unreadable).
 */
int ct_program_check(const char *name, int *exec_errno, struct ct_diag *diag);
/* Nonzero when executing path would change the user, the group or the capabilities: tracing would change that. */
int ct_program_is_privileged(const char *path);

#endif
