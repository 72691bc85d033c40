/* SPDX-License-Identifier: MIT */
/* Inside info: the lines about what the recording cost. */
#ifndef CT_VIEWS_INFO_COSTS_H
#define CT_VIEWS_INFO_COSTS_H

#include <contrail/trace.h>

#include <jansson.h>
#include <stdio.h>

/* A number of all modules of a manifest together. */
uint64_t ct_info_sum_of_modules(const json_t *manifest, const char *key);
void ct_info_put_costs(const struct ct_trace *trace, FILE *out);

#endif
