/* SPDX-License-Identifier: MIT */
/*
 * The functions that --function, --module and --file choose from a trace. --function is a pattern as those of record
 * --trace
 * (<contrail/select.h>): a name, a glob of one scope or deep, @file:FILE, @usercode, and MODULE! before it. What
 * @usercode means is looked up when the view is made: functions written below the current directory, or where there is
 * none those of the program itself. --module is a glob for a module's path or the last part of it, --file is for source
 * files what FILE is in @file:FILE.
 */
#ifndef CT_VIEWS_PATTERN_H
#define CT_VIEWS_PATTERN_H

#include "base/name_glob.h"
#include "base/source_glob.h"
#include "trace/batch.h"

struct ct_view_pattern {
  struct ct_trace *trace;
  struct ct_glob *module;    /* of --module; NULL: any */
  struct ct_glob *owner;     /* MODULE! of --function; NULL: any */
  struct ct_name_glob names; /* its glob NULL: any, or the files that source describes */
  struct ct_source_glob source;
  struct ct_source_glob place; /* of --file; its glob NULL: any */
  bool has_function;           /* --function was given */
  bool is_about_sources, is_program;
  char *root; /* @usercode */
};

/* Each text may be NULL. 0, CT_ENOMEM, or CT_EINVAL with the reason. The trace lives until the pattern is destroyed. */
int ct_view_pattern_init(struct ct_view_pattern *pattern, struct ct_trace *trace, const char *function,
                         const char *module, const char *file, struct ct_diag *diag);
void ct_view_pattern_destroy(struct ct_view_pattern *pattern); /* accepts a zeroed one */

/*
 * What --function says of the function, and --module and --file of where it is. fn NULL: no name is known.
 */
bool ct_view_pattern_has_function(struct ct_view_pattern *pattern, const struct ct_trace_function *fn);
bool ct_view_pattern_has_place(const struct ct_view_pattern *pattern, const struct ct_trace_function *fn);
/* Whether functions of the module may match --function, by the MODULE! before it. */
bool ct_view_pattern_owns_module(const struct ct_view_pattern *pattern, uint32_t module);

#endif
