/* SPDX-License-Identifier: MIT */
/*
 * refused FILE...: which functions of these files contrail would not hook, and why.
 *
 *   cc refused.c $(pkg-config --cflags --libs contrail)
 */
#include <contrail/contrail.h>

#include <inttypes.h>
#include <stdio.h>

static int
show(const char *path)
{
  struct ct_diag diag;
  struct ct_plan *plan;
  if (ct_plan_create(path, &plan, &diag) != 0) {
    fprintf(stderr, "refused: %s\n", diag.text);
    return 1;
  }
  struct ct_plan_function function = {.struct_size = sizeof(function)};
  for (size_t i = 0; ct_plan_function(plan, NULL, i, &function) == 0; i++) {
    char label[256];
    if (function.hooked == CT_HOOKED_NOT && function.callable) {
      printf("%" PRIx64 " %s: %s\n", function.address, ct_plan_function_label(plan, i, label, sizeof(label)),
             ct_refusal_text(function.refusal));
    }
  }
  printf("%s: %zu of %zu functions hooked\n", ct_plan_path(plan), ct_plan_hooked(plan, NULL),
         ct_plan_function_count(plan));
  ct_plan_free(plan);
  return 0;
}

int
main(int argc, char **argv)
{
  int failed = argc < 2;
  for (int i = 1; i < argc; i++) {
    failed |= show(argv[i]);
  }
  return failed;
}
