/* SPDX-License-Identifier: MIT */
/* Filters inside views/: what <contrail/filter.h> does not give to everybody. */
#ifndef CT_VIEWS_FILTER_H
#define CT_VIEWS_FILTER_H

#include <contrail/filter.h>

/* The caller's filter, which may be NULL or of another size, as ours. 0, CT_EINVAL or CT_EUNSUPPORTED. */
int ct_filter_take(const struct ct_filter *given, struct ct_filter *own, struct ct_diag *diag);
/* A view's options, of that size, and their filter: *of, in own, points to filter from then on. As ct_sized_take. */
int ct_filter_take_with(void *own, size_t size, const void *given, const struct ct_filter **of,
                        struct ct_filter *filter, struct ct_diag *diag);
/* For who knows what to do with `after`; ct_filter_take refuses it. */
int ct_filter_take_after(const struct ct_filter *given, struct ct_filter *own, struct ct_diag *diag);
/* See ct_filter_has_call and ct_filter_is_about_calls. */
bool ct_filter_call_passes(const struct ct_filter *filter, uint64_t ns, uint32_t depth, unsigned end);
bool ct_filter_limits_calls(const struct ct_filter *filter);
/* A line like "counted: calls of at least 1.000 ms at depth 2 or more", where some calls are out. text: room for it. */
enum { CT_FILTER_TEXT_CHARS = 400 };
void ct_filter_describe_calls(const struct ct_filter *filter, char text[CT_FILTER_TEXT_CHARS]);

#endif
