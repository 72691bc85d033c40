/* SPDX-License-Identifier: MIT */
/* What all processors do to a module, when it has many functions: a share of them each. */
#include "plan/plan_internal.h"

#include "base/worker.h"
#include "target/elf.h"

#include <pthread.h>
#include <stdlib.h>
#include <unistd.h>

#define ROWS_MAX      4096
#define RUN_FUNCTIONS 256
#define THREADS_MAX   8

/* One thread's share of the scan: functions begin, begin + step, ... in runs of RUN_FUNCTIONS. */
struct scan_share {
  struct planner *planner;
  struct ct_scan *scan;
  struct ct_cfi_row *rows; /* ROWS_MAX */
  uint32_t rows_fde;       /* whose they are; many functions may be inside one FDE */
  size_t row_count;
  size_t first_run, step;
  size_t next_alias;
  int uses_gs;
  int code;
  pthread_t thread;
};

static int
scan_one(struct scan_share *share, size_t i)
{
  struct planner *planner = share->planner;
  const struct ct_elf *elf = planner->plan->elf;
  const struct ct_function *function = &planner->functions[i];
  planner->named[i] = ct_names_look_up(elf, function, &share->next_alias);
  size_t left = ct_elf_code_left(elf, function->address);
  size_t size = function->size < left ? function->size : left;
  bool skipped = planner->plan->runtime == CT_RUNTIME_NO_RETURNS && function->entry == CT_ENTRY_NOCFI;
  const uint8_t *code = size != 0 && !skipped ? ct_elf_bytes(elf, function->address, left) : NULL;
  if (code == NULL) {
    return 0;
  }
  if (function->fde != share->rows_fde) {
    size_t rows = function->fde != CT_FDE_NONE ? ct_cfi_rows(elf, function->fde, share->rows, ROWS_MAX) : 0;
    share->row_count = rows > ROWS_MAX ? ROWS_MAX : rows;
    share->rows_fde = function->fde;
  }
  int facts =
      ct_scan_function(share->scan, (uint32_t)i, code, function->address, size, left, share->rows, share->row_count);
  if (facts < 0) {
    return facts;
  }
  planner->facts[i] = (uint32_t)facts;
  share->uses_gs |= (facts & CT_FACT_GS) != 0;
  return 0;
}

static void *
scan_share_main(void *context)
{
  struct scan_share *share = context;
  size_t count = share->planner->count;
  for (size_t run = share->first_run; run * RUN_FUNCTIONS < count && share->code == 0; run += share->step) {
    size_t end = (run + 1) * RUN_FUNCTIONS < count ? (run + 1) * RUN_FUNCTIONS : count;
    for (size_t i = run * RUN_FUNCTIONS; i < end && share->code == 0; i++) {
      share->code = scan_one(share, i);
    }
  }
  return NULL;
}

static size_t
thread_count(size_t functions)
{
  long cpus = sysconf(_SC_NPROCESSORS_ONLN);
  size_t threads = cpus < 1 ? 1 : (size_t)cpus;
  threads = threads > THREADS_MAX ? THREADS_MAX : threads;
  return threads < functions / RUN_FUNCTIONS + 1 ? threads : functions / RUN_FUNCTIONS + 1;
}

/* All of them have what they need, or none is begun. */
static int
prepare_shares(struct planner *planner, size_t threads, struct scan_share *shares, struct ct_scan *parts)
{
  for (size_t t = 0; t < threads; t++) {
    shares[t] = (struct scan_share){.planner = planner,
                                    .scan = t == 0 ? &planner->scan : &parts[t],
                                    .rows = malloc(ROWS_MAX * sizeof(struct ct_cfi_row)),
                                    .rows_fde = CT_FDE_NONE,
                                    .first_run = t,
                                    .step = threads};
    if (shares[t].rows == NULL) {
      return CT_ENOMEM;
    }
    int code = t != 0 ? ct_scan_init(&parts[t], planner->scan.targets.start, planner->scan.targets.end) : 0;
    if (code != 0) {
      return code;
    }
  }
  return 0;
}

/* Side by side, as far as there are threads to be had; the first share is this thread's. */
static int
scan_shares(struct planner *planner, size_t threads, struct scan_share *shares, struct ct_scan *parts)
{
  size_t started = 0;
  while (started + 1 < threads &&
         ct_worker_create(&shares[started + 1].thread, NULL, scan_share_main, &shares[started + 1]) == 0) {
    started++;
  }
  scan_share_main(&shares[0]);
  int code = shares[0].code;
  planner->plan->uses_gs |= shares[0].uses_gs;
  for (size_t t = 1; t < threads; t++) {
    if (t <= started) {
      pthread_join(shares[t].thread, NULL);
    } else if (code == 0) { /* there may be no thread more (RLIMIT_NPROC) */
      scan_share_main(&shares[t]);
    }
    planner->plan->uses_gs |= shares[t].uses_gs;
    if (code != 0) {
      continue;
    }
    code = shares[t].code != 0 ? shares[t].code : ct_scan_merge(&planner->scan, &parts[t]);
  }
  return code;
}

/* Scans every function, on all processors when there are many: the first share on this thread, into the planner's own
 * scan. */
int
ct_shares_scan(struct planner *planner)
{
  struct scan_share shares[THREADS_MAX] = {{0}};
  struct ct_scan parts[THREADS_MAX] = {{{0}}};
  size_t threads = thread_count(planner->count);
  int code = prepare_shares(planner, threads, shares, parts);
  if (code == 0) {
    code = scan_shares(planner, threads, shares, parts);
  }
  for (size_t t = 0; t < threads; t++) {
    free(shares[t].rows);
    ct_scan_free(&parts[t]);
  }
  return code;
}

/* One thread's share of the plan: as above. */
struct plan_share {
  const struct planner *planner;
  size_t first_run, step;
  pthread_t thread;
};

static void *
plan_share_main(void *context)
{
  const struct plan_share *share = context;
  size_t count = share->planner->count;
  for (size_t run = share->first_run; run * RUN_FUNCTIONS < count; run += share->step) {
    size_t end = (run + 1) * RUN_FUNCTIONS < count ? (run + 1) * RUN_FUNCTIONS : count;
    for (size_t i = run * RUN_FUNCTIONS; i < end; i++) {
      ct_plan_one(share->planner, i);
    }
  }
  return NULL;
}

void
ct_shares_plan(struct planner *planner)
{
  struct plan_share shares[THREADS_MAX];
  size_t threads = thread_count(planner->count), started = 0;
  for (size_t t = 0; t < threads; t++) {
    shares[t] = (struct plan_share){.planner = planner, .first_run = t, .step = threads};
  }
  while (started + 1 < threads &&
         ct_worker_create(&shares[started + 1].thread, NULL, plan_share_main, &shares[started + 1]) == 0) {
    started++;
  }
  plan_share_main(&shares[0]);
  for (size_t t = 1; t < threads; t++) {
    if (t <= started) {
      pthread_join(shares[t].thread, NULL);
    } else { /* there may be no thread more */
      plan_share_main(&shares[t]);
    }
  }
}
