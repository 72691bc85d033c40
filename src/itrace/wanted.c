/* SPDX-License-Identifier: MIT */
/* What is wanted of a thread: where its records begin and end, and where they go. And where it cannot be had. */
#include "itrace/tracer.h"

#include <limits.h>
#include <linux/seccomp.h>
#include <stdio.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <unistd.h>

int
ct_tracer_begin_watch(struct ct_tracer *tracer)
{
  const struct ct_itrace_options *options = &tracer->all->options;
  if (tracer->all->is_calls) {
    return ct_watch_create_call(tracer->wanted.place, &tracer->stretches, &tracer->watch, &tracer->diag);
  }
  if (options->function == NULL && (options->from == NULL || options->to == NULL)) {
    return 0;
  }
  return ct_watch_create(options->function, options->from, options->to, options->condition, options->stretches,
                         &tracer->all->stretches, &tracer->watch, &tracer->diag);
}

bool
ct_tracer_has_returned(struct ct_tracer *tracer)
{
  const struct user_regs_struct regs = {.rsp = __atomic_load_n(&tracer->space->slots->regs[CT_RSP],
                                                               __ATOMIC_RELAXED)}; /* a wrong one: it is looked again */
  return tracer->watch != NULL && ct_watch_has_left(tracer->watch, &tracer->process, &regs);
}

int
ct_tracer_begin_records(struct ct_tracer *tracer)
{
  char path[PATH_MAX];
  const struct ct_itrace_options *wanted = &tracer->all->options;
  struct ct_recorder_options options = {
      .path = path, .has_vectors = !wanted->no_vectors, .is_lossless = wanted->is_lossless};
  if (wanted->directory == NULL) {
    return 0;
  }
  if (tracer->all->is_calls) {
    tracer->recorder = ct_calls_take_recorder(tracer->all, tracer->tid);
    tracer->first_step = tracer->recorder != NULL ? ct_recorder_steps(tracer->recorder) : 0;
    if (tracer->recorder != NULL) {
      return 0;
    }
  }
  snprintf(path, sizeof(path), "%s/steps.%d", wanted->directory, (int)tracer->tid);
  if ((tracer->number != 0 || tracer->all->is_calls) && access(path, F_OK) == 0) {
    return ct_fail(&tracer->diag, CT_EEXIST, "thread %d has the id of an earlier one, whose records are kept",
                   (int)tracer->tid);
  }
  return ct_recorder_create(&options, tracer->process.pid, tracer->tid, &tracer->recorder, &tracer->diag);
}

/* Feature probes have no filter. System calls that are dispatched to the program are as good as forbidden to us. */
bool
ct_tracer_begins_filter(const uint64_t regs[16])
{
  if (regs[CT_RAX] == SYS_prctl && regs[CT_RDI] == PR_SET_SYSCALL_USER_DISPATCH) {
    return regs[CT_RSI] != 0;
  }
  bool is_prctl = regs[CT_RAX] == SYS_prctl && regs[CT_RDI] == PR_SET_SECCOMP;
  uint64_t mode = is_prctl ? regs[CT_RSI] : regs[CT_RDI] + 1; /* as prctl has it */
  return (is_prctl || regs[CT_RAX] == SYS_seccomp) &&
         (mode == SECCOMP_MODE_STRICT || (mode == SECCOMP_MODE_FILTER && regs[CT_RDX] != 0));
}
