/* SPDX-License-Identifier: MIT */
/* Inside views/: the processes that were followed from the one of a trace, as their own traces tell of them. */
#ifndef CT_VIEWS_FAMILY_H
#define CT_VIEWS_FAMILY_H

#include <contrail/trace.h>

#include <jansson.h>
#include <stdio.h>

/*
 * An array of an object for each: pid, parent, born, directory, command, exit, complete, events, dropped; null where a
 * trace does not tell, and not_recorded_because. NULL: children were not followed (or memory is exhausted).
 */
json_t *ct_family_info(const struct ct_trace *trace);
/* As lines; nothing when children were not followed. */
void ct_family_write(const struct ct_trace *trace, FILE *out);

#endif
