/* SPDX-License-Identifier: MIT */
/*
 * Signals on their way to a recorded program; see signals.h.
 *
 * contrail is the program's parent and in its process group. A signal to the group (the terminal's, a shell's for its
 * job, the program's own kill(0)) reaches both of them; one for contrail's process id reaches contrail alone, where it
 * stands for the program, since whoever started contrail knows no other process. So:
 *
 *   to the group       the program has it already: nothing to be done
 *   to contrail alone  handed on to the program, once; but not what the program itself sends to its parent
 *   SIGTERM            handed on; a program that goes on for some seconds is recorded no longer
 *
 * All signals are blocked in all threads, and one thread takes them from a signalfd: contrail ends when the program
 * has.
 *
 * The witness. Nothing in a siginfo distinguishes a signal to a group from one to a process. A further process of the
 * group, which blocks all signals and counts those that come, does: what it got too was for the group. It is younger
 * than contrail, so it stands before it in the kernel's list of the group, and has a signal when contrail has it. Its
 * count is compared when the signal was taken.
 *
 *   counted        twice how many of that signal it has counted, and 1 while it takes one and counts it
 *   on its way     it waits in the witness to be taken, or is being taken
 *   seen           how many of them contrail has dealt with; ahead of the count while one that was is on its way
 *
 * The witness may get no processor for long, at any place of its course. One that runs is waited for, since two of the
 * same signal that it has not taken are one to it; of one that is held or stopped, what is on its way is enough.
 *
 * Stops. What stops the program (Ctrl-Z, a read of a terminal in the background) is to stop contrail too, whom a shell
 * watches in the program's place. contrail ignores such signals, sees the program stop, and then stops itself. The
 * witness looks whether the program goes on without contrail having been notified (kill -CONT), and notifies it.
 */
#define _GNU_SOURCE 1
#include "cli/signals.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/signalfd.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

enum {
  SIGNALS = 65,
  CHECK_MS = 500,    /* between looks at the program although no signal came */
  RESUMED_MS = 50,   /* between looks of the witness at a stopped program */
  HELD_STEPS = 100,  /* ms for a witness that stands still to count ... */
  RUNS_STEPS = 5000, /* ... and for one that runs, which may have to wait for a processor */
  UNHEARD_S = 5,     /* a program that goes on for that long after SIGTERM is not about to end */
  ANCESTORS_MAX = 64,
};

/*
 * What the witness writes and contrail reads, and the other way round. take_one adds to counted with release, before it
 * takes a signal and after that; look_at_witness loads it with acquire, before and after it asks what is pending.
 * Between its two loads, and between `stopped` and what each side does about it, is a system call.
 */
struct page {
  _Atomic uint32_t counted[SIGNALS];
  _Atomic int32_t stopped; /* the program that contrail has stopped with, 0: it has not */
};

struct ct_signals {
  sigset_t mask; /* the caller's */
  struct page *page;
  pid_t witness; /* 0: there is none */
  int poke_fd;   /* its pipe; at its end the witness ends */
  int signal_fd;
  int stop_fd; /* pipe: the thread is to end */
  int stopped_fd;
  uint32_t seen[SIGNALS];
  pid_t program;
  int pidfd;
  pthread_t thread;
  bool serving;
  ct_signals_unheard *unheard;
  void *context;
  time_t asked; /* when SIGTERM was handed on; 0: was not, or has been dealt with */
  /* Relaxed: each says all there is; the thread has ended when ct_signals_die_of looks. */
  atomic_bool over;          /* the program has ended */
  atomic_bool enough;        /* and somebody wants contrail to */
  atomic_bool came[SIGNALS]; /* to the group, or to contrail in the program's place */
};

/* ---- what /proc says ---- */

static bool
read_proc(pid_t pid, const char *file, char *text, size_t size)
{
  char path[64];
  snprintf(path, sizeof(path), "/proc/%d/%s", (int)pid, file);
  int fd = open(path, O_RDONLY | O_CLOEXEC);
  ssize_t got = fd >= 0 ? read(fd, text, size - 1) : -1;
  if (fd >= 0) {
    close(fd);
  }
  text[got > 0 ? got : 0] = '\0';
  return got > 0;
}

/* The letter of its state and its parent; 0: it is gone. */
static char
state_of(pid_t pid, int *parent)
{
  char text[512], state = 0;
  if (!read_proc(pid, "stat", text, sizeof(text))) {
    return 0;
  }
  const char *after = strrchr(text, ')'); /* the name may have any character */
  return after != NULL && sscanf(after + 1, " %c %d", &state, parent) == 2 ? state : 0;
}

/* Signals that wait in a process for it to take them; all when that is not known. */
static uint64_t
pending_of(pid_t pid)
{
  char text[4096];
  unsigned long long pending = 0;
  const char *line = read_proc(pid, "status", text, sizeof(text)) ? strstr(text, "\nShdPnd:") : NULL;
  return line != NULL && sscanf(line, "\nShdPnd: %llx", &pending) == 1 ? pending : UINT64_MAX;
}

static bool
descends_from(pid_t pid, pid_t ancestor)
{
  for (int i = 0; i < ANCESTORS_MAX && pid > 1; i++) {
    int parent = 0;
    if (pid == ancestor) {
      return true;
    }
    if (state_of(pid, &parent) == 0) {
      return false;
    }
    pid = (pid_t)parent;
  }
  return false;
}

/* ---- the witness ---- */

/* One of a signal that is pending. Not by the signalfd: which one is being taken is known before it is. */
static void
take_one(struct page *page, int signal)
{
  static const struct timespec at_once = {0, 0};
  sigset_t one;
  sigemptyset(&one);
  sigaddset(&one, signal);
  atomic_fetch_add_explicit(&page->counted[signal], 1, memory_order_acq_rel);
  bool is_taken = sigtimedwait(&one, NULL, &at_once) == signal; /* else SIGCONT and stops have taken each other back */
  atomic_fetch_add_explicit(&page->counted[signal], is_taken ? 1 : -1u, memory_order_release);
}

static void
take_pending(struct page *page)
{
  sigset_t pending;
  if (sigpending(&pending) != 0) {
    return;
  }
  for (int n = 1; n < SIGNALS; n++) {
    if (sigismember(&pending, n) == 1) {
      take_one(page, n);
    }
  }
}

/* Not to be taken for contrail by who looks for processes by name or command line. */
static void
be_anonymous(void)
{
  char text[1024];
  unsigned long start = 0, end = 0;
  prctl(PR_SET_NAME, "group-witness");
  const char *at = read_proc(getpid(), "stat", text, sizeof(text)) ? strrchr(text, ')') : NULL;
  for (int field = 2; at != NULL && field < 48; field++) { /* arg_start and arg_end are the 48th and the 49th */
    at = strchr(at + 1, ' ');
  }
  if (at != NULL && sscanf(at, "%lu %lu", &start, &end) == 2 && start != 0 && start < end) {
    memset((void *)start, 0, end - start); /* its own copy */
  }
}

/* What contrail has open must not stay open here. */
static void
close_others(void)
{
  if (syscall(SYS_close_range, STDIN_FILENO + 1, ~0u, 0) != 0) { /* before Linux 5.9 */
    for (int fd = STDIN_FILENO + 1; fd < 4096; fd++) {
      close(fd);
    }
  }
}

static _Noreturn void
witness_main(struct page *page, pid_t contrail, int pipe_fd)
{
  sigset_t all;
  sigfillset(&all);
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  be_anonymous();
  int pipe_end = dup2(pipe_fd, STDIN_FILENO);
  if (getppid() != contrail || pipe_end < 0 || chdir("/") != 0) {
    _exit(0);
  }
  close_others();
  struct pollfd wait[2] = {{.fd = pipe_end, .events = POLLIN}, {.fd = signalfd(-1, &all, 0), .events = POLLIN}};
  for (;;) {
    int parent;
    pid_t stopped = atomic_load_explicit(&page->stopped, memory_order_acquire);
    if (poll(wait, 2, stopped != 0 ? RESUMED_MS : -1) < 0 && errno != EINTR) {
      _exit(0);
    }
    if (wait[1].revents & POLLIN) {
      take_pending(page);
    } else if (wait[0].revents != 0) {
      char byte;
      if (read(pipe_end, &byte, 1) != 1) {
        _exit(0);
      }
    }
    if (stopped != 0 && state_of(stopped, &parent) != 'T') {
      kill(contrail, SIGCONT);
    }
  }
}

static void
start_witness(struct ct_signals *signals)
{
  int ends[2];
  signals->page = mmap(NULL, sizeof(*signals->page), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  if (signals->page == MAP_FAILED) {
    signals->page = NULL;
    return;
  }
  if (pipe2(ends, O_CLOEXEC) != 0) {
    return;
  }
  pid_t contrail = getpid();
  pid_t pid = fork();
  if (pid == 0) {
    witness_main(signals->page, contrail, ends[0]);
  }
  close(ends[0]);
  signals->witness = pid > 0 ? pid : 0;
  signals->poke_fd = ends[1];
}

/* What the witness has got: of each signal how many it has counted, and those that are on their way. */
struct witnessed {
  uint32_t counts[SIGNALS];
  uint64_t on_way; /* bit N - 1: signal N */
};

static bool
is_on_way(const struct witnessed *witnessed, uint32_t n)
{
  return (witnessed->on_way >> (n - 1) & 1) != 0;
}

static void
look_at_witness(const struct ct_signals *signals, struct witnessed *witnessed)
{
  uint32_t before[SIGNALS];
  for (int n = 1; n < SIGNALS; n++) {
    before[n] = atomic_load_explicit(&signals->page->counted[n], memory_order_acquire);
  }
  uint64_t pending = pending_of(signals->witness);
  witnessed->on_way = pending != UINT64_MAX ? pending : 0; /* it has gone, or /proc is not to be read */
  for (int n = 1; n < SIGNALS; n++) {
    uint32_t counted = atomic_load_explicit(&signals->page->counted[n], memory_order_acquire);
    witnessed->counts[n] = counted / 2;
    if (counted % 2 != 0 || counted != before[n]) { /* in the second case it may have come to that since */
      witnessed->on_way |= 1ull << (n - 1);
    }
  }
}

/* Waits until the witness has counted all that it has got of a signal, unless it stands still. */
static void
reconcile(const struct ct_signals *signals, uint32_t n, struct witnessed *witnessed)
{
  int parent;
  look_at_witness(signals, witnessed);
  for (int i = 1; i < RUNS_STEPS && is_on_way(witnessed, n); i++) {
    char state = i >= HELD_STEPS ? state_of(signals->witness, &parent) : 'R';
    if (state != 'R' && state != 'S' && state != 'D') {
      break;
    }
    struct timespec wait = {0, 1000 * 1000};
    nanosleep(&wait, NULL);
    look_at_witness(signals, witnessed);
  }
}

static bool
has_signal(const struct ct_signals *signals)
{
  struct pollfd wait = {.fd = signals->signal_fd, .events = POLLIN};
  return poll(&wait, 1, 0) == 1;
}

/*
 * What the witness has counted belongs to signals that were dealt with, unless the same signal still waits to be taken.
 * Others that wait do not matter: while the program is traced there is a SIGCHLD nearly always.
 */
static void
account(struct ct_signals *signals, const struct witnessed *witnessed)
{
  sigset_t waiting;
  if (sigpending(&waiting) != 0) {
    return;
  }
  for (uint32_t n = 1; n < SIGNALS; n++) {
    if (sigismember(&waiting, (int)n) != 1 && !is_on_way(witnessed, n)) {
      signals->seen[n] = witnessed->counts[n];
    }
  }
}

static bool
was_for_group_by_sender(const struct signalfd_siginfo *info)
{
  return info->ssi_code == SI_KERNEL || getpgid((pid_t)info->ssi_pid) == getpgrp();
}

/* Did the signal that was just taken come to the whole group? */
static bool
was_for_group(struct ct_signals *signals, const struct signalfd_siginfo *info)
{
  uint32_t n = info->ssi_signo;
  struct witnessed witnessed;
  int parent;
  if (n >= SIGNALS || signals->witness == 0 || state_of(signals->witness, &parent) == 0) {
    return was_for_group_by_sender(info);
  }
  reconcile(signals, n, &witnessed);
  int32_t ahead = (int32_t)(witnessed.counts[n] - signals->seen[n]);
  bool group = ahead > 0 || (is_on_way(&witnessed, n) && (ahead == 0 || was_for_group_by_sender(info)));
  if (group && ahead >= 0 && (is_on_way(&witnessed, n) || (int)n >= SIGRTMIN)) { /* else account() does it */
    signals->seen[n]++; /* one that will be counted, or one of several */
  }
  account(signals, &witnessed);
  return group;
}

/* ---- stops ---- */

static bool
is_pending(int signal)
{
  sigset_t pending;
  return sigpending(&pending) == 0 && sigismember(&pending, signal) == 1;
}

/* To this thread, which then does not go on to its next instruction before it is continued; a process's others may. */
static void
stop_here(int signal)
{
  syscall(SYS_tgkill, getpid(), gettid(), signal);
}

/*
 * Stops contrail as the program was stopped. The signal is made while it is blocked, and only then SIGCONT is looked
 * for: one that comes later takes a pending stop back.
 */
static void
stop_with(struct ct_signals *signals, int signal)
{
  struct sigaction standard = {.sa_handler = SIG_DFL}, before;
  sigset_t one, mask;
  sigemptyset(&one);
  sigaddset(&one, signal);
  atomic_store_explicit(&signals->page->stopped, signals->program, memory_order_release);
  if (signals->witness != 0 && write(signals->poke_fd, "s", 1) < 0) {
    signal = SIGSTOP; /* nothing better can be done, and it cannot happen */
  }
  if (signal == SIGSTOP) {
    if (!is_pending(SIGCONT)) {
      stop_here(SIGSTOP);
    }
  } else {
    sigaction(signal, &standard, &before);
    stop_here(signal);
    if (!is_pending(SIGCONT)) {
      pthread_sigmask(SIG_UNBLOCK, &one, &mask);
      pthread_sigmask(SIG_SETMASK, &mask, NULL);
    }
    sigaction(signal, &before, NULL);
  }
  atomic_store_explicit(&signals->page->stopped, 0, memory_order_release);
}

/* The program is stopped, and no SIGCONT waits to be handed on: so is contrail, until it is continued. */
static void
check_for_stop(struct ct_signals *signals)
{
  siginfo_t info = {.si_pid = 0};
  int parent;
  if (waitid(P_PID, (id_t)signals->program, &info, WSTOPPED | WNOHANG | WNOWAIT | __WALL) != 0 || info.si_pid == 0 ||
      info.si_code != CLD_STOPPED || state_of(signals->program, &parent) != 'T' || is_pending(SIGCONT)) {
    return;
  }
  if (signals->page != NULL) {
    stop_with(signals, info.si_status);
  }
}

/* ---- handing on ---- */

static void
hand_on(const struct ct_signals *signals, const struct signalfd_siginfo *from)
{
  siginfo_t info = {.si_signo = (int)from->ssi_signo, .si_code = from->ssi_code};
  info.si_pid = getpid();
  info.si_uid = getuid();
  info.si_value.sival_ptr = (void *)(uintptr_t)from->ssi_ptr;
  bool queued = from->ssi_code == SI_QUEUE;
  syscall(SYS_pidfd_send_signal, signals->pidfd, from->ssi_signo, queued ? &info : NULL, 0);
}

/* What the kernel reports to contrail about contrail. */
static bool
is_own(const struct signalfd_siginfo *info)
{
  uint32_t n = info->ssi_signo;
  return n == SIGCHLD || (info->ssi_pid == (uint32_t)getpid() && info->ssi_code <= 0) ||
         (info->ssi_code == SI_KERNEL && (n == SIGXCPU || n == SIGXFSZ || n == SIGPIPE));
}

static time_t
now_s(void)
{
  struct timespec now;
  clock_gettime(CLOCK_MONOTONIC, &now);
  return now.tv_sec + 1;
}

static bool
ends_programs(uint32_t n)
{
  return n == SIGINT || n == SIGTERM || n == SIGHUP || n == SIGQUIT;
}

static void
deal_with(struct ct_signals *signals, const struct signalfd_siginfo *info, bool early)
{
  uint32_t n = info->ssi_signo;
  int parent;
  if (n == SIGCHLD &&
      info->ssi_code > 0) { /* the kernel's: stops for a tracer of ours come thousands of times a second */
    return;
  }
  bool group = was_for_group(signals, info) && !early;
  if (n >= SIGNALS || is_own(info) || info->ssi_pid == (uint32_t)signals->witness) {
    return;
  }
  atomic_store_explicit(&signals->came[n], true, memory_order_relaxed);
  if (atomic_load_explicit(&signals->over, memory_order_relaxed)) {
    if (ends_programs(n)) {
      atomic_store_explicit(&signals->enough, true, memory_order_relaxed);
    }
    return;
  }
  /* A shell continues the group that it knows; the program may have left that for one of its own, as shells do. */
  bool left_behind =
      n == SIGCONT && getpgid(signals->program) != getpgrp() && state_of(signals->program, &parent) == 'T';
  if ((group && !left_behind) || descends_from((pid_t)info->ssi_pid, signals->program)) {
    return;
  }
  hand_on(signals, info);
  if (n == SIGCONT && signals->witness != 0 && state_of(signals->witness, &parent) == 'T') {
    kill(signals->witness, SIGCONT);
  }
  if (n == SIGTERM && signals->asked == 0) {
    signals->asked = now_s();
  }
}

static void
check_for_unheard(struct ct_signals *signals)
{
  struct pollfd ended = {.fd = signals->pidfd, .events = POLLIN};
  if (signals->asked != 0 && now_s() - signals->asked >= UNHEARD_S &&
      !atomic_load_explicit(&signals->over, memory_order_relaxed)) {
    signals->asked = 0;
    if (poll(&ended, 1, 0) == 0) {
      signals->unheard(signals->context);
    }
  }
}

static bool
take(struct ct_signals *signals, struct signalfd_siginfo *info)
{
  return read(signals->signal_fd, info, sizeof(*info)) == (ssize_t)sizeof(*info);
}

static void *
serve_main(void *context)
{
  struct ct_signals *signals = context;
  struct signalfd_siginfo info;
  struct witnessed witnessed;
  struct pollfd wait[2] = {{.fd = signals->signal_fd, .events = POLLIN}, {.fd = signals->stop_fd, .events = POLLIN}};
  for (;;) {
    int got = poll(wait, 2, CHECK_MS);
    if (wait[1].revents != 0) {
      break;
    }
    if (got > 0 && take(signals, &info)) {
      deal_with(signals, &info, false);
    } else if (signals->witness != 0) {
      look_at_witness(signals, &witnessed);
      account(signals, &witnessed);
    }
    if (!atomic_load_explicit(&signals->over, memory_order_relaxed)) {
      check_for_stop(signals);
      check_for_unheard(signals);
    }
  }
  /* What has ended the program, say: its end may be seen before this thread has run. */
  for (int i = 0; i < SIGNALS && take(signals, &info); i++) {
    deal_with(signals, &info, false);
  }
  return NULL;
}

/* ---- the interface ---- */

struct ct_signals *
ct_signals_create(void)
{
  int ends[2];
  sigset_t all;
  struct ct_signals *signals = calloc(1, sizeof(*signals));
  if (signals == NULL) {
    return NULL;
  }
  signals->poke_fd = signals->stop_fd = signals->stopped_fd = signals->pidfd = -1;
  sigfillset(&all);
  pthread_sigmask(SIG_SETMASK, &all, &signals->mask);
  signals->signal_fd = signalfd(-1, &all, SFD_CLOEXEC | SFD_NONBLOCK);
  if (signals->signal_fd < 0 || pipe2(ends, O_CLOEXEC) != 0) {
    ct_signals_destroy(signals);
    return NULL;
  }
  signals->stop_fd = ends[0];
  signals->stopped_fd = ends[1];
  start_witness(signals);
  return signals;
}

const sigset_t *
ct_signals_mask(const struct ct_signals *signals)
{
  return &signals->mask;
}

bool
ct_signals_serve(struct ct_signals *signals, pid_t program, ct_signals_unheard *unheard, void *context)
{
  struct sigaction action = {.sa_handler = SIG_DFL};
  sigaction(SIGCHLD, &action,
            NULL); /* the program has what we were started with; ignored, its stops would not be reported */
  signals->program = program;
  signals->pidfd = (int)syscall(SYS_pidfd_open, program, 0);
  signals->unheard = unheard;
  signals->context = context;
  struct signalfd_siginfo info;
  while (has_signal(signals) && take(signals, &info)) { /* what came before there was a program; it may run already */
    deal_with(signals, &info, true);
  }
  signals->serving = pthread_create(&signals->thread, NULL, serve_main, signals) == 0;
  return signals->serving;
}

void
ct_signals_forget_program(struct ct_signals *signals)
{
  atomic_store_explicit(&signals->over, true, memory_order_relaxed);
}

bool
ct_signals_enough(const struct ct_signals *signals)
{
  return atomic_load_explicit(&signals->enough, memory_order_relaxed);
}

void
ct_signals_die_of(const struct ct_signals *signals, int signal)
{
  struct sigaction action = {.sa_handler = SIG_DFL};
  struct rlimit none = {0, 0};
  sigset_t one;
  if (signal < 1 || signal >= SIGNALS || !atomic_load_explicit(&signals->came[signal], memory_order_relaxed)) {
    return;
  }
  fflush(NULL);
  sigemptyset(&one);
  sigaddset(&one, signal);
  setrlimit(RLIMIT_CORE, &none); /* of contrail nobody wants one */
  sigaction(signal, &action, NULL);
  kill(getpid(), signal);
  pthread_sigmask(SIG_UNBLOCK, &one, NULL);
}

static void
close_it(int fd)
{
  if (fd >= 0) {
    close(fd);
  }
}

void
ct_signals_stop(struct ct_signals *signals)
{
  if (signals->serving && write(signals->stopped_fd, "q", 1) == 1) {
    pthread_join(signals->thread, NULL);
  }
  signals->serving = false;
}

void
ct_signals_destroy(struct ct_signals *signals)
{
  if (signals == NULL) {
    return;
  }
  ct_signals_stop(signals);
  close_it(signals->poke_fd);
  if (signals->witness != 0) {
    kill(signals->witness, SIGKILL);
    waitpid(signals->witness, NULL, 0);
  }
  if (signals->page != NULL) {
    munmap(signals->page, sizeof(*signals->page));
  }
  close_it(signals->stop_fd);
  close_it(signals->stopped_fd);
  close_it(signals->signal_fd);
  close_it(signals->pidfd);
  /* Whatever waits now came while the recording was being closed: it has ended, and so has what the signal was for. */
  free(signals);
}
