/* SPDX-License-Identifier: MIT */
/* What a reader of any view has to know before he believes its numbers. */
#ifndef CT_VIEWS_WARNINGS_H
#define CT_VIEWS_WARNINGS_H

#include "trace/batch.h"

#include <stdio.h>

/*
 * The recording was cut short (INCOMPLETE), something of the trace is gone (DAMAGED), events were LOST: a line each. An
 * array of strings, empty when all is well; NULL without memory.
 */
json_t *ct_view_warnings(const struct ct_trace *trace);
/* The first two alone, and the last one, of numbers that are of more than one trace. */
json_t *ct_view_damage(const struct ct_trace *trace);
void ct_view_add_lost(json_t *list, uint64_t events, uint64_t dropped);
/* As lines of text, each after prefix. */
void ct_view_put_list(const json_t *list, const char *prefix, FILE *out);
void ct_view_put_warnings(const struct ct_trace *trace, const char *prefix, FILE *out);
/* Of all threads, and those that have no stream. */
void ct_view_event_sums(const struct ct_trace *trace, uint64_t *events, uint64_t *dropped);

#endif
