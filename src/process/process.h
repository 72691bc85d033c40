/* SPDX-License-Identifier: MIT */
/*
 * Another process, seen from outside: starting it under ptrace, its memory, its mappings, system calls
 * made in its name while it is stopped. The only folder that knows ptrace. All functions that take a stopped process
 * must be called from the thread that attached it (a rule of ptrace).
 */
#ifndef CT_PROCESS_PROCESS_H
#define CT_PROCESS_PROCESS_H

#include "base/error.h"
#include "base/pause_request.h"

#include <signal.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

struct ct_process {
  pid_t pid;                              /* thread group */
  pid_t own_pid;                          /* the same as its own getpid() returns, see ids.h */
  int mem_fd;                             /* /proc/PID/mem of the current image, -1 when closed */
  int pidfd;                              /* readable when it has ended; -1 when closed */
  bool stopped;                           /* by ptrace, at the return from execve */
  bool dead;                              /* its end was seen here already ... */
  int wait_status;                        /* ... as waitpid reported it */
  uint64_t signal_mask;                   /* its own, while it is stopped and all are blocked */
  uint64_t injection_area;                /* of the current image, 0: not looked for yet */
  struct ct_injection *injection;         /* while it is stopped: it is being used for system calls; NULL: not */
  struct ct_pause_request *pause_request; /* asked for while its threads are stopped; NULL: nobody is to yield */
  void (*meanwhile)(void *context);       /* called while they run on and have to be waited for; NULL: nothing is */
  void *meanwhile_context;
  void (*release_traced)(void *context); /* called before threads are stopped: another thread of ours may trace some by
                                    ptrace, and releases them. NULL: none does */
  void *release_context;
  const _Atomic uint32_t *expedited; /* not 0: who waits for the process gives up soon; NULL: never */
  bool (*asked)(void *context);      /* somebody wants something else of who waits for it; NULL: never */
  void *asked_context;
  uint64_t ended_calls; /* system calls of its threads that stops have ended with EINTR */
  pid_t *late;          /* threads that have been asked to stop and are to be resumed when they do */
  size_t late_count;
};

/* A process that runs, without stopping it. Give it to ct_process_close. */
int ct_process_open(pid_t pid, struct ct_process *process, struct ct_diag *diag);

/* What a program is started with. NULL and false: as this process has it. */
struct ct_process_setup {
  sigset_t mask;            /* of its first thread */
  char *const *environment; /* "NAME=value", ended by NULL */
  const char *directory;    /* its working directory */
  const int *streams;       /* three descriptors, which become its standard input, output and error */
  bool own_group;           /* a session of processes, and so a process group, of its own, without a terminal */
  uint64_t device, inode;   /* of the file that it has to be, as by stat, whatever its path leads to; inode 0: any */
};

/*
 * Starts argv[0] (looked up in PATH) and stops it after its execve, before the first instruction of the new image.
 * The child has this process's own dispositions, its descriptors but for what setup says, and no trace of us in its
 * environment. On failure *exec_errno is the errno of execve, or 0 when something else failed.
 */
int ct_process_spawn(char *const argv[], const struct ct_process_setup *setup, struct ct_process *process,
                     int *exec_errno, struct ct_diag *diag);

/*
 * A thread of the process waits in the agent on its way to execve. Follows it to the new image and stops it there.
 * answer is called once the thread is stopped by ptrace, and must release it from the agent. Returns 0 and a stopped
 * process, CT_ENOENT when the execve failed (the process runs on, unharmed), or another error.
 */
int ct_process_follow_exec(struct ct_process *process, pid_t tid, void (*answer)(void *), void *context,
                           struct ct_diag *diag);

/* After a failure: was it that the process was killed meanwhile? Waits for it then (a moment); true when it is dead. */
bool ct_process_reap(struct ct_process *process);
/* Somebody wants an end to it: what takes long is given up. */
static inline bool
ct_process_is_expedited(const struct ct_process *process)
{
  return process->expedited != NULL && atomic_load_explicit(process->expedited, memory_order_relaxed) != 0;
}

/* Before threads of it are seized. */
static inline void
ct_process_release_traced(const struct ct_process *process)
{
  if (process->release_traced != NULL) {
    process->release_traced(process->release_context);
  }
}

/* True when the process has ended, whether or not it has been waited for. */
bool ct_process_has_died(const struct ct_process *process);
/* What waitpid gave for a thread: was it the end of the process? */
void ct_process_note_end(struct ct_process *process, pid_t waited, int status);
/* Where injection.h may put its code; 0 when there is no room in the process. */
uint64_t ct_process_injection_area(struct ct_process *process);
/* The address of the text "contrail" in it, for arguments of those system calls. */
uint64_t ct_process_injection_name(const struct ct_process *process);
/*
 * Resumes those of its threads that had not stopped when the others were resumed, and have since. Called by the thread
 * that asked them to stop. False when there are more: call it again some time later.
 */
bool ct_process_release_late(struct ct_process *process);
/*
 * A child of the calling thread may have asked it to trace it (PTRACE_TRACEME): it stops for each signal from then on,
 * the one that is to end it too, and nobody else can resume it. It is resumed. Not while the caller traces somebody
 * itself.
 */
void ct_process_decline_tracing(void);
/* Resumes a stopped process and detaches ptrace. Only memory access remains. */
void ct_process_release(struct ct_process *process);
/* Closes the memory descriptor; kill_it also kills a stopped process. */
void ct_process_close(struct ct_process *process, bool kill_it);

/* Memory of the process. Writes reach read-only text too (a private copy is made). 0 or CT_EIO. */
int ct_process_read(const struct ct_process *process, uint64_t address, void *buffer, size_t size);
int ct_process_write(const struct ct_process *process, uint64_t address, const void *buffer, size_t size);

/* Makes a system call in a stopped process; *result is what the kernel returned (negative errno on failure). */
int ct_process_syscall(struct ct_process *process, long number, const uint64_t args[6], int64_t *result);
int ct_process_set_gs_base(struct ct_process *process, uint64_t base);
int ct_process_gs_base(struct ct_process *process, uint64_t *base);
int ct_process_stack_pointer(struct ct_process *process, uint64_t *sp);

/*
 * The path of what /proc has about a process's memory and files ("maps", "root/etc/passwd"), by a thread of it that
 * still has them: when the main thread has ended, others may go on.
 */
void ct_process_path(pid_t pid, const char *rest, char *path, size_t size);

struct ct_mapping {
  uint64_t start, end;
  uint64_t offset;
  uint64_t inode;
  uint32_t device_major, device_minor;
  bool readable, writable, executable, shared;
  const char *path; /* "" when anonymous; never NULL */
};
struct ct_mappings {
  struct ct_mapping *items;
  size_t count;
  char *text; /* that the paths are in */
};
int ct_process_mappings(pid_t pid, struct ct_mappings *out);
/* The mapping that an address lies in; NULL: none. */
const struct ct_mapping *ct_mappings_at(const struct ct_mappings *mappings, uint64_t address);
/* For as long as the others are there: they have the paths. */
int ct_mappings_copy(const struct ct_mappings *from, struct ct_mappings *to);
/* One more, anonymous, where there is none. */
int ct_mappings_add(struct ct_mappings *mappings, uint64_t start, uint64_t bytes);
void ct_mappings_free(struct ct_mappings *mappings);

/*
 * The file that is mapped there, for reading, wherever its root is; path: a name by which it is found again, at most as
 * long as the process lives. A descriptor, or an error.
 */
int ct_process_open_mapped(pid_t pid, const struct ct_mapping *mapping, char *path, size_t size, struct ct_diag *why);

/* True when no page of the range is a copy of the process's own: all are the mapped file's, in memory or not. */
bool ct_process_pages_are_files(pid_t pid, uint64_t address, uint64_t bytes);
/* A look at which pages are copies of the process's own; it changes while the process runs. */
struct ct_pagemap {
  int fd;
  uint64_t first, count; /* pages whose entries are here */
  uint64_t entries[512];
};
/* Of a process that cannot be looked at no page is. ct_pagemap_close in either case. */
void ct_pagemap_open(struct ct_pagemap *map, pid_t pid);
void ct_pagemap_close(struct ct_pagemap *map);
/* The first page in [address, end) that is there and is (own) or is not a copy of its own; end when there is none. */
uint64_t ct_pagemap_find(struct ct_pagemap *map, uint64_t address, uint64_t end, bool own);
/* Memory that the process has for itself and has written to (Private_Dirty), 0 when the kernel does not say. */
uint64_t ct_process_private_bytes(pid_t pid);
/* The most that it had in memory at a time (VmHWM), 0 when the kernel does not say. */
uint64_t ct_process_peak_bytes(pid_t pid);

/* When the process began (field 22 of /proc/PID/stat), which distinguishes it from another with its id; 0: there is
 * none. */
uint64_t ct_process_start_time(pid_t pid);
/* Page faults of the children that it has waited for (cminflt, field 11): each process faults. Also of one that has
 * ended itself. */
uint64_t ct_process_child_faults(pid_t pid);
/*
 * For who wants to wait until a process has gone that has perhaps just been killed: waits a ms, false when it is not
 * dying, or not done in time. ms: how often that was asked before.
 */
bool ct_process_is_going(pid_t pid, int ms);
/*
 * Calls visit with each child of pid, and then with theirs, until it says true, as far as /proc says
 * (CONFIG_PROC_CHILDREN).
 */
void ct_process_descendants(pid_t pid, bool (*visit)(void *context, pid_t child), void *context);
/* The status that a process which has ended left for its parent, as of waitpid; false when that has asked already. */
bool ct_process_exit_status(pid_t pid, int *status);
/* The same, and by its pidfd when its parent has asked (Linux 6.15 and later). */
bool ct_process_end_status(const struct ct_process *process, int *status);
/* The letter of its state in /proc/PID/stat ('R', 'S', 'T', 'Z' ...), 0: there is none. */
char ct_process_state(pid_t pid);
/* Who traces it by ptrace, 0: nobody. */
pid_t ct_process_tracer(pid_t pid);
/* The soft limit on the stack in bytes, UINT64_MAX when unlimited. */
uint64_t ct_process_stack_limit(pid_t pid);
/* Nonzero when the thread runs under seccomp (Seccomp: in /proc/TID/status). Others of its process may not. */
int ct_process_seccomp(pid_t tid);
/* The id of a thread of the process that does, 0: none. */
pid_t ct_process_seccomp_thread(pid_t pid);
/* The command name of a thread; empty when it is gone. */
void ct_process_thread_name(pid_t pid, pid_t tid, char *name, size_t size);

#endif
