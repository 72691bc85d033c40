/* SPDX-License-Identifier: MIT */
/* What a user of the library asks of a plan and a selection together: <contrail/select.h>. */
#include "select/select.h"

#include <stdlib.h>

int
ct_filter_result_create(const struct ct_plan *plan, struct ct_selection *selection, struct ct_exclude *exclude,
                        const char *path, struct ct_filter_result **out)
{
  struct ct_filter_result *filter_result = calloc(1, sizeof(*filter_result));
  if (filter_result == NULL) {
    return CT_ENOMEM;
  }
  int code = ct_select_filter(selection, exclude, plan, path, true, filter_result);
  if (code != 0) {
    ct_filter_result_destroy(filter_result);
    return code;
  }
  *out = filter_result;
  return 0;
}

void
ct_filter_result_destroy(struct ct_filter_result *filter_result)
{
  if (filter_result != NULL) {
    ct_filter_result_free(filter_result);
  }
  free(filter_result);
}

void
ct_plan_suggest(const struct ct_plan *plan, struct ct_selection *selection, struct ct_exclude *exclude,
                const char *path)
{
  if (selection != NULL) {
    ct_select_suggest(selection, plan, path);
  }
  if (exclude != NULL) {
    ct_exclude_suggest(exclude, plan, path);
  }
}
