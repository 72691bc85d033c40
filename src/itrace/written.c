/* SPDX-License-Identifier: MIT */
/* See written.h. A line of the table is one stretch; a call may have several. */
#include "itrace/written.h"

#include <asm/ioctls.h>
#include <asm/prctl.h>
#include <asm/stat.h>
#include <asm/statfs.h>
#include <errno.h>
#include <limits.h>
#include <linux/aio_abi.h>
#include <linux/fcntl.h>
#include <linux/ioctl.h>
#include <linux/prctl.h>
#include <linux/sched.h>
#include <linux/stat.h>
#include <linux/time_types.h>
#include <linux/utsname.h>
#include <poll.h>
#include <signal.h>
#include <sys/epoll.h>
#include <sys/mman.h>
#include <sys/msg.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/sysinfo.h>
#include <sys/syscall.h>
#include <sys/times.h>
#include <sys/uio.h>
#include <termios.h>

/* What says how long a stretch is. */
enum length {
  FIXED,       /* n bytes */
  RESULT,      /* n bytes for each of the result */
  ARGUMENT,    /* n bytes for each of argument `by` */
  POINTED,     /* as many bytes as the word says that argument `by` points to (sockets: the length of an address) */
  BITS,        /* a set of argument `by` descriptors */
  VECTOR,      /* the struct iovec at arg, `by` of them; the result in all */
  MESSAGE,     /* the struct msghdr at arg; the result in all */
  MESSAGES,    /* as many struct mmsghdr as the result says */
  LEFT,        /* n bytes: what is left of a time, also when a signal has interrupted it */
  LEFT_ONLY,   /* the same, only then */
  FRESH_RESULT /* from the result on, as many bytes as argument `by` says */
};

struct stretch {
  uint16_t number;
  uint8_t arg; /* the argument that says where */
  uint8_t length;
  uint8_t by;
  uint16_t n;
};

/* The kernel's set of signals. */
enum { SIGNAL_SET = 8, WORD = 4, SIGACTION = 32, POINTED_MAX = 4096 };

static const struct stretch table[] = {
    {SYS_read, 1, RESULT, 0, 1},
    {SYS_pread64, 1, RESULT, 0, 1},
    {SYS_readv, 1, VECTOR, 2, 0},
    {SYS_preadv, 1, VECTOR, 2, 0},
    {SYS_preadv2, 1, VECTOR, 2, 0},
    {SYS_process_vm_readv, 1, VECTOR, 2, 0},
    {SYS_recvfrom, 1, RESULT, 0, 1},
    {SYS_recvfrom, 4, POINTED, 5, 0},
    {SYS_recvfrom, 5, FIXED, 0, WORD},
    {SYS_recvmsg, 1, MESSAGE, 0, 0},
    {SYS_recvmmsg, 1, MESSAGES, 0, 0},
    {SYS_getdents, 1, RESULT, 0, 1},
    {SYS_getdents64, 1, RESULT, 0, 1},
    {SYS_getrandom, 0, RESULT, 0, 1},
    {SYS_readlink, 1, RESULT, 0, 1},
    {SYS_readlinkat, 2, RESULT, 0, 1},
    {SYS_getcwd, 0, RESULT, 0, 1},
    {SYS_getxattr, 2, RESULT, 0, 1},
    {SYS_lgetxattr, 2, RESULT, 0, 1},
    {SYS_fgetxattr, 2, RESULT, 0, 1},
    {SYS_listxattr, 1, RESULT, 0, 1},
    {SYS_llistxattr, 1, RESULT, 0, 1},
    {SYS_flistxattr, 1, RESULT, 0, 1},
    {SYS_mq_timedreceive, 1, RESULT, 0, 1},
    {SYS_mq_timedreceive, 3, FIXED, 0, WORD},
    {SYS_stat, 1, FIXED, 0, sizeof(struct stat)},
    {SYS_lstat, 1, FIXED, 0, sizeof(struct stat)},
    {SYS_fstat, 1, FIXED, 0, sizeof(struct stat)},
    {SYS_newfstatat, 2, FIXED, 0, sizeof(struct stat)},
    {SYS_statx, 4, FIXED, 0, sizeof(struct statx)},
    {SYS_statfs, 1, FIXED, 0, sizeof(struct statfs)},
    {SYS_fstatfs, 1, FIXED, 0, sizeof(struct statfs)},
    {SYS_ustat, 1, FIXED, 0, 32},
    {SYS_uname, 0, FIXED, 0, sizeof(struct new_utsname)},
    {SYS_sysinfo, 0, FIXED, 0, sizeof(struct sysinfo)},
    {SYS_times, 0, FIXED, 0, sizeof(struct tms)},
    {SYS_time, 0, FIXED, 0, 8},
    {SYS_gettimeofday, 0, FIXED, 0, 16},
    {SYS_gettimeofday, 1, FIXED, 0, 8},
    {SYS_clock_gettime, 1, FIXED, 0, 16},
    {SYS_clock_getres, 1, FIXED, 0, 16},
    {SYS_clock_nanosleep, 3, LEFT_ONLY, 0, 16},
    {SYS_nanosleep, 1, LEFT_ONLY, 0, 16},
    {SYS_getitimer, 1, FIXED, 0, 32},
    {SYS_setitimer, 2, FIXED, 0, 32},
    {SYS_timer_create, 2, FIXED, 0, WORD},
    {SYS_timer_gettime, 1, FIXED, 0, 32},
    {SYS_timer_settime, 3, FIXED, 0, 32},
    {SYS_timerfd_gettime, 1, FIXED, 0, 32},
    {SYS_timerfd_settime, 3, FIXED, 0, 32},
    {SYS_adjtimex, 0, FIXED, 0, 208},
    {SYS_clock_adjtime, 1, FIXED, 0, 208},
    {SYS_getrlimit, 1, FIXED, 0, 16},
    {SYS_prlimit64, 3, FIXED, 0, 16},
    {SYS_getrusage, 1, FIXED, 0, sizeof(struct rusage)},
    {SYS_wait4, 1, FIXED, 0, WORD},
    {SYS_wait4, 3, FIXED, 0, sizeof(struct rusage)},
    {SYS_waitid, 2, FIXED, 0, sizeof(siginfo_t)},
    {SYS_waitid, 4, FIXED, 0, sizeof(struct rusage)},
    {SYS_pipe, 0, FIXED, 0, 2 * WORD},
    {SYS_pipe2, 0, FIXED, 0, 2 * WORD},
    {SYS_socketpair, 3, FIXED, 0, 2 * WORD},
    {SYS_accept, 1, POINTED, 2, 0},
    {SYS_accept, 2, FIXED, 0, WORD},
    {SYS_accept4, 1, POINTED, 2, 0},
    {SYS_accept4, 2, FIXED, 0, WORD},
    {SYS_getsockname, 1, POINTED, 2, 0},
    {SYS_getsockname, 2, FIXED, 0, WORD},
    {SYS_getpeername, 1, POINTED, 2, 0},
    {SYS_getpeername, 2, FIXED, 0, WORD},
    {SYS_getsockopt, 3, POINTED, 4, 0},
    {SYS_getsockopt, 4, FIXED, 0, WORD},
    {SYS_poll, 0, ARGUMENT, 1, sizeof(struct pollfd)},
    {SYS_ppoll, 0, ARGUMENT, 1, sizeof(struct pollfd)},
    {SYS_ppoll, 2, LEFT, 0, 16},
    {SYS_select, 1, BITS, 0, 0},
    {SYS_select, 2, BITS, 0, 0},
    {SYS_select, 3, BITS, 0, 0},
    {SYS_select, 4, LEFT, 0, 16},
    {SYS_pselect6, 1, BITS, 0, 0},
    {SYS_pselect6, 2, BITS, 0, 0},
    {SYS_pselect6, 3, BITS, 0, 0},
    {SYS_pselect6, 4, LEFT, 0, 16},
    {SYS_epoll_wait, 1, RESULT, 0, sizeof(struct epoll_event)},
    {SYS_epoll_pwait, 1, RESULT, 0, sizeof(struct epoll_event)},
    {SYS_epoll_pwait2, 1, RESULT, 0, sizeof(struct epoll_event)},
    {SYS_rt_sigaction, 2, FIXED, 0, SIGACTION},
    {SYS_rt_sigprocmask, 2, FIXED, 0, SIGNAL_SET},
    {SYS_rt_sigpending, 0, FIXED, 0, SIGNAL_SET},
    {SYS_rt_sigtimedwait, 1, FIXED, 0, sizeof(siginfo_t)},
    {SYS_sigaltstack, 1, FIXED, 0, sizeof(stack_t)},
    {SYS_sched_getaffinity, 2, RESULT, 0, 1},
    {SYS_sched_getparam, 1, FIXED, 0, WORD},
    {SYS_sched_getattr, 1, ARGUMENT, 2, 1},
    {SYS_sched_rr_get_interval, 1, FIXED, 0, 16},
    {SYS_getcpu, 0, FIXED, 0, WORD},
    {SYS_getcpu, 1, FIXED, 0, WORD},
    {SYS_get_robust_list, 1, FIXED, 0, 8},
    {SYS_get_robust_list, 2, FIXED, 0, 8},
    {SYS_getgroups, 1, RESULT, 0, WORD},
    {SYS_getresuid, 0, FIXED, 0, WORD},
    {SYS_getresuid, 1, FIXED, 0, WORD},
    {SYS_getresuid, 2, FIXED, 0, WORD},
    {SYS_getresgid, 0, FIXED, 0, WORD},
    {SYS_getresgid, 1, FIXED, 0, WORD},
    {SYS_getresgid, 2, FIXED, 0, WORD},
    {SYS_capget, 0, FIXED, 0, 8},
    {SYS_capget, 1, FIXED, 0, 24},
    {SYS_sendfile, 2, FIXED, 0, 8},
    {SYS_copy_file_range, 1, FIXED, 0, 8},
    {SYS_copy_file_range, 3, FIXED, 0, 8},
    {SYS_splice, 1, FIXED, 0, 8},
    {SYS_splice, 3, FIXED, 0, 8},
    {SYS_io_setup, 1, FIXED, 0, 8},
    {SYS_io_getevents, 3, RESULT, 0, sizeof(struct io_event)},
    {SYS_io_pgetevents, 3, RESULT, 0, sizeof(struct io_event)},
    {SYS_mincore, 2, ARGUMENT, 1, 0},
    {SYS_get_mempolicy, 0, FIXED, 0, WORD},
    {SYS_name_to_handle_at, 3, FIXED, 0, WORD},
    {SYS_modify_ldt, 1, RESULT, 0, 1},
    {SYS_mmap, 0, FRESH_RESULT, 1, 0},
    {SYS_mremap, 0, FRESH_RESULT, 2, 0},
};

/* What is no row of the table: ct_written_by looks at these one by one. */
static const uint16_t others[] = {SYS_ioctl,  SYS_fcntl,  SYS_prctl,  SYS_arch_prctl, SYS_munmap, SYS_madvise,
                                  SYS_mremap, SYS_msgrcv, SYS_shmctl, SYS_msgctl,     SYS_clone,  SYS_clone3};

static bool
has_more(uint64_t number)
{
  bool has = false;
  for (size_t i = 0; i < sizeof(others) / sizeof(others[0]); i++) {
    has |= others[i] == number;
  }
  return has;
}

void
ct_mark_writing_calls(uint8_t *bytes, uint64_t count, uint8_t mark)
{
  for (size_t i = 0; i < sizeof(others) / sizeof(others[0]); i++) {
    if (others[i] < count) {
      bytes[others[i]] = mark;
    }
  }
  for (size_t i = 0; i < sizeof(table) / sizeof(table[0]); i++) {
    if (table[i].number < count) {
      bytes[table[i].number] = mark;
    }
  }
}

bool
ct_writes_memory(uint64_t number)
{
  bool writes = has_more(number);
  for (size_t i = 0; i < sizeof(table) / sizeof(table[0]); i++) {
    writes |= table[i].number == number;
  }
  return writes;
}

/* ---- stretches ---- */

struct list {
  struct ct_process *process;
  struct ct_written *written;
  uint32_t count;
};

static void
put(struct list *list, uint64_t address, uint64_t size, bool is_fresh)
{
  if (address != 0 && size != 0 && list->count < CT_WRITTEN_MAX) {
    list->written[list->count++] = (struct ct_written){address, size, is_fresh};
  }
}

static bool
read_at(const struct list *list, uint64_t address, void *bytes, size_t size)
{
  return address != 0 && ct_process_read(list->process, address, bytes, size) == 0;
}

/* No call takes more pieces than IOV_MAX: a larger count is what the target has written over the call's number. */
static void
put_vector(struct list *list, uint64_t at, uint64_t count, uint64_t bytes)
{
  struct iovec piece;
  count = count < IOV_MAX ? count : IOV_MAX;
  for (uint64_t i = 0; i < count && bytes != 0 && list->count < CT_WRITTEN_MAX; i++) {
    if (!read_at(list, at + i * sizeof(piece), &piece, sizeof(piece))) {
      return;
    }
    uint64_t size = piece.iov_len < bytes ? piece.iov_len : bytes;
    put(list, (uint64_t)piece.iov_base, size, false);
    bytes -= size;
  }
}

static void
put_message(struct list *list, uint64_t at, uint64_t bytes)
{
  struct msghdr message;
  if (read_at(list, at, &message, sizeof(message))) {
    put_vector(list, (uint64_t)message.msg_iov, message.msg_iovlen, bytes);
    put(list, (uint64_t)message.msg_name, message.msg_namelen, false);
    put(list, (uint64_t)message.msg_control, message.msg_controllen, false);
    put(list, at, sizeof(message), false);
  }
}

static void
put_messages(struct list *list, uint64_t at, uint64_t count)
{
  struct mmsghdr message;
  for (uint64_t i = 0; i < count && list->count < CT_WRITTEN_MAX; i++, at += sizeof(message)) {
    if (!read_at(list, at, &message, sizeof(message))) {
      return;
    }
    put_message(list, at, message.msg_len);
    put(list, at + offsetof(struct mmsghdr, msg_len), sizeof(message.msg_len), false);
  }
}

static void
put_stretch(struct list *list, const struct stretch *stretch, const struct ct_system_call *call)
{
  uint64_t at = call->args[stretch->arg], by = call->args[stretch->by], result = (uint64_t)call->result;
  uint32_t word = 0;
  switch ((enum length)stretch->length) {
  case FIXED:
  case LEFT:
  case LEFT_ONLY:
    put(list, at, stretch->n, false);
    break;
  case RESULT:
    put(list, at, result * stretch->n, false);
    break;
  case ARGUMENT:
    put(list, at, stretch->n != 0 ? (by < (1 << 20) ? by * stretch->n : 0) : (by + 4095) / 4096, false);
    break;
  case POINTED:
    if (at != 0 && read_at(list, by, &word, sizeof(word))) {
      put(list, at, word < POINTED_MAX ? word : POINTED_MAX, false);
    }
    break;
  case BITS:
    put(list, at, by < (1 << 20) ? (by + 63) / 64 * 8 : 0, false);
    break;
  case VECTOR:
    put_vector(list, at, by, result);
    break;
  case MESSAGE:
    put_message(list, at, result);
    break;
  case MESSAGES:
    put_messages(list, at, result);
    break;
  default:
    put(list, result, by, true);
    break;
  }
}

/* ---- calls that do many things ---- */

static uint64_t
ioctl_bytes(uint64_t request)
{
  switch (request) {
  case TCGETS:
  case TIOCGPTN:
    return request == TCGETS ? 36 : 4;
  case TCGETA:
    return 18;
  case TIOCGWINSZ:
    return 8;
  case FIONREAD:
  case TIOCOUTQ:
  case TIOCGPGRP:
  case TIOCGSID:
    return 4;
  default:
    return (_IOC_DIR(request) & _IOC_READ) != 0 ? _IOC_SIZE(request) : 0;
  }
}

/* Where a new thread's or process's number is put, by the flags that say that it is. */
static void
put_clone(struct list *list, const struct ct_system_call *call)
{
  struct clone_args args = {.flags = call->args[0], .parent_tid = call->args[2], .pidfd = call->args[2]};
  if (call->number == SYS_clone3 &&
      !read_at(list, call->args[0], &args, call->args[1] < sizeof(args) ? call->args[1] : sizeof(args))) {
    return;
  }
  put(list, (args.flags & CLONE_PARENT_SETTID) != 0 ? args.parent_tid : 0, WORD, false);
  put(list, (args.flags & CLONE_PIDFD) != 0 ? args.pidfd : 0, WORD, false);
}

static uint64_t
prctl_bytes(uint64_t option)
{
  switch (option) {
  case PR_GET_NAME:
    return 16;
  case PR_GET_TID_ADDRESS:
    return 8;
  case PR_GET_PDEATHSIG:
  case PR_GET_CHILD_SUBREAPER:
  case PR_GET_TSC:
    return WORD;
  default:
    return 0;
  }
}

static void
put_more(struct list *list, const struct ct_system_call *call)
{
  enum { SHMID_DS = 112, MSQID_DS = 120, MSGBUF_TYPE = 8 };
  const uint64_t *args = call->args;
  switch (call->number) {
  case SYS_ioctl:
    put(list, args[2], ioctl_bytes(args[1]), false);
    break;
  case SYS_fcntl:
    put(list, args[2], args[1] == F_GETLK || args[1] == F_OFD_GETLK ? 32 : args[1] == F_GETOWN_EX ? 8 : 0, false);
    break;
  case SYS_prctl:
    put(list, args[1], prctl_bytes(args[0]), false);
    break;
  case SYS_arch_prctl:
    put(list, args[1], args[0] == ARCH_GET_FS || args[0] == ARCH_GET_GS ? 8 : 0, false);
    break;
  case SYS_madvise:
    put(list, args[0], args[2] == MADV_DONTNEED ? args[1] : 0, true);
    break;
  case SYS_mremap:
    put(list, args[0], (uint64_t)call->result != args[0] ? args[1] : 0, true);
    break;
  case SYS_msgrcv:
    put(list, args[1], (uint64_t)call->result + MSGBUF_TYPE, false);
    break;
  case SYS_shmctl:
    put(list, args[2], args[1] == IPC_STAT ? SHMID_DS : 0, false);
    break;
  case SYS_msgctl:
    put(list, args[2], args[1] == IPC_STAT ? MSQID_DS : 0, false);
    break;
  case SYS_clone:
  case SYS_clone3:
    put_clone(list, call);
    break;
  default:
    put(list, args[0], args[1], true); /* munmap */
    break;
  }
}

/* By a signal; some of them the kernel makes again, and reports to ptrace only (include/linux/errno.h). */
static bool
is_interruption(int64_t result)
{
  enum { ERESTARTSYS = 512, ERESTART_RESTARTBLOCK = 516 };
  return result == -EINTR || (result <= -ERESTARTSYS && result >= -ERESTART_RESTARTBLOCK);
}

uint32_t
ct_written_by(struct ct_process *process, const struct ct_system_call *call, struct ct_written written[CT_WRITTEN_MAX])
{
  struct list list = {.process = process, .written = written};
  bool failed = call->result < 0 && call->result >= -4095, interrupted = is_interruption(call->result);
  if ((failed && !interrupted) || (call->number == SYS_wait4 && call->result == 0)) {
    return 0;
  }
  for (size_t i = 0; i < sizeof(table) / sizeof(table[0]); i++) {
    uint8_t length = table[i].length;
    bool is_left = length == LEFT || length == LEFT_ONLY;
    if (table[i].number == call->number && (interrupted ? is_left : length != LEFT_ONLY)) {
      put_stretch(&list, &table[i], call);
    }
  }
  if (has_more(call->number) && !interrupted) {
    put_more(&list, call);
  }
  return list.count;
}
