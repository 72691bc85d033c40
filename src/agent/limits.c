/* SPDX-License-Identifier: MIT */
/*
 * RLIMIT_AS and RLIMIT_DATA set while the program runs: our mappings count too. So our share is added to what it sets,
 * and subtracted from what it reads. The share is what is mapped at the first such call, and some room for stores and
 * trampolines to come; it stays the same from there on, so that the program may set again what it read.
 *
 * An exec'd program has no mappings of ours: before an exec the limits become what the program has set. Not the hard
 * one in the recorded process itself, which could not get it back should the exec fail.
 */
#include "agent/map.h"

#define SYS_getrlimit 97
#define SYS_setrlimit 160
#define SYS_prlimit   302
#define RLIMIT_DATA   2
#define RLIMIT_AS     9
#define INFINITE      (~0ull)
#define ROOM_BYTES    (128ull << 20)

enum { SHARE_AS, SHARE_DATA, SHARE_COUNT };

__attribute__((section(".data"))) static uint64_t shares[SHARE_COUNT]; /* 0: not added to a limit */
__attribute__((section(".data"), visibility("hidden"))) uint32_t agent_limited;

static uint64_t
share_of(uint32_t which)
{
  const struct ct_ring_header *r = agent_ring();
  uint64_t bytes = r->inside.agent_bytes + r->inside.controls_bytes + r->inside.stacks_bytes + ROOM_BYTES +
                   agent_map()->chunk_count * CT_CHUNK_BYTES;
  uint64_t count = __atomic_load_n(&agent_config.region_count, __ATOMIC_ACQUIRE);
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

static uint64_t
minus(uint64_t limit, uint64_t share)
{
  return limit != INFINITE && limit >= share ? limit - share : limit;
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
  if ((resource != RLIMIT_AS && resource != RLIMIT_DATA) || (pid != 0 && pid != agent_config.pid)) {
    return 0;
  }
  watch->which = resource == RLIMIT_AS ? SHARE_AS : SHARE_DATA;
  watch->share = given != 0 ? share_of(watch->which) : 0;
  watch->share_before = shares[watch->which];
  if (given == 0 || !agent_is_readable(given) || !agent_is_readable(given + 1)) {
    watch->share = 0;
    return watch->share_before != 0;
  }
  watch->limit[0] = plus(given[0], watch->share);
  watch->limit[1] = plus(given[1], watch->share);
  if (agent_syscall(SYS_prlimit, 0, resource, 0, (long)now, 0, 0) == 0 &&
      given[1] <= minus(now[1], watch->share_before) && watch->limit[1] > now[1]) {
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
  if ((int32_t)watch->result != 0) {
    return;
  }
  if (watch->share != 0) {
    shares[watch->which] = watch->share;
    agent_limited = 1;
  }
  if (old != 0 && watch->share_before != 0) {
    old[0] = minus(old[0], watch->share_before);
    old[1] = minus(old[1], watch->share_before);
  }
}

void
agent_limits_exec(const struct ct_hook_desc *desc)
{
  static const uint32_t resources[] = {[SHARE_AS] = RLIMIT_AS, [SHARE_DATA] = RLIMIT_DATA};
  if (desc->callout == CT_CALLOUT_RENDEZVOUS || agent_is_silent()) {
    return;
  }
  int own = agent_syscall(SYS_getpid, 0, 0, 0, 0, 0, 0) == (long)agent_config.pid;
  for (uint32_t i = 0; i < SHARE_COUNT; i++) {
    uint64_t now[2];
    if (shares[i] == 0 || agent_syscall(SYS_prlimit, 0, resources[i], 0, (long)now, 0, 0) != 0) {
      continue;
    }
    now[0] = minus(now[0], shares[i]);
    now[1] = own ? now[1] : minus(now[1], shares[i]);
    agent_syscall(SYS_prlimit, 0, resources[i], (long)now, 0, 0, 0);
  }
}
