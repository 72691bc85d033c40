/* SPDX-License-Identifier: MIT */
/* Inside info: the calls that were recorded as instructions too. */
#ifndef CT_VIEWS_INFO_ITRACE_H
#define CT_VIEWS_INFO_ITRACE_H

#include <jansson.h>
#include <stdio.h>

/* A line for each function that was asked for; nothing where none was. */
void ct_info_put_itrace(const json_t *manifest, FILE *out);

#endif
