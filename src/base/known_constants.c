/* SPDX-License-Identifier: MIT */
/*
 * Names of the constants that the C library's calls take, by the headers of the system that contrail is built on: on
 * x86-64 they are the same everywhere. What older headers do not have is left out.
 */
#include "base/known_calls.h"

#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/futex.h>
#include <linux/random.h>
#include <locale.h>
#include <netinet/in.h>
#include <poll.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <spawn.h>
#include <stdio.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/file.h>
#include <sys/inotify.h>
#include <sys/ioctl.h>
#include <sys/ipc.h>
#include <sys/mman.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/shm.h>
#include <sys/signalfd.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/time.h>
#include <sys/timerfd.h>
#include <sys/wait.h>
#include <syslog.h>
#include <time.h>
#include <unistd.h>

#define NAME(constant)                                                                                                 \
  {                                                                                                                    \
    #constant, (uint64_t)(constant)                                                                                    \
  }
#define LIST(name, ...) static const struct ct_constant name[] = {__VA_ARGS__}

/* Sets of flags: what consists of several bits stands before these bits. */
LIST(access_mode, NAME(F_OK), NAME(R_OK), NAME(W_OK), NAME(X_OK));
LIST(accept_flags, NAME(SOCK_NONBLOCK), NAME(SOCK_CLOEXEC));
LIST(at_flags, NAME(AT_SYMLINK_NOFOLLOW), NAME(AT_REMOVEDIR), NAME(AT_SYMLINK_FOLLOW), NAME(AT_NO_AUTOMOUNT),
     NAME(AT_EMPTY_PATH));
LIST(clone_flags, NAME(CLONE_FS), NAME(CLONE_FILES), NAME(CLONE_NEWNS), NAME(CLONE_NEWCGROUP), NAME(CLONE_NEWUTS),
     NAME(CLONE_NEWIPC), NAME(CLONE_NEWUSER), NAME(CLONE_NEWPID), NAME(CLONE_NEWNET), NAME(CLONE_SYSVSEM));
LIST(close_on_exec, NAME(O_CLOEXEC));
LIST(dlopen_flags, NAME(RTLD_LAZY), NAME(RTLD_NOW), NAME(RTLD_NOLOAD), NAME(RTLD_DEEPBIND), NAME(RTLD_GLOBAL),
     NAME(RTLD_NODELETE));
LIST(epoll_flags, NAME(EPOLL_CLOEXEC));
LIST(eventfd_flags, NAME(EFD_SEMAPHORE), NAME(EFD_NONBLOCK), NAME(EFD_CLOEXEC));
LIST(fallocate_mode, NAME(FALLOC_FL_KEEP_SIZE), NAME(FALLOC_FL_PUNCH_HOLE), NAME(FALLOC_FL_COLLAPSE_RANGE),
     NAME(FALLOC_FL_ZERO_RANGE), NAME(FALLOC_FL_INSERT_RANGE));
LIST(getrandom_flags, NAME(GRND_NONBLOCK), NAME(GRND_RANDOM));
LIST(inotify_flags, NAME(IN_NONBLOCK), NAME(IN_CLOEXEC));
LIST(inotify_mask, NAME(IN_ALL_EVENTS), NAME(IN_ACCESS), NAME(IN_MODIFY), NAME(IN_ATTRIB), NAME(IN_CLOSE_WRITE),
     NAME(IN_CLOSE_NOWRITE), NAME(IN_OPEN), NAME(IN_MOVED_FROM), NAME(IN_MOVED_TO), NAME(IN_CREATE), NAME(IN_DELETE),
     NAME(IN_DELETE_SELF), NAME(IN_MOVE_SELF), NAME(IN_ONLYDIR), NAME(IN_DONT_FOLLOW), NAME(IN_ISDIR),
     NAME(IN_ONESHOT));
LIST(lock_operation, NAME(LOCK_SH), NAME(LOCK_EX), NAME(LOCK_NB), NAME(LOCK_UN));
LIST(map_flags, NAME(MAP_SHARED), NAME(MAP_PRIVATE), NAME(MAP_SHARED_VALIDATE), NAME(MAP_FIXED), NAME(MAP_ANONYMOUS),
     NAME(MAP_32BIT), NAME(MAP_GROWSDOWN), NAME(MAP_DENYWRITE), NAME(MAP_EXECUTABLE), NAME(MAP_LOCKED),
     NAME(MAP_NORESERVE), NAME(MAP_POPULATE), NAME(MAP_NONBLOCK), NAME(MAP_STACK), NAME(MAP_HUGETLB), NAME(MAP_SYNC),
     NAME(MAP_FIXED_NOREPLACE));
LIST(memfd_flags, NAME(MFD_CLOEXEC), NAME(MFD_ALLOW_SEALING), NAME(MFD_HUGETLB));
LIST(mlockall_flags, NAME(MCL_CURRENT), NAME(MCL_FUTURE), NAME(MCL_ONFAULT));
LIST(mremap_flags, NAME(MREMAP_MAYMOVE), NAME(MREMAP_FIXED));
LIST(msg_flags, NAME(MSG_OOB), NAME(MSG_PEEK), NAME(MSG_DONTROUTE), NAME(MSG_CTRUNC), NAME(MSG_TRUNC),
     NAME(MSG_DONTWAIT), NAME(MSG_EOR), NAME(MSG_WAITALL), NAME(MSG_CONFIRM), NAME(MSG_ERRQUEUE), NAME(MSG_NOSIGNAL),
     NAME(MSG_MORE), NAME(MSG_WAITFORONE), NAME(MSG_FASTOPEN), NAME(MSG_CMSG_CLOEXEC));
LIST(msync_flags, NAME(MS_ASYNC), NAME(MS_INVALIDATE), NAME(MS_SYNC));
LIST(open_flags, NAME(O_RDONLY), NAME(O_WRONLY), NAME(O_RDWR), NAME(O_TMPFILE), NAME(O_SYNC), NAME(O_DSYNC),
     NAME(O_CREAT), NAME(O_EXCL), NAME(O_NOCTTY), NAME(O_TRUNC), NAME(O_APPEND), NAME(O_NONBLOCK), NAME(O_ASYNC),
     NAME(O_DIRECT), {"O_LARGEFILE", 0100000}, NAME(O_DIRECTORY), NAME(O_NOFOLLOW), NAME(O_NOATIME), NAME(O_CLOEXEC),
     NAME(O_PATH));
LIST(pipe_flags, NAME(O_NONBLOCK), NAME(O_DIRECT), NAME(O_CLOEXEC));
LIST(prot, NAME(PROT_NONE), NAME(PROT_READ), NAME(PROT_WRITE), NAME(PROT_EXEC), NAME(PROT_GROWSDOWN),
     NAME(PROT_GROWSUP));
LIST(shm_flags, NAME(IPC_CREAT), NAME(IPC_EXCL), NAME(SHM_HUGETLB), NAME(SHM_NORESERVE));
LIST(signalfd_flags, NAME(SFD_NONBLOCK), NAME(SFD_CLOEXEC));
LIST(socket_type, NAME(SOCK_STREAM), NAME(SOCK_DGRAM), NAME(SOCK_RAW), NAME(SOCK_RDM), NAME(SOCK_SEQPACKET),
     NAME(SOCK_PACKET), NAME(SOCK_NONBLOCK), NAME(SOCK_CLOEXEC));
LIST(splice_flags, NAME(SPLICE_F_MOVE), NAME(SPLICE_F_NONBLOCK), NAME(SPLICE_F_MORE), NAME(SPLICE_F_GIFT));
LIST(timer_flags, NAME(TIMER_ABSTIME));
LIST(timerfd_flags, NAME(TFD_NONBLOCK), NAME(TFD_CLOEXEC));
LIST(timerfd_set_flags, NAME(TFD_TIMER_ABSTIME), NAME(TFD_TIMER_CANCEL_ON_SET));
LIST(umount_flags, NAME(MNT_FORCE), NAME(MNT_DETACH), NAME(MNT_EXPIRE), NAME(UMOUNT_NOFOLLOW));
LIST(wait_options, NAME(WNOHANG), NAME(WUNTRACED), NAME(WCONTINUED));
LIST(waitid_options, NAME(WNOHANG), NAME(WSTOPPED), NAME(WEXITED), NAME(WCONTINUED), NAME(WNOWAIT));

/* Numbers. */
LIST(address_family, NAME(AF_UNSPEC), NAME(AF_UNIX), NAME(AF_INET), NAME(AF_INET6), NAME(AF_NETLINK), NAME(AF_PACKET),
     NAME(AF_ALG), NAME(AF_VSOCK), NAME(AF_BLUETOOTH), NAME(AF_CAN), NAME(AF_XDP));
LIST(advice, NAME(MADV_NORMAL), NAME(MADV_RANDOM), NAME(MADV_SEQUENTIAL), NAME(MADV_WILLNEED), NAME(MADV_DONTNEED),
     NAME(MADV_FREE), NAME(MADV_REMOVE), NAME(MADV_DONTFORK), NAME(MADV_DOFORK), NAME(MADV_MERGEABLE),
     NAME(MADV_UNMERGEABLE), NAME(MADV_HUGEPAGE), NAME(MADV_NOHUGEPAGE), NAME(MADV_DONTDUMP), NAME(MADV_DODUMP),
     NAME(MADV_WIPEONFORK), NAME(MADV_KEEPONFORK), NAME(MADV_COLD), NAME(MADV_PAGEOUT));
LIST(cancel_state, NAME(PTHREAD_CANCEL_ENABLE), NAME(PTHREAD_CANCEL_DISABLE));
LIST(cancel_type, NAME(PTHREAD_CANCEL_DEFERRED), NAME(PTHREAD_CANCEL_ASYNCHRONOUS));
LIST(clock_id, NAME(CLOCK_REALTIME), NAME(CLOCK_MONOTONIC), NAME(CLOCK_PROCESS_CPUTIME_ID),
     NAME(CLOCK_THREAD_CPUTIME_ID), NAME(CLOCK_MONOTONIC_RAW), NAME(CLOCK_REALTIME_COARSE),
     NAME(CLOCK_MONOTONIC_COARSE), NAME(CLOCK_BOOTTIME), NAME(CLOCK_REALTIME_ALARM), NAME(CLOCK_BOOTTIME_ALARM),
     NAME(CLOCK_TAI));
LIST(detach_state, NAME(PTHREAD_CREATE_JOINABLE), NAME(PTHREAD_CREATE_DETACHED));
LIST(directory, NAME(AT_FDCWD));
LIST(epoll_operation, NAME(EPOLL_CTL_ADD), NAME(EPOLL_CTL_DEL), NAME(EPOLL_CTL_MOD));
LIST(fadvice, NAME(POSIX_FADV_NORMAL), NAME(POSIX_FADV_RANDOM), NAME(POSIX_FADV_SEQUENTIAL), NAME(POSIX_FADV_WILLNEED),
     NAME(POSIX_FADV_DONTNEED), NAME(POSIX_FADV_NOREUSE));
LIST(fcntl_command, NAME(F_DUPFD), NAME(F_GETFD), NAME(F_SETFD), NAME(F_GETFL), NAME(F_SETFL), NAME(F_GETLK),
     NAME(F_SETLK), NAME(F_SETLKW), NAME(F_SETOWN), NAME(F_GETOWN), NAME(F_SETSIG), NAME(F_GETSIG), NAME(F_SETLEASE),
     NAME(F_GETLEASE), NAME(F_NOTIFY), NAME(F_DUPFD_CLOEXEC), NAME(F_SETPIPE_SZ), NAME(F_GETPIPE_SZ), NAME(F_ADD_SEALS),
     NAME(F_GET_SEALS), NAME(F_OFD_GETLK), NAME(F_OFD_SETLK), NAME(F_OFD_SETLKW));
LIST(ioctl_request, NAME(TCGETS), NAME(TCSETS), NAME(TCSETSW), NAME(TCSETSF), NAME(TIOCGWINSZ), NAME(TIOCSWINSZ),
     NAME(TIOCGPGRP), NAME(TIOCSPGRP), NAME(TIOCSCTTY), NAME(TIOCNOTTY), NAME(TIOCGPTN), NAME(TIOCSPTLCK),
     NAME(FIONREAD), NAME(FIONBIO), NAME(FIOCLEX), NAME(FIONCLEX));
LIST(ipc_command, NAME(IPC_RMID), NAME(IPC_SET), NAME(IPC_STAT));
LIST(ipc_key, NAME(IPC_PRIVATE));
LIST(locale_category, NAME(LC_CTYPE), NAME(LC_NUMERIC), NAME(LC_TIME), NAME(LC_COLLATE), NAME(LC_MONETARY),
     NAME(LC_MESSAGES), NAME(LC_ALL));
LIST(lockf_command, NAME(F_ULOCK), NAME(F_LOCK), NAME(F_TLOCK), NAME(F_TEST));
LIST(mutex_type, NAME(PTHREAD_MUTEX_NORMAL), NAME(PTHREAD_MUTEX_RECURSIVE), NAME(PTHREAD_MUTEX_ERRORCHECK),
     NAME(PTHREAD_MUTEX_ADAPTIVE_NP));
LIST(prctl_option, NAME(PR_SET_PDEATHSIG), NAME(PR_GET_PDEATHSIG), NAME(PR_GET_DUMPABLE), NAME(PR_SET_DUMPABLE),
     NAME(PR_SET_NAME), NAME(PR_GET_NAME), NAME(PR_GET_SECCOMP), NAME(PR_SET_SECCOMP), NAME(PR_CAPBSET_READ),
     NAME(PR_CAPBSET_DROP), NAME(PR_SET_TIMERSLACK), NAME(PR_GET_TIMERSLACK), NAME(PR_SET_MM),
     NAME(PR_SET_CHILD_SUBREAPER), NAME(PR_GET_CHILD_SUBREAPER), NAME(PR_SET_NO_NEW_PRIVS), NAME(PR_GET_NO_NEW_PRIVS),
     NAME(PR_SET_THP_DISABLE), NAME(PR_SET_PTRACER));
LIST(priority_which, NAME(PRIO_PROCESS), NAME(PRIO_PGRP), NAME(PRIO_USER));
LIST(resource, NAME(RLIMIT_CPU), NAME(RLIMIT_FSIZE), NAME(RLIMIT_DATA), NAME(RLIMIT_STACK), NAME(RLIMIT_CORE),
     NAME(RLIMIT_RSS), NAME(RLIMIT_NPROC), NAME(RLIMIT_NOFILE), NAME(RLIMIT_MEMLOCK), NAME(RLIMIT_AS),
     NAME(RLIMIT_LOCKS), NAME(RLIMIT_SIGPENDING), NAME(RLIMIT_MSGQUEUE), NAME(RLIMIT_NICE), NAME(RLIMIT_RTPRIO),
     NAME(RLIMIT_RTTIME));
LIST(scheduling, NAME(SCHED_OTHER), NAME(SCHED_FIFO), NAME(SCHED_RR), NAME(SCHED_BATCH), NAME(SCHED_IDLE));
LIST(set_buffer, NAME(_IOFBF), NAME(_IOLBF), NAME(_IONBF));
LIST(shut, NAME(SHUT_RD), NAME(SHUT_WR), NAME(SHUT_RDWR));
LIST(signal_how, NAME(SIG_BLOCK), NAME(SIG_UNBLOCK), NAME(SIG_SETMASK));
LIST(signal_number, NAME(SIGHUP), NAME(SIGINT), NAME(SIGQUIT), NAME(SIGILL), NAME(SIGTRAP), NAME(SIGABRT), NAME(SIGBUS),
     NAME(SIGFPE), NAME(SIGKILL), NAME(SIGUSR1), NAME(SIGSEGV), NAME(SIGUSR2), NAME(SIGPIPE), NAME(SIGALRM),
     NAME(SIGTERM), NAME(SIGSTKFLT), NAME(SIGCHLD), NAME(SIGCONT), NAME(SIGSTOP), NAME(SIGTSTP), NAME(SIGTTIN),
     NAME(SIGTTOU), NAME(SIGURG), NAME(SIGXCPU), NAME(SIGXFSZ), NAME(SIGVTALRM), NAME(SIGPROF), NAME(SIGWINCH),
     NAME(SIGIO), NAME(SIGPWR), NAME(SIGSYS));
LIST(socket_level, NAME(SOL_SOCKET), NAME(IPPROTO_IP), NAME(IPPROTO_TCP), NAME(IPPROTO_UDP), NAME(IPPROTO_IPV6));
LIST(socket_protocol, NAME(IPPROTO_ICMP), NAME(IPPROTO_TCP), NAME(IPPROTO_UDP), NAME(IPPROTO_ICMPV6),
     NAME(IPPROTO_RAW));
LIST(sysconf_name, NAME(_SC_ARG_MAX), NAME(_SC_CHILD_MAX), NAME(_SC_CLK_TCK), NAME(_SC_NGROUPS_MAX), NAME(_SC_OPEN_MAX),
     NAME(_SC_PAGESIZE), NAME(_SC_NPROCESSORS_CONF), NAME(_SC_NPROCESSORS_ONLN), NAME(_SC_PHYS_PAGES),
     NAME(_SC_AVPHYS_PAGES), NAME(_SC_IOV_MAX), NAME(_SC_GETPW_R_SIZE_MAX), NAME(_SC_GETGR_R_SIZE_MAX),
     NAME(_SC_THREAD_STACK_MIN), NAME(_SC_HOST_NAME_MAX), NAME(_SC_LOGIN_NAME_MAX), NAME(_SC_LEVEL1_DCACHE_LINESIZE));
LIST(timer_which, NAME(ITIMER_REAL), NAME(ITIMER_VIRTUAL), NAME(ITIMER_PROF));
LIST(wait_for, NAME(P_ALL), NAME(P_PID), NAME(P_PGID));
LIST(whence, NAME(SEEK_SET), NAME(SEEK_CUR), NAME(SEEK_END), NAME(SEEK_DATA), NAME(SEEK_HOLE));
LIST(who, NAME(RUSAGE_SELF), NAME(RUSAGE_CHILDREN), NAME(RUSAGE_THREAD));

#define NUMBERS(name)                                                                                                  \
  {                                                                                                                    \
    #name,                                                                                                             \
    {                                                                                                                  \
      name, sizeof(name) / sizeof(name[0]), CT_CONSTANTS_NUMBERS, 0                                                    \
    }                                                                                                                  \
  }
#define FLAGS(name, mask)                                                                                              \
  {                                                                                                                    \
    #name,                                                                                                             \
    {                                                                                                                  \
      name, sizeof(name) / sizeof(name[0]), CT_CONSTANTS_FLAGS, mask                                                   \
    }                                                                                                                  \
  }

static const struct {
  const char *name;
  struct ct_constants constants;
} lists[] = {
    FLAGS(access_mode, 0),
    FLAGS(accept_flags, 0),
    FLAGS(at_flags, 0),
    FLAGS(clone_flags, 0),
    FLAGS(close_on_exec, 0),
    FLAGS(dlopen_flags, 0),
    FLAGS(epoll_flags, 0),
    FLAGS(eventfd_flags, 0),
    FLAGS(fallocate_mode, 0),
    FLAGS(getrandom_flags, 0),
    FLAGS(inotify_flags, 0),
    FLAGS(inotify_mask, 0),
    FLAGS(lock_operation, 0),
    FLAGS(map_flags, MAP_TYPE),
    FLAGS(memfd_flags, 0),
    FLAGS(mlockall_flags, 0),
    FLAGS(mremap_flags, 0),
    FLAGS(msg_flags, 0),
    FLAGS(msync_flags, 0),
    FLAGS(open_flags, O_ACCMODE),
    FLAGS(pipe_flags, 0),
    FLAGS(prot, 0),
    FLAGS(shm_flags, 0),
    FLAGS(signalfd_flags, 0),
    FLAGS(socket_type, 0xf),
    FLAGS(splice_flags, 0),
    FLAGS(timer_flags, 0),
    FLAGS(timerfd_flags, 0),
    FLAGS(timerfd_set_flags, 0),
    FLAGS(umount_flags, 0),
    FLAGS(wait_options, 0),
    FLAGS(waitid_options, 0),
    NUMBERS(address_family),
    NUMBERS(advice),
    NUMBERS(cancel_state),
    NUMBERS(cancel_type),
    NUMBERS(clock_id),
    NUMBERS(detach_state),
    NUMBERS(directory),
    NUMBERS(epoll_operation),
    NUMBERS(fadvice),
    NUMBERS(fcntl_command),
    NUMBERS(ioctl_request),
    NUMBERS(ipc_command),
    NUMBERS(ipc_key),
    NUMBERS(locale_category),
    NUMBERS(lockf_command),
    NUMBERS(mutex_type),
    NUMBERS(prctl_option),
    NUMBERS(priority_which),
    NUMBERS(resource),
    NUMBERS(scheduling),
    NUMBERS(set_buffer),
    NUMBERS(shut),
    NUMBERS(signal_how),
    NUMBERS(signal_number),
    NUMBERS(socket_level),
    NUMBERS(socket_protocol),
    NUMBERS(sysconf_name),
    NUMBERS(timer_which),
    NUMBERS(wait_for),
    NUMBERS(whence),
    NUMBERS(who),
};

const struct ct_constants *
ct_known_constants(const char *name)
{
  for (size_t i = 0; i < sizeof(lists) / sizeof(lists[0]); i++) {
    if (strcmp(lists[i].name, name) == 0) {
      return &lists[i].constants;
    }
  }
  return NULL;
}

const char *
ct_error_name(int number)
{
  return number > 0 ? strerrorname_np(number) : NULL;
}
