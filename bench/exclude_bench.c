/* SPDX-License-Identifier: MIT */
/*
 * What exclusion costs the controller when a module is planned, for each function of the C library: by plain names, by
 * globs, by the built-in list. The target pays nothing for it. N3: the look-up of a name takes at most 10 ns.
 */
#include "select/excluding.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#define ROUNDS 21

static double
now_ns(void)
{
  struct timespec t;
  clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &t);
  return (double)t.tv_sec * 1e9 + (double)t.tv_nsec;
}

static int
compare(const void *a, const void *b)
{
  double x = *(const double *)a, y = *(const double *)b;
  return (x > y) - (x < y);
}

static double
time_filter(struct ct_exclude *exclude, const struct ct_plan *plan, size_t *excluded)
{
  double ns[ROUNDS];
  for (int r = 0; r < ROUNDS; r++) {
    struct ct_filter_result filter_result;
    double begin = now_ns();
    if (ct_exclude_filter(exclude, plan, "libc.so.6", &filter_result) != 0) {
      exit(1);
    }
    ns[r] = now_ns() - begin;
    *excluded = filter_result.excluded;
    ct_filter_result_free(&filter_result);
  }
  qsort(ns, ROUNDS, sizeof(*ns), compare);
  return ns[ROUNDS / 2] / (double)plan->count;
}

static const char *
libc_path(void)
{
  static char line[4096];
  FILE *maps = fopen("/proc/self/maps", "re");
  while (maps != NULL && fgets(line, sizeof(line), maps) != NULL) {
    char *path = strchr(line, '/');
    if (path != NULL && strstr(path, "/libc.so") != NULL) {
      path[strcspn(path, "\n")] = '\0';
      fclose(maps);
      return path;
    }
  }
  return NULL;
}

int
main(void)
{
  struct ct_plan *plan;
  struct ct_diag diag = {""};
  const char *path = libc_path();
  if (path == NULL || ct_plan_create(path, &plan, &diag) != 0) {
    fprintf(stderr, "exclude_bench: %s\n", diag.text);
    return 1;
  }
  size_t names = 0;
  for (size_t i = 0; i < plan->count; i++) {
    names++;
    for (size_t n = 0; ct_plan_alias(plan, &plan->functions[i], n) != NULL; n++) {
      names++;
    }
  }
  printf("%s: %zu functions with %.1f names each; ns per function\n", path, plan->count,
         (double)names / (double)plan->count);
  static const struct {
    const char *what;
    int plain, globs, hot;
  } cases[] = {{"1 plain name", 1, 0, 0}, {"1,000 plain names", 1000, 0, 0}, {"100,000 plain names", 100000, 0, 0},
               {"1 glob", 0, 1, 0},       {"100 globs", 0, 100, 0},          {"--exclude-hot", 0, 0, 1}};
  double one = 0;
  for (size_t c = 0; c < sizeof(cases) / sizeof(cases[0]); c++) {
    struct ct_exclude *exclude = ct_exclude_create();
    char text[64];
    int code = exclude == NULL ? CT_ENOMEM : 0;
    for (int i = 0; i < cases[c].plain && code == 0; i++) {
      snprintf(text, sizeof(text), i == 0 ? "malloc" : "name_%d", i);
      code = ct_exclude_add(exclude, text, &diag);
    }
    for (int i = 0; i < cases[c].globs && code == 0; i++) {
      snprintf(text, sizeof(text), "%c*name_%d*", 'a' + i % 26, i);
      code = ct_exclude_add(exclude, text, &diag);
    }
    if (cases[c].hot && code == 0) {
      code = ct_exclude_add_hot(exclude, &diag);
    }
    if (code != 0) {
      fprintf(stderr, "exclude_bench: %s\n", diag.text);
      return 1;
    }
    size_t excluded;
    double ns = time_filter(exclude, plan, &excluded);
    one = c == 0 ? ns : one;
    printf("  %-20s %8.1f   %zu excluded\n", cases[c].what, ns, excluded);
    ct_exclude_free(exclude);
  }
  ct_plan_free(plan);
  return 0;
}
