/* SPDX-License-Identifier: MIT */
/*
 * What the views of a trace (report, replay, info, hot functions) have in common.
 *
 * A view writes to a stdio stream, which it flushes, as text or as JSON; the texts may change with the version, JSON
 * gets new members only. It returns 0, or CT_EIO when the stream cannot be written (errno says why), CT_ERANGE for a
 * thread that the trace does not have, CT_ENOMEM.
 * Several views of one trace may run at once. Options structures begin with struct_size, to be set to their sizeof;
 * all other members may be zero.
 */
#ifndef CONTRAIL_VIEW_H
#define CONTRAIL_VIEW_H

#include <contrail/span.h>

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* What a view has to tell besides its output, filled when it succeeds. Views take NULL too. */
struct ct_view_notes {
  size_t struct_size;
  uint32_t damaged_threads; /* whose file is damaged or cut: what comes before that place is in the view */
  uint32_t first_damaged_tid;
  uint64_t shown;           /* functions of a report, lines of a replay */
  uint32_t damaged_details; /* threads with a file of detail that is damaged: some of it is not shown */
};

struct ct_trace;
struct ct_filter; /* filter.h */
/*
 * How many functions of the trace the filter's function, module and file match, called or not. When none does and
 * likely is not NULL, up to `size` names of functions that may be meant are put there; "" after the last one.
 */
size_t ct_view_matches(struct ct_trace *trace, const struct ct_filter *filter, const char *likely[], size_t size);

#ifdef __cplusplus
}
#endif

#endif
