/* SPDX-License-Identifier: MIT */
/* Inside views/: the processes that were followed from the one of a trace, as their own traces describe them. */
#ifndef CT_VIEWS_PROCESS_TREE_H
#define CT_VIEWS_PROCESS_TREE_H

#include <contrail/trace.h>

#include <jansson.h>
#include <stdio.h>

/*
 * An array of an object for each: "pid", "parent", "born", "directory", command, exit, complete, events, dropped; null
 * where a trace does not tell, and not_recorded_because. NULL: children were not followed (or memory is exhausted).
 */
json_t *ct_process_tree_info(const struct ct_trace *trace);
/* How many there are that have a trace. */
size_t ct_process_tree_size(const struct ct_trace *trace);
/* Of a member of the manifest's children: the name of its trace's directory, in the first one's; NULL: it has none. */
const char *ct_process_tree_directory(const json_t *child);
/* That trace, of the family of first. CT_EINVAL: its path is too long; as ct_trace_open. */
int ct_process_tree_open(const struct ct_trace *first, const char *directory, struct ct_trace **out,
                         struct ct_diag *diag);
/* "process 123WHAT: TEXT" for a list of warnings; of each line of a list. */
void ct_process_tree_warn(json_t *list, json_int_t pid, const char *what, const char *text);
void ct_process_tree_warn_each(json_t *list, json_int_t pid, const json_t *texts);
/* As lines; nothing when children were not followed. */
void ct_process_tree_write(const struct ct_trace *trace, FILE *out);

#endif
