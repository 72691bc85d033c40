/* SPDX-License-Identifier: MIT */
/*
 * How often the drain looks when nothing wakes it. A full segment does. What else there is it finds by looking: a few
 * events, a thread that has died. Each look takes some 30 us of a processor, with the sleep before it, however little
 * there is: so where nothing has come for a second, and under a budget, where the recorder's time counts, there are
 * fewer. Not where rules wait for calls that go on, or segments run short.
 */
#include "drain/drain_internal.h"

#include <linux/futex.h>
#include <sys/syscall.h>
#include <unistd.h>

#define CHECK_NS     (4 * 1000 * 1000)  /* between two peeks into active segments ... */
#define IDLE_ROUNDS  16                 /* ... and when so many have found nothing ... */
#define IDLE_NS      (16 * 1000 * 1000) /* ... this */
#define REST_ROUNDS  80                 /* a second or so */
#define REST_NS      (48 * 1000 * 1000)
#define THRIFTY_NS   (125 * 1000 * 1000) /* the rounds, in which counts that were asked for are taken, too */
#define REAP_NS      (20 * 1000 * 1000)
#define REAP_MOST    (250 * 1000 * 1000)
#define REAP_SHARE   200 /* a look at each of very many threads takes no more than this part of the time */
#define SCARCE_NS    (1000 * 1000)
#define SCARCE_SHARE 4 /* ... nor than this, however few segments there are */

static long
wait_ns(const struct ct_drain *drain)
{
  const struct ct_rules *rules = drain->rules;
  bool is_idle = drain->idle_rounds >= IDLE_ROUNDS;
  bool is_thrifty = drain->counts.counters != NULL;
  if (__atomic_load_n(&drain->ring->unwoken, __ATOMIC_RELAXED) != 0) {
    return is_thrifty ? IDLE_NS : CHECK_NS;
  }
  if (!is_idle && !is_thrifty) {
    return CHECK_NS;
  }
  if ((rules != NULL && rules->any) || drain->waits_for_rules || drain_is_short(drain)) {
    return IDLE_NS;
  }
  /* Where the kernel reports no ends of threads they are dated by when they were last seen alive. */
  bool may_rest = drain_switches_stats(drain->switches).source != CT_SWITCHES_TOTALS;
  return is_thrifty ? (long)drain_counts_wait_ns(&drain->counts, drain_now_ns(), THRIFTY_NS)
         : drain->idle_rounds >= REST_ROUNDS && may_rest ? REST_NS
                                                         : IDLE_NS;
}

void
drain_wait_for_work(struct ct_drain *drain, uint32_t doorbell)
{
  struct ct_ring_header *ring = drain->ring;
  struct timespec wait = {0, wait_ns(drain)};
  /* seq_cst: pairs with wake_drain in the agent; either it sees us waiting or we see its doorbell. */
  __atomic_store_n(&ring->drain_waiting, 1, __ATOMIC_SEQ_CST);
  if (__atomic_load_n(&ring->drain_doorbell, __ATOMIC_SEQ_CST) == doorbell) {
    syscall(SYS_futex, &ring->drain_doorbell, FUTEX_WAIT, doorbell, &wait, NULL, 0);
  }
  __atomic_store_n(&ring->drain_waiting, 0, __ATOMIC_SEQ_CST);
}

/* As the agent's agent_wake_drain. */
void
drain_wake(struct ct_drain *drain)
{
  __atomic_fetch_add(&drain->ring->drain_doorbell, 1, __ATOMIC_SEQ_CST);
  syscall(SYS_futex, &drain->ring->drain_doorbell, FUTEX_WAKE, 1, NULL, NULL, 0);
}

bool
drain_reap_is_due(const struct ct_drain *drain, uint64_t now)
{
  uint64_t between = drain->reap.took_ns * REAP_SHARE;
  between = between < REAP_NS ? REAP_NS : between > REAP_MOST ? REAP_MOST : between;
  uint64_t scarce = drain->reap.took_ns * SCARCE_SHARE;
  scarce = scarce > SCARCE_NS ? scarce : SCARCE_NS;
  return now - drain->reap.at_ns > between || (now - drain->reap.at_ns > scarce && drain_is_short(drain));
}
