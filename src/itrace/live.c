/* SPDX-License-Identifier: MIT */
/*
 * Recordings that are read while they are made: what has been recorded goes to the file soon.
 *
 * A thread that runs is called in some times a second: all blocks of its segment are as if they were full, so it comes
 * at its next look for room, and gets another segment. A thread that is about to wait in a system call, perhaps for
 * hours, hands over before it does; one that makes very many such calls only each CALL_NS.
 */
#include "itrace/tracer.h"

#include "base/clock.h"

#include <sys/syscall.h>

#define HAND_OVER_NS 100000000ull
#define CALL_NS      10000000ull

enum { CALLS_AT_ONCE = 100 }; /* that may hand over one after the other */

/* System calls in which a thread may wait. */
static const uint16_t waiting[] = {
    SYS_read,           SYS_write,        SYS_poll,        SYS_readv,         SYS_writev,          SYS_select,
    SYS_pause,          SYS_nanosleep,    SYS_connect,     SYS_accept,        SYS_sendto,          SYS_recvfrom,
    SYS_sendmsg,        SYS_recvmsg,      SYS_wait4,       SYS_semop,         SYS_msgsnd,          SYS_msgrcv,
    SYS_flock,          SYS_fcntl,        SYS_fsync,       SYS_rt_sigsuspend, SYS_rt_sigtimedwait, SYS_futex,
    SYS_io_getevents,   SYS_semtimedop,   SYS_epoll_wait,  SYS_waitid,        SYS_mq_timedsend,    SYS_mq_timedreceive,
    SYS_pselect6,       SYS_ppoll,        SYS_epoll_pwait, SYS_accept4,       SYS_recvmmsg,        SYS_clock_nanosleep,
    SYS_io_uring_enter, SYS_epoll_pwait2, SYS_splice,      SYS_sendfile};
enum { WAITING = sizeof(waiting) / sizeof(waiting[0]) };

static bool
may_wait(uint64_t number)
{
  for (size_t i = 0; i < WAITING; i++) {
    if (waiting[i] == number) {
      return true;
    }
  }
  return false;
}

void
ct_live_choose_calls(struct ct_tracer *tracer, struct ct_itrace_space *space)
{
  uint8_t *kinds = (uint8_t *)space->slots + CT_ITRACE_SYSCALLS_AT;
  for (size_t i = 0; i < WAITING && tracer->all->options.is_live && tracer->recorder != NULL; i++) {
    kinds[waiting[i]] = CT_ITRACE_CALL_SEEN;
  }
}

bool
ct_live_is_call(const struct ct_tracer *tracer, uint64_t number)
{
  return tracer->all->options.is_live && ct_tracer_records(tracer) && may_wait(number);
}

bool
ct_live_wants_records(struct ct_tracer *tracer)
{
  struct ct_itrace_live *live = &tracer->live;
  uint64_t now = ct_now_ns();
  if (live->passes_call) { /* they have been handed over for this call */
    live->passes_call = false;
    return false;
  }
  uint64_t fresh = (now - live->allowed_ns) / CALL_NS;
  if (fresh != 0) {
    live->allowed = live->allowed + fresh < CALLS_AT_ONCE ? live->allowed + (uint32_t)fresh : CALLS_AT_ONCE;
    live->allowed_ns = now;
  }
  if (live->allowed == 0) {
    return false;
  }
  live->allowed--;
  live->passes_call = true;
  return true;
}

void
ct_live_serve(struct ct_tracer *tracer)
{
  if (tracer->all->options.is_live && tracer->state == CT_TRACER_TRANSLATED && ct_tracer_records(tracer) &&
      !tracer->wants_room && !tracer->is_parked && ct_now_ns() - tracer->live.handed_ns > HAND_OVER_NS) {
    ct_recorder_call_in(tracer->recorder);
  }
}

void
ct_live_hand_over(struct ct_tracer *tracer)
{
  ct_recorder_room(tracer->recorder, UINT64_MAX);
  tracer->live.handed_ns = ct_now_ns();
}
