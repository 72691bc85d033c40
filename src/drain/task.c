/* SPDX-License-Identifier: MIT */
/* What /proc/PID/task says of a thread. */
#include "drain/drain_internal.h"

#include "base/clock.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define TOTALS_OPEN_MAX 64 /* of what may be 1,024 files of the recorder */

void
drain_read_name(struct ct_drain *drain, struct drain_thread *thread)
{
  char path[64];
  char name[32];
  snprintf(path, sizeof(path), "/proc/%d/task/%u/comm", drain->pid, thread->outside);
  FILE *file = fopen(path, "re");
  if (file == NULL) {
    return;
  }
  if (fgets(name, sizeof(name), file) != NULL) {
    name[strcspn(name, "\n")] = '\0';
    memcpy(drain->infos[thread->info].name, name, sizeof(name));
    ct_encoder_name(thread->encoder, name);
  }
  fclose(file);
}

void
drain_close_totals(struct ct_drain *drain, struct drain_thread *thread)
{
  if (thread->totals_fd >= 0) {
    close(thread->totals_fd);
    thread->totals_fd = -1;
    drain->totals_open--;
  }
}

/* The file stays open, of the first threads that there are: it costs five times as much to open it as to read it. */
void
drain_read_totals(struct ct_drain *drain, struct drain_thread *thread)
{
  char path[64], text[128];
  uint64_t asked = ct_now_ns();
  if (thread->totals_fd < 0) {
    snprintf(path, sizeof(path), "/proc/%d/task/%u/schedstat", drain->pid, thread->outside);
    thread->totals_fd = open(path, O_RDONLY | O_CLOEXEC);
    drain->totals_open += thread->totals_fd >= 0;
  }
  ssize_t got = thread->totals_fd >= 0 ? pread(thread->totals_fd, text, sizeof(text) - 1, 0) : -1;
  if (got <= 0 || drain->totals_open > TOTALS_OPEN_MAX) {
    drain_close_totals(drain, thread);
  }
  if (got > 0) {
    char *end;
    text[got] = '\0';
    drain->infos[thread->info].cpu_ns = strtoull(text, &end, 10);
    drain->infos[thread->info].delay_ns = strtoull(end, NULL, 10);
    drain_switches_total(drain->switches, thread, drain->infos[thread->info].cpu_ns, asked);
  }
}

uint64_t
drain_totals_ns(const struct ct_drain *drain)
{
  return drain_switches_stats(drain->switches).source == CT_SWITCHES_TOTALS ? BLOCK_AGE_NS : NAMES_NS;
}

bool
drain_lives(const struct ct_drain *drain, const struct drain_thread *thread)
{
  char path[64], text[512];
  snprintf(path, sizeof(path), "/proc/%d/task/%u/stat", drain->pid, thread->outside);
  int fd = open(path, O_RDONLY | O_CLOEXEC);
  ssize_t got = fd >= 0 ? read(fd, text, sizeof(text) - 1) : -1;
  if (fd >= 0) {
    close(fd);
  }
  text[got > 0 ? got : 0] = '\0';
  const char *name_end = strrchr(text, ')');
  return name_end != NULL && name_end[1] == ' ' && strchr("ZXx", name_end[2]) == NULL;
}

static int
compare_ends(const void *a, const void *b, void *context)
{
  struct drain_thread *const *threads = context;
  const struct drain_thread *x = threads[*(const uint32_t *)a], *y = threads[*(const uint32_t *)b];
  uint64_t i = x != NULL ? drain_thread_last(x) : 0, j = y != NULL ? drain_thread_last(y) : 0;
  return i < j ? -1 : i > j;
}

uint32_t
drain_sort_dead(struct ct_drain *drain, const bool *dead, uint32_t *out)
{
  uint32_t count = 0;
  for (uint32_t slot = 0; slot < CT_SLOT_COUNT; slot++) {
    if (dead[slot]) {
      out[count++] = slot;
    }
  }
  qsort_r(out, count, sizeof(*out), compare_ends, drain->threads);
  return count;
}
