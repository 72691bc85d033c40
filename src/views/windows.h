/* SPDX-License-Identifier: MIT */
/* The windows of a trace, as info lists them. */
#ifndef CT_VIEWS_WINDOWS_H
#define CT_VIEWS_WINDOWS_H

#include <contrail/trace.h>

#include <jansson.h>
#include <stdio.h>

/* A line for each, of the first of them; label: what stands before the first line, label_columns wide. */
void ct_windows_write(struct ct_trace *trace, const char *label, int label_columns, FILE *out);
/* All, NULL where there are none or memory is out. Those of which the manifest says no sense are null. */
json_t *ct_windows_json(struct ct_trace *trace);

#endif
