/* SPDX-License-Identifier: MIT */
/*
 * Output: what the program wrote to its standard output and error, with time and thread: a line of the view for each
 * line of a call's text, or a JSON object for each call; or the bytes as they were.
 */
#ifndef CONTRAIL_OUTPUT_H
#define CONTRAIL_OUTPUT_H

#include <contrail/error.h>
#include <contrail/filter.h>
#include <contrail/trace.h>
#include <contrail/view.h>

#include <stdbool.h>
#include <stdio.h>

#ifdef __cplusplus
extern "C" {
#endif

struct ct_output_options {
  size_t struct_size;
  const struct ct_filter *filter; /* threads and how many calls of write; NULL: all */
  uint32_t fd;                    /* 1 or 2: only that one */
  bool json;
  bool raw; /* the bytes, and nothing else */
};

/* CT_EFORMAT too: the file is none of ours. */
int ct_output_write(struct ct_trace *trace, const struct ct_output_options *options, FILE *out, struct ct_diag *diag);

#ifdef __cplusplus
}
#endif

#endif
