/* SPDX-License-Identifier: MIT */
/*
 * Ids of processes and threads in two pid namespaces: the one that /proc shows, in which ptrace and the signals of
 * this process have theirs ("outside"), and the innermost one of another process, whose getpid and gettid tell its own.
 * Where both are one, so are the ids. Both stand in NSpid of /proc/PID/status (Linux 4.1).
 */
#ifndef CT_PROCESS_IDS_H
#define CT_PROCESS_IDS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

/* The process's own id; 0: there is no such process. *elsewhere (may be NULL): its namespace is another one. */
pid_t ct_process_own_id(pid_t pid, bool *elsewhere);
/* The own id of its thread tid, or 0. */
pid_t ct_thread_own_id(pid_t pid, pid_t tid);
/* The thread of the process with that own id, as it is called outside; 0: there is none. */
pid_t ct_thread_by_own_id(pid_t pid, pid_t own);

/* The same for who asks often: what was found is kept. All zero but the pid: of ct_thread_ids_begin. */
struct ct_thread_ids {
  pid_t pid;
  bool elsewhere;
  struct ct_thread_id {
    pid_t own, outside;
  } *items;
  size_t count, capacity;
  uint64_t since_ns, spent_ns; /* since then so much time has been spent on looking */
};
void ct_thread_ids_begin(struct ct_thread_ids *ids, pid_t pid);
void ct_thread_ids_end(struct ct_thread_ids *ids);
pid_t ct_thread_ids_outside(struct ct_thread_ids *ids, pid_t own);
/* False when no thread of the process has that own id any more. */
bool ct_thread_ids_live(struct ct_thread_ids *ids, pid_t own);

/* False when /proc shows another pid namespace than that of this process: by its numbers nobody is found there. */
bool ct_proc_is_ours(void);
/* True after unshare(CLONE_NEWPID) or setns: this process's children go to another pid namespace, and it can have no
 * threads. */
bool ct_children_go_elsewhere(void);

/* Calls visit with each process that /proc lists, until it says true; that one, or 0. */
pid_t ct_process_find(bool (*visit)(void *context, pid_t pid), void *context);

#endif
