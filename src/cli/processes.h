/* SPDX-License-Identifier: MIT */
/* Processes by name. */
#ifndef CT_CLI_PROCESSES_H
#define CT_CLI_PROCESSES_H

#include <stddef.h>
#include <sys/types.h>

/*
 * How many processes other than this one have the name: their own (comm), that of their file, or the last part of their
 * first word. pids gets the first `size` of them, ascending.
 */
size_t ct_processes_named(const char *name, pid_t *pids, size_t size);

#endif
