/* SPDX-License-Identifier: MIT */
/*
 * RLIMIT_AS and RLIMIT_DATA set while the program runs: our mappings count too. So our share is added to what it sets,
 * and where it reads what has become of that, it is given what it has set. The share is what is mapped at the first
 * such call, and some room for stores and trampolines to come; it stays the same from there on.
 *
 * RLIMIT_NPROC counts the processes and threads of a user, contrail's too: their number is added likewise. The
 * controller has done so with the soft limit that the program began with (record/task_limit.c). A limit of 0 stays 0:
 * the program wants no more of them.
 *
 * An exec'd program has nothing of ours: before an exec the limits become what the program has set. Not the hard one in
 * the recorded process itself, which could not get it back should the exec fail. An exec may be tried many times
 * (execvp): what is not as we have set it is the program's.
 */
#include "agent/map.h"

#define SYS_getrlimit 97
#define SYS_setrlimit 160
#define SYS_prlimit   302
#define RLIMIT_DATA   2
#define RLIMIT_NPROC  6
#define RLIMIT_AS     9
#define INFINITE      (~0ull)
#define ROOM_BYTES    (128ull << 20)

enum { SHARE_AS, SHARE_DATA, SHARE_TASKS, SHARE_COUNT };

__attribute__((section(".data"))) static uint64_t shares[SHARE_COUNT]; /* 0: not added to a limit */
__attribute__((section(".data"), visibility("hidden"))) uint32_t agent_limited;

/* The soft and the hard limit that are in force since the program has set one, and what it has set. */
struct limits {
  uint64_t actual[2], shown[2];
  uint32_t are_set;
};
__attribute__((section(".data"))) static struct limits set_limits[SHARE_COUNT];

static const uint32_t resources[SHARE_COUNT] = {
    [SHARE_AS] = RLIMIT_AS, [SHARE_DATA] = RLIMIT_DATA, [SHARE_TASKS] = RLIMIT_NPROC};

/* 0: the limit is what the program takes it for. */
static int
limits_of(uint32_t which, struct limits *limits)
{
  *limits = set_limits[which];
  if (which == SHARE_TASKS && limits->are_set == 0 && agent_config.tasks_raised != 0) {
    limits->actual[0] = agent_config.task_limit;
    limits->shown[0] = agent_config.task_limit - agent_config.tasks_raised;
    limits->actual[1] = limits->shown[1] = 0;
    limits->are_set = 1;
  }
  return limits->are_set != 0;
}

static uint64_t
shown(const struct limits *limits, int i, uint64_t actual)
{
  return limits->are_set != 0 && limits->actual[i] == actual ? limits->shown[i] : actual;
}

static uint64_t
share_of(uint32_t which)
{
  const struct ct_ring_header *r = agent_ring();
  uint64_t bytes = r->inside.agent_bytes + r->inside.controls_bytes + r->inside.stacks_bytes + ROOM_BYTES +
                   agent_map()->chunk_count * CT_CHUNK_BYTES;
  uint64_t count = __atomic_load_n(&agent_config.region_count, __ATOMIC_ACQUIRE);
  if (which == SHARE_TASKS) {
    return agent_config.task_share;
  }
  if (shares[which] != 0) {
    return shares[which];
  }
  if (which == SHARE_DATA) {
    return bytes;
  }
  for (uint64_t i = 0; i < count && i < CT_REGION_MAX; i++) {
    const struct ct_region *region = &agent_config.regions[i];
    if (region->desc_count != 0 && region->hi != 0) {
      bytes += ((const struct ct_region_head *)region->lo)->region_bytes;
    }
  }
  return bytes + r->total_bytes + r->inside.table_bytes;
}

static uint64_t
plus(uint64_t limit, uint64_t share)
{
  return limit < INFINITE - share ? limit + share : limit;
}

static uint32_t
which_of(uint32_t resource)
{
  uint32_t which = 0;
  while (which < SHARE_COUNT && resources[which] != resource) {
    which++;
  }
  return which;
}

uint32_t
agent_limit(struct agent_watch *watch, uint64_t *args)
{
  uint64_t pid = 0, *given = 0, now[2];
  uint32_t resource = (uint32_t)args[0], at = 1;
  watch->old = 0;
  switch (watch->number) {
  case SYS_prlimit:
    pid = args[0];
    resource = (uint32_t)args[1];
    at = 2;
    given = (uint64_t *)args[2];
    watch->old = args[3];
    break;
  case SYS_setrlimit:
    given = (uint64_t *)args[1];
    break;
  default:
    watch->old = args[1];
    break;
  }
  watch->which = which_of(resource);
  if (watch->which == SHARE_COUNT || (pid != 0 && pid != agent_config.pid)) {
    return 0;
  }
  struct limits before;
  int are_set = limits_of(watch->which, &before);
  watch->share = given != 0 ? share_of(watch->which) : 0;
  if (watch->share == 0 || !agent_is_readable(given) || !agent_is_readable(given + 1)) {
    watch->share = 0;
    return are_set;
  }
  for (int i = 0; i < 2; i++) {
    watch->given[i] = given[i];
    watch->limit[i] = watch->which == SHARE_TASKS && given[i] == 0 ? 0 : plus(given[i], watch->share);
  }
  if (agent_syscall(SYS_prlimit, 0, resource, 0, (long)now, 0, 0) == 0 && given[1] <= shown(&before, 1, now[1]) &&
      watch->limit[1] > now[1]) {
    watch->limit[1] = now[1]; /* a hard limit that is not to be raised: there is no room for us above it */
    watch->limit[0] = watch->limit[0] < now[1] ? watch->limit[0] : now[1];
  }
  args[at] = (uint64_t)watch->limit;
  return 1;
}

void
agent_limited_done(struct agent_watch *watch)
{
  uint64_t *old = (uint64_t *)watch->old;
  struct limits before;
  if ((int32_t)watch->result != 0) {
    return;
  }
  limits_of(watch->which, &before);
  if (watch->share != 0) {
    struct limits *set = &set_limits[watch->which];
    shares[watch->which] = watch->share;
    for (int i = 0; i < 2; i++) {
      set->actual[i] = watch->limit[i];
      set->shown[i] = watch->given[i];
    }
    set->are_set = 1;
    agent_limited = 1;
  }
  for (int i = 0; i < 2 && old != 0; i++) {
    old[i] = shown(&before, i, old[i]);
  }
}

void
agent_limits_exec(const struct ct_hook_desc *desc)
{
  if (desc->callout == CT_CALLOUT_RENDEZVOUS || agent_is_silent()) {
    return;
  }
  int own = agent_syscall(SYS_getpid, 0, 0, 0, 0, 0, 0) == (long)agent_config.pid;
  for (uint32_t i = 0; i < SHARE_COUNT; i++) {
    struct limits limits;
    uint64_t now[2];
    if (!limits_of(i, &limits) || agent_syscall(SYS_prlimit, 0, resources[i], 0, (long)now, 0, 0) != 0) {
      continue;
    }
    now[0] = shown(&limits, 0, now[0]);
    now[1] = own ? now[1] : shown(&limits, 1, now[1]);
    agent_syscall(SYS_prlimit, 0, resources[i], (long)now, 0, 0, 0);
  }
}
