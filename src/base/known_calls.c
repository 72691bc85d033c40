/* SPDX-License-Identifier: MIT */
/*
 * The table of known calls; see known_calls.h. A line is the declaration as the headers have it (the tests compile each
 * against them), and besides:
 *
 *   int flags:open_flags          names for the number: a list of known_constants.c
 *   void *buf:filled              the call fills as many bytes as it returns; :text: up to a zero; :out, or an array: a
 *                                 number or structure of known_structs.c; :some: not when it returns 0
 *   int ...:error                 a result that is the number of an error
 *   int ...:number                -1 is a result like others, or says nothing of errno
 *   mode_t mode?flags&0x400040    there only when the parameter has one of these bits: it is among those that "..."
 * means ~                             in glibc the symbol stands for a function that chooses a variant, and not for the
 * call
 */
#include "base/known_calls.h"

#include <stdlib.h>
#include <string.h>

static const char *const calls[] = {
    /* files */
    "int open(const char *path, int flags:open_flags, mode_t mode?flags&0x400040)",
    "int openat(int dirfd:directory, const char *path, int flags:open_flags, mode_t mode?flags&0x400040)",
    "int creat(const char *path, mode_t mode)",
    "int close(int fd)",
    "ssize_t read(int fd, void *buf:filled, size_t count)",
    "ssize_t write(int fd, const void *buf, size_t count)",
    "ssize_t pread(int fd, void *buf:filled, size_t count, off_t offset)",
    "ssize_t pwrite(int fd, const void *buf, size_t count, off_t offset)",
    "ssize_t readv(int fd, const struct iovec *iov, int iovcnt)",
    "ssize_t writev(int fd, const struct iovec *iov, int iovcnt)",
    "ssize_t preadv(int fd, const struct iovec *iov, int iovcnt, off_t offset)",
    "ssize_t pwritev(int fd, const struct iovec *iov, int iovcnt, off_t offset)",
    "off_t lseek(int fd, off_t offset, int whence:whence)",
    "int dup(int oldfd)",
    "int dup2(int oldfd, int newfd)",
    "int dup3(int oldfd, int newfd, int flags:close_on_exec)",
    "int pipe(int fds[2])",
    "int pipe2(int fds[2], int flags:pipe_flags)",
    "int fcntl(int fd, int cmd:fcntl_command, ...)",
    "int ioctl(int fd, unsigned long request:ioctl_request, ...)",
    "int fsync(int fd)",
    "int fdatasync(int fd)",
    "int ftruncate(int fd, off_t length)",
    "int truncate(const char *path, off_t length)",
    "int posix_fadvise(int fd, off_t offset, off_t len, int advice:fadvice):error",
    "int posix_fallocate(int fd, off_t offset, off_t len):error",
    "int fallocate(int fd, int mode:fallocate_mode, off_t offset, off_t len)",
    "int flock(int fd, int operation:lock_operation)",
    "int lockf(int fd, int cmd:lockf_command, off_t len)",
    "int access(const char *path, int mode:access_mode)",
    "int faccessat(int dirfd:directory, const char *path, int mode:access_mode, int flags:at_flags)",
    "int stat(const char *path, struct stat *buf:out)",
    "int fstat(int fd, struct stat *buf:out)",
    "int lstat(const char *path, struct stat *buf:out)",
    "int fstatat(int dirfd:directory, const char *path, struct stat *buf:out, int flags:at_flags)",
    "int statfs(const char *path, struct statfs *buf:out)",
    "int fstatfs(int fd, struct statfs *buf:out)",
    "int statvfs(const char *path, struct statvfs *buf:out)",
    "int chmod(const char *path, mode_t mode)",
    "int fchmod(int fd, mode_t mode)",
    "int fchmodat(int dirfd:directory, const char *path, mode_t mode, int flags:at_flags)",
    "int chown(const char *path, uid_t owner, gid_t group)",
    "int fchown(int fd, uid_t owner, gid_t group)",
    "int lchown(const char *path, uid_t owner, gid_t group)",
    "mode_t umask(mode_t mask)",
    "int link(const char *oldpath, const char *newpath)",
    "int symlink(const char *target, const char *linkpath)",
    "ssize_t readlink(const char *path, char *buf:filled, size_t size)",
    "ssize_t readlinkat(int dirfd:directory, const char *path, char *buf:filled, size_t size)",
    "int unlink(const char *path)",
    "int unlinkat(int dirfd:directory, const char *path, int flags:at_flags)",
    "int rename(const char *oldpath, const char *newpath)",
    "int renameat(int olddirfd:directory, const char *oldpath, int newdirfd:directory, const char *newpath)",
    "int remove(const char *path)",
    "int mkdir(const char *path, mode_t mode)",
    "int mkdirat(int dirfd:directory, const char *path, mode_t mode)",
    "int rmdir(const char *path)",
    "int mkfifo(const char *path, mode_t mode)",
    "int chdir(const char *path)",
    "int fchdir(int fd)",
    "char *getcwd(char *buf:text, size_t size)",
    "char *realpath(const char *path, char *resolved:text)",
    "int mkstemp(char *template:text)",
    "char *mkdtemp(char *template)",
    "int utimensat(int dirfd:directory, const char *path, const struct timespec *times, int flags:at_flags)",
    "int futimens(int fd, const struct timespec *times)",
    "DIR *opendir(const char *name)",
    "DIR *fdopendir(int fd)",
    "struct dirent *readdir(DIR *dir)",
    "int closedir(DIR *dir)",
    "ssize_t sendfile(int out_fd, int in_fd, off_t *offset, size_t count)",
    "ssize_t splice(int fd_in, off_t *off_in, int fd_out, off_t *off_out, size_t len, unsigned int flags:splice_flags)",
    "int isatty(int fd)",
    "int chroot(const char *path)",
    "int mount(const char *source, const char *target, const char *type, unsigned long flags, const void *data)",
    "int umount2(const char *target, int flags:umount_flags)",
    "int inotify_init1(int flags:inotify_flags)",
    "int inotify_add_watch(int fd, const char *path, uint32_t mask:inotify_mask)",
    "int inotify_rm_watch(int fd, int wd)",

    /* waiting for several */
    "int select(int nfds, fd_set *readfds, fd_set *writefds, fd_set *exceptfds, struct timeval *timeout)",
    "int poll(struct pollfd *fds:some, nfds_t nfds, int timeout)",
    "int ppoll(struct pollfd *fds, nfds_t nfds, const struct timespec *timeout, const sigset_t *sigmask)",
    "int epoll_create(int size)",
    "int epoll_create1(int flags:epoll_flags)",
    "int epoll_ctl(int epfd, int op:epoll_operation, int fd, struct epoll_event *event)",
    "int epoll_wait(int epfd, struct epoll_event *events:some, int maxevents, int timeout)",
    "int eventfd(unsigned int initval, int flags:eventfd_flags)",
    "int signalfd(int fd, const sigset_t *mask, int flags:signalfd_flags)",
    "int timerfd_create(clockid_t clockid:clock_id, int flags:timerfd_flags)",
    "int timerfd_settime(int fd, int flags:timerfd_set_flags, const struct itimerspec *value, struct itimerspec *old)",

    /* streams */
    "FILE *fopen(const char *path, const char *mode)",
    "FILE *fdopen(int fd, const char *mode)",
    "FILE *freopen(const char *path, const char *mode, FILE *stream)",
    "int fclose(FILE *stream)",
    "int fflush(FILE *stream)",
    "size_t fread(void *ptr, size_t size, size_t nmemb, FILE *stream)",
    "size_t fwrite(const void *ptr, size_t size, size_t nmemb, FILE *stream)",
    "char *fgets(char *s:text, int size, FILE *stream)",
    "int fgetc(FILE *stream):number",
    "int getc(FILE *stream):number",
    "int getchar(void):number",
    "int ungetc(int c, FILE *stream):number",
    "int fputs(const char *s, FILE *stream)",
    "int fputc(int c, FILE *stream)",
    "int putc(int c, FILE *stream)",
    "int putchar(int c)",
    "int puts(const char *s)",
    "ssize_t getline(char **lineptr, size_t *n, FILE *stream):number",
    "ssize_t getdelim(char **lineptr, size_t *n, int delim, FILE *stream):number",
    "int printf(const char *format, ...)",
    "int fprintf(FILE *stream, const char *format, ...)",
    "int dprintf(int fd, const char *format, ...)",
    "int sprintf(char *str:text, const char *format, ...)",
    "int snprintf(char *str:text, size_t size, const char *format, ...)",
    "int vprintf(const char *format, va_list ap)",
    "int vfprintf(FILE *stream, const char *format, va_list ap)",
    "int vsnprintf(char *str:text, size_t size, const char *format, va_list ap)",
    "int asprintf(char **strp, const char *format, ...)",
    "int fseek(FILE *stream, long offset, int whence:whence)",
    "int fseeko(FILE *stream, off_t offset, int whence:whence)",
    "long ftell(FILE *stream)",
    "off_t ftello(FILE *stream)",
    "void rewind(FILE *stream)",
    "int feof(FILE *stream)",
    "int ferror(FILE *stream)",
    "int fileno(FILE *stream)",
    "int setvbuf(FILE *stream, char *buf, int mode:set_buffer, size_t size)",
    "void setbuf(FILE *stream, char *buf)",
    "FILE *popen(const char *command, const char *type)",
    "int pclose(FILE *stream)",
    "FILE *tmpfile(void)",
    "void perror(const char *s)",

    /* memory */
    "void *malloc(size_t size)",
    "void free(void *ptr)",
    "void *calloc(size_t nmemb, size_t size)",
    "void *realloc(void *ptr, size_t size)",
    "void *reallocarray(void *ptr, size_t nmemb, size_t size)",
    "int posix_memalign(void **memptr:out, size_t alignment, size_t size):error",
    "void *aligned_alloc(size_t alignment, size_t size)",
    "void *memalign(size_t alignment, size_t size)",
    "size_t malloc_usable_size(void *ptr)",
    "int malloc_trim(size_t pad)",
    "void *mmap(void *addr, size_t length, int prot:prot, int flags:map_flags, int fd, off_t offset)",
    "int munmap(void *addr, size_t length)",
    "int mprotect(void *addr, size_t length, int prot:prot)",
    "void *mremap(void *addr, size_t old_size, size_t new_size, int flags:mremap_flags, void *new_addr?flags&2)",
    "int msync(void *addr, size_t length, int flags:msync_flags)",
    "int madvise(void *addr, size_t length, int advice:advice)",
    "int mlock(const void *addr, size_t length)",
    "int munlock(const void *addr, size_t length)",
    "int mlockall(int flags:mlockall_flags)",
    "int munlockall(void)",
    "int memfd_create(const char *name, unsigned int flags:memfd_flags)",
    "int shm_open(const char *name, int flags:open_flags, mode_t mode)",
    "int shm_unlink(const char *name)",
    "int shmget(key_t key:ipc_key, size_t size, int flags:shm_flags)",
    "void *shmat(int shmid, const void *addr, int flags)",
    "int shmdt(const void *addr)",
    "int shmctl(int shmid, int cmd:ipc_command, struct shmid_ds *buf)",
    "int brk(void *addr)",
    "void *sbrk(intptr_t increment)",

    /* strings */
    "~void *memcpy(void *dest, const void *src, size_t n)",
    "~void *memmove(void *dest, const void *src, size_t n)",
    "~void *memset(void *s, int c, size_t n)",
    "~int memcmp(const void *a, const void *b, size_t n):number",
    "~void *memchr(const void *s, int c, size_t n)",
    "void *memmem(const void *haystack, size_t haystack_len, const void *needle, size_t needle_len)",
    "~size_t strlen(const char *s)",
    "~size_t strnlen(const char *s, size_t maxlen)",
    "~int strcmp(const char *a, const char *b):number",
    "~int strncmp(const char *a, const char *b, size_t n):number",
    "~int strcasecmp(const char *a, const char *b):number",
    "~int strncasecmp(const char *a, const char *b, size_t n):number",
    "int strcoll(const char *a, const char *b):number",
    "~char *strcpy(char *dest, const char *src)",
    "~char *strncpy(char *dest, const char *src, size_t n)",
    "~char *stpcpy(char *dest, const char *src)",
    "~char *strcat(char *dest, const char *src)",
    "~char *strncat(char *dest, const char *src, size_t n)",
    "~char *strchr(const char *s, int c)",
    "~char *strrchr(const char *s, int c)",
    "~char *strstr(const char *haystack, const char *needle)",
    "char *strcasestr(const char *haystack, const char *needle)",
    "~size_t strspn(const char *s, const char *accept)",
    "~size_t strcspn(const char *s, const char *reject)",
    "~char *strpbrk(const char *s, const char *accept)",
    "char *strtok(char *s, const char *delim)",
    "char *strtok_r(char *s, const char *delim, char **saveptr)",
    "char *strsep(char **stringp, const char *delim)",
    "char *strdup(const char *s)",
    "char *strndup(const char *s, size_t n)",
    "char *strerror(int errnum)",
    "char *strsignal(int sig:signal_number)",
    "int atoi(const char *s):number",
    "long atol(const char *s):number",
    "double atof(const char *s)",
    "long strtol(const char *s, char **endptr, int base):number",
    "unsigned long strtoul(const char *s, char **endptr, int base):number",
    "long long strtoll(const char *s, char **endptr, int base):number",
    "unsigned long long strtoull(const char *s, char **endptr, int base):number",
    "double strtod(const char *s, char **endptr)",
    "float strtof(const char *s, char **endptr)",
    "int tolower(int c):number",
    "int toupper(int c):number",
    "char *setlocale(int category:locale_category, const char *locale)",
    "void qsort(void *base, size_t nmemb, size_t size, int (*compar)(const void *, const void *))",
    "void *bsearch(const void *key, const void *base, size_t nmemb, size_t size, int (*compar)(const void *, const "
    "void *))",

    /* processes */
    "pid_t fork(void)",
    "int execve(const char *path, char *const argv[], char *const envp[])",
    "int execv(const char *path, char *const argv[])",
    "int execvp(const char *file, char *const argv[])",
    "int execvpe(const char *file, char *const argv[], char *const envp[])",
    "pid_t wait(int *status:some)",
    "pid_t waitpid(pid_t pid, int *status:some, int options:wait_options)",
    "int waitid(idtype_t idtype:wait_for, id_t id, siginfo_t *info, int options:waitid_options)",
    "pid_t wait4(pid_t pid, int *status:some, int options:wait_options, struct rusage *usage)",
    "void exit(int status)",
    "void _exit(int status)",
    "void abort(void)",
    "int atexit(void (*function)(void))",
    "int system(const char *command)",
    "pid_t getpid(void)",
    "pid_t getppid(void)",
    "pid_t gettid(void)",
    "uid_t getuid(void)",
    "uid_t geteuid(void)",
    "gid_t getgid(void)",
    "gid_t getegid(void)",
    "int setuid(uid_t uid)",
    "int setgid(gid_t gid)",
    "pid_t setsid(void)",
    "int setpgid(pid_t pid, pid_t pgid)",
    "pid_t getpgid(pid_t pid)",
    "pid_t getpgrp(void)",
    "char *getenv(const char *name)",
    "char *secure_getenv(const char *name)",
    "int setenv(const char *name, const char *value, int overwrite)",
    "int unsetenv(const char *name)",
    "int putenv(char *string)",
    "int getrlimit(__rlimit_resource_t resource:resource, struct rlimit *rlim:out)",
    "int setrlimit(__rlimit_resource_t resource:resource, const struct rlimit *rlim)",
    "int getrusage(__rusage_who_t who:who, struct rusage *usage:out)",
    "int getpriority(__priority_which_t which:priority_which, id_t who):number",
    "int setpriority(__priority_which_t which:priority_which, id_t who, int prio)",
    "int nice(int inc):number",
    "int prctl(int option:prctl_option, ...)",
    "int unshare(int flags:clone_flags)",
    "int setns(int fd, int nstype:clone_flags)",
    "long sysconf(int name:sysconf_name):number",
    "int getpagesize(void)",
    "int gethostname(char *name:text, size_t len)",
    "int uname(struct utsname *buf:text)",
    "int sysinfo(struct sysinfo *info:out)",
    "long syscall(long number, ...)",
    "ssize_t getrandom(void *buf:filled, size_t length, unsigned int flags:getrandom_flags)",
    "int sched_yield(void)",
    "int sched_getcpu(void)",
    "int sched_setaffinity(pid_t pid, size_t size, const cpu_set_t *mask)",
    "int sched_getaffinity(pid_t pid, size_t size, cpu_set_t *mask)",
    "int sched_setscheduler(pid_t pid, int policy:scheduling, const struct sched_param *param)",
    "int posix_spawn(pid_t *pid:out, const char *path, const posix_spawn_file_actions_t *actions, "
    "const posix_spawnattr_t *attr, char *const argv[], char *const envp[]):error",
    "int posix_spawnp(pid_t *pid:out, const char *file, const posix_spawn_file_actions_t *actions, "
    "const posix_spawnattr_t *attr, char *const argv[], char *const envp[]):error",
    "int getopt_long(int argc, char *const *argv, const char *optstring, const struct option *longopts, int "
    "*longindex):number",

    /* signals */
    "int kill(pid_t pid, int sig:signal_number)",
    "int killpg(pid_t pgrp, int sig:signal_number)",
    "int raise(int sig:signal_number)",
    "int tgkill(pid_t tgid, pid_t tid, int sig:signal_number)",
    "sighandler_t signal(int sig:signal_number, sighandler_t handler)",
    "int sigaction(int sig:signal_number, const struct sigaction *act, struct sigaction *oldact)",
    "int sigprocmask(int how:signal_how, const sigset_t *set, sigset_t *oldset:out)",
    "int pthread_sigmask(int how:signal_how, const sigset_t *set, sigset_t *oldset:out):error",
    "int sigemptyset(sigset_t *set)",
    "int sigfillset(sigset_t *set)",
    "int sigaddset(sigset_t *set, int sig:signal_number)",
    "int sigdelset(sigset_t *set, int sig:signal_number)",
    "int sigismember(const sigset_t *set, int sig:signal_number)",
    "int sigsuspend(const sigset_t *mask)",
    "int sigwait(const sigset_t *set, int *sig:out):error",
    "int sigwaitinfo(const sigset_t *set, siginfo_t *info)",
    "int sigtimedwait(const sigset_t *set, siginfo_t *info, const struct timespec *timeout)",
    "int sigpending(sigset_t *set)",
    "int sigaltstack(const stack_t *ss, stack_t *old_ss)",
    "unsigned int alarm(unsigned int seconds)",
    "int pause(void)",
    "int setitimer(__itimer_which_t which:timer_which, const struct itimerval *value, struct itimerval *old)",

    /* sockets */
    "int socket(int domain:address_family, int type:socket_type, int protocol:socket_protocol)",
    "int socketpair(int domain:address_family, int type:socket_type, int protocol, int fds[2])",
    "int bind(int fd, const struct sockaddr *addr, socklen_t len)",
    "int listen(int fd, int backlog)",
    "int accept(int fd, struct sockaddr *addr, socklen_t *len:out)",
    "int accept4(int fd, struct sockaddr *addr, socklen_t *len, int flags:accept_flags)",
    "int connect(int fd, const struct sockaddr *addr, socklen_t len)",
    "int shutdown(int fd, int how:shut)",
    "ssize_t send(int fd, const void *buf, size_t len, int flags:msg_flags)",
    "ssize_t recv(int fd, void *buf:filled, size_t len, int flags:msg_flags)",
    "ssize_t sendto(int fd, const void *buf, size_t len, int flags:msg_flags, const struct sockaddr *addr, "
    "socklen_t addrlen)",
    "ssize_t recvfrom(int fd, void *buf:filled, size_t len, int flags:msg_flags, struct sockaddr *addr, socklen_t "
    "*addrlen)",
    "ssize_t sendmsg(int fd, const struct msghdr *msg, int flags:msg_flags)",
    "ssize_t recvmsg(int fd, struct msghdr *msg, int flags:msg_flags)",
    "int getsockname(int fd, struct sockaddr *addr, socklen_t *len:out)",
    "int getpeername(int fd, struct sockaddr *addr, socklen_t *len:out)",
    "int setsockopt(int fd, int level:socket_level, int name, const void *value, socklen_t len)",
    "int getsockopt(int fd, int level:socket_level, int name, void *value, socklen_t *len)",
    "int getaddrinfo(const char *node, const char *service, const struct addrinfo *hints, struct addrinfo **res)",
    "void freeaddrinfo(struct addrinfo *res)",
    "int inet_pton(int family:address_family, const char *src, void *dst)",
    "const char *inet_ntop(int family:address_family, const void *src, char *dst:text, socklen_t size)",

    /* time */
    "~time_t time(time_t *tloc)",
    "~int gettimeofday(struct timeval *tv:out, void *tz)",
    "int clock_gettime(clockid_t clockid:clock_id, struct timespec *tp:out)",
    "int clock_getres(clockid_t clockid:clock_id, struct timespec *res:out)",
    "int clock_settime(clockid_t clockid:clock_id, const struct timespec *tp)",
    "int nanosleep(const struct timespec *req, struct timespec *rem)",
    "int clock_nanosleep(clockid_t clockid:clock_id, int flags:timer_flags, const struct timespec *req, "
    "struct timespec *rem):error",
    "unsigned int sleep(unsigned int seconds)",
    "int usleep(useconds_t usec)",
    "clock_t clock(void)",
    "clock_t times(struct tms *buf:out)",
    "struct tm *localtime(const time_t *timep)",
    "struct tm *localtime_r(const time_t *timep, struct tm *result:out)",
    "struct tm *gmtime(const time_t *timep)",
    "struct tm *gmtime_r(const time_t *timep, struct tm *result:out)",
    "time_t mktime(struct tm *tm)",
    "size_t strftime(char *s:text, size_t max, const char *format, const struct tm *tm)",

    /* threads */
    "int pthread_create(pthread_t *thread:out, const pthread_attr_t *attr, void *(*start)(void *), void *arg):error",
    "int pthread_join(pthread_t thread, void **retval:out):error",
    "int pthread_detach(pthread_t thread):error",
    "void pthread_exit(void *retval)",
    "pthread_t pthread_self(void)",
    "int pthread_kill(pthread_t thread, int sig:signal_number):error",
    "int pthread_cancel(pthread_t thread):error",
    "int pthread_setcancelstate(int state:cancel_state, int *oldstate):error",
    "int pthread_setcanceltype(int type:cancel_type, int *oldtype):error",
    "void pthread_testcancel(void)",
    "int pthread_once(pthread_once_t *once, void (*init)(void)):error",
    "int pthread_key_create(pthread_key_t *key, void (*destructor)(void *)):error",
    "int pthread_key_delete(pthread_key_t key):error",
    "void *pthread_getspecific(pthread_key_t key)",
    "int pthread_setspecific(pthread_key_t key, const void *value):error",
    "int pthread_attr_init(pthread_attr_t *attr):error",
    "int pthread_attr_destroy(pthread_attr_t *attr):error",
    "int pthread_attr_setdetachstate(pthread_attr_t *attr, int state:detach_state):error",
    "int pthread_attr_setstacksize(pthread_attr_t *attr, size_t size):error",
    "int pthread_mutex_init(pthread_mutex_t *mutex, const pthread_mutexattr_t *attr):error",
    "int pthread_mutex_destroy(pthread_mutex_t *mutex):error",
    "int pthread_mutex_lock(pthread_mutex_t *mutex):error",
    "int pthread_mutex_trylock(pthread_mutex_t *mutex):error",
    "int pthread_mutex_timedlock(pthread_mutex_t *mutex, const struct timespec *abstime):error",
    "int pthread_mutex_unlock(pthread_mutex_t *mutex):error",
    "int pthread_mutexattr_settype(pthread_mutexattr_t *attr, int type:mutex_type):error",
    "int pthread_cond_init(pthread_cond_t *cond, const pthread_condattr_t *attr):error",
    "int pthread_cond_destroy(pthread_cond_t *cond):error",
    "int pthread_cond_wait(pthread_cond_t *cond, pthread_mutex_t *mutex):error",
    "int pthread_cond_timedwait(pthread_cond_t *cond, pthread_mutex_t *mutex, const struct timespec *abstime):error",
    "int pthread_cond_signal(pthread_cond_t *cond):error",
    "int pthread_cond_broadcast(pthread_cond_t *cond):error",
    "int pthread_rwlock_rdlock(pthread_rwlock_t *rwlock):error",
    "int pthread_rwlock_tryrdlock(pthread_rwlock_t *rwlock):error",
    "int pthread_rwlock_wrlock(pthread_rwlock_t *rwlock):error",
    "int pthread_rwlock_trywrlock(pthread_rwlock_t *rwlock):error",
    "int pthread_rwlock_unlock(pthread_rwlock_t *rwlock):error",
    "int pthread_spin_lock(pthread_spinlock_t *lock):error",
    "int pthread_spin_unlock(pthread_spinlock_t *lock):error",
    "int pthread_barrier_init(pthread_barrier_t *barrier, const pthread_barrierattr_t *attr, unsigned int count):error",
    "int pthread_setname_np(pthread_t thread, const char *name):error",
    "int pthread_getname_np(pthread_t thread, char *name:text, size_t size):error",
    "int pthread_setaffinity_np(pthread_t thread, size_t size, const cpu_set_t *set):error",
    "int sem_init(sem_t *sem, int pshared, unsigned int value)",
    "int sem_destroy(sem_t *sem)",
    "int sem_wait(sem_t *sem)",
    "int sem_trywait(sem_t *sem)",
    "int sem_timedwait(sem_t *sem, const struct timespec *abstime)",
    "int sem_post(sem_t *sem)",

    /* the loader */
    "void *dlopen(const char *file, int mode:dlopen_flags)",
    "void *dlsym(void *handle, const char *name)",
    "int dlclose(void *handle)",
    "char *dlerror(void)",

    /* mathematics */
    "double sqrt(double x)",
    "float sqrtf(float x)",
    "double cbrt(double x)",
    "double hypot(double x, double y)",
    "double exp(double x)",
    "double exp2(double x)",
    "double log(double x)",
    "double log10(double x)",
    "~double log2(double x)",
    "double pow(double x, double y)",
    "~double sin(double x)",
    "~double cos(double x)",
    "~double tan(double x)",
    "double asin(double x)",
    "double acos(double x)",
    "~double atan(double x)",
    "double atan2(double y, double x)",
    "~float sinf(float x)",
    "~float cosf(float x)",
    "~double floor(double x)",
    "~double ceil(double x)",
    "~double trunc(double x)",
    "double round(double x)",
    "~double rint(double x)",
    "long lround(double x)",
    "double fabs(double x)",
    "double fmod(double x, double y)",
    "~double fma(double x, double y, double z)",
    "double ldexp(double x, int exp)",
    "double frexp(double x, int *exp:out)",
    "double modf(double x, double *iptr:out)",
    "int rand(void):number",
    "void srand(unsigned int seed)",
    "long random(void):number",
    "int abs(int j):number",
};

static const struct {
  const char *name;
  uint8_t kind, bytes;
} base_types[] = {
    {"void", CT_TYPE_VOID, 0},
    {"char", CT_TYPE_CHAR, 1},
    {"int", CT_TYPE_SIGNED, 4},
    {"long", CT_TYPE_SIGNED, 8},
    {"long long", CT_TYPE_SIGNED, 8},
    {"unsigned int", CT_TYPE_UNSIGNED, 4},
    {"unsigned long", CT_TYPE_UNSIGNED, 8},
    {"unsigned long long", CT_TYPE_UNSIGNED, 8},
    {"float", CT_TYPE_FLOAT, 4},
    {"double", CT_TYPE_FLOAT, 8},
    {"size_t", CT_TYPE_UNSIGNED, 8},
    {"ssize_t", CT_TYPE_SIGNED, 8},
    {"off_t", CT_TYPE_SIGNED, 8},
    {"intptr_t", CT_TYPE_SIGNED, 8},
    {"uint32_t", CT_TYPE_UNSIGNED, 4},
    {"mode_t", CT_TYPE_MODE, 4},
    {"pid_t", CT_TYPE_SIGNED, 4},
    {"uid_t", CT_TYPE_SIGNED, 4}, /* -1: leave it */
    {"gid_t", CT_TYPE_SIGNED, 4},
    {"id_t", CT_TYPE_UNSIGNED, 4},
    {"idtype_t", CT_TYPE_UNSIGNED, 4},
    {"key_t", CT_TYPE_SIGNED, 4},
    {"nfds_t", CT_TYPE_UNSIGNED, 8},
    {"socklen_t", CT_TYPE_UNSIGNED, 4},
    {"clockid_t", CT_TYPE_SIGNED, 4},
    {"clock_t", CT_TYPE_SIGNED, 8},
    {"time_t", CT_TYPE_SIGNED, 8},
    {"useconds_t", CT_TYPE_UNSIGNED, 4},
    {"pthread_t", CT_TYPE_POINTER, 8},
    {"pthread_key_t", CT_TYPE_UNSIGNED, 4},
    {"sighandler_t", CT_TYPE_POINTER, 8},
    {"va_list", CT_TYPE_POINTER, 8},
    {"__rlimit_resource_t", CT_TYPE_UNSIGNED, 4},
    {"__rusage_who_t", CT_TYPE_SIGNED, 4},
    {"__priority_which_t", CT_TYPE_UNSIGNED, 4},
    {"__itimer_which_t", CT_TYPE_UNSIGNED, 4},
};

bool
ct_known_calls_in(const char *module_name)
{
  static const char *const names[] = {"libc.so.6",
                                      "libm.so.6",
                                      "libpthread.so.0",
                                      "librt.so.1",
                                      "libdl.so.2",
                                      "libc.so",
                                      "ld-linux-x86-64.so.2",
                                      "ld-musl-x86_64.so.1",
                                      "libc.musl-x86_64.so.1"};
  for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++) {
    if (strcmp(module_name, names[i]) == 0) {
      return true;
    }
  }
  return false;
}

/* Where the name begins: after the type and its asterisks. */
static const char *
name_in(const char *line, size_t *length)
{
  const char *end = strchr(line, '(');
  const char *begin = end;
  while (begin > line && begin[-1] != ' ' && begin[-1] != '*') {
    begin--;
  }
  *length = (size_t)(end - begin);
  return begin;
}

/* Of glibc's "__strlen_avx2" the length of "strlen"; 0: it is no name of a variant. */
static size_t
variant_length(const char *symbol)
{
  static const char *const marks[] = {"avx", "evex", "sse", "ssse3", "fma", "erms", "unaligned", "generic"};
  const char *mark = strncmp(symbol, "__", 2) == 0 ? strchr(symbol + 2, '_') : NULL;
  for (size_t i = 0; mark != NULL && i < sizeof(marks) / sizeof(marks[0]); i++) {
    if (strncmp(mark + 1, marks[i], strlen(marks[i])) == 0) {
      return (size_t)(mark - symbol - 2);
    }
  }
  return 0;
}

/* Of several names of one function, what a library's list of functions has in place of the usual one. */
static const char *
usual_name(const char *symbol)
{
  static const struct {
    const char *other, *usual;
  } names[] = {{"llseek", "lseek"}, {"fallocate64", "fallocate"}};
  for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++) {
    if (strcmp(symbol, names[i].other) == 0) {
      return names[i].usual;
    }
  }
  return symbol;
}

const char *
ct_known_call(const char *symbol, bool is_glibc)
{
  size_t variant = is_glibc ? variant_length(symbol) : 0;
  symbol = variant != 0 ? symbol + 2 : usual_name(symbol);
  size_t wanted = variant != 0 ? variant : strlen(symbol);
  for (size_t i = 0; i < sizeof(calls) / sizeof(calls[0]); i++) {
    size_t length;
    const char *name = name_in(calls[i], &length);
    if (length == wanted && memcmp(name, symbol, length) == 0) {
      return calls[i][0] == '~' && is_glibc && variant == 0 ? NULL : calls[i] + (calls[i][0] == '~');
    }
  }
  return NULL;
}

bool
ct_known_call_is_quick(const char *line)
{
  for (size_t i = 0; i < sizeof(calls) / sizeof(calls[0]); i++) {
    if (calls[i] + 1 == line) {
      return calls[i][0] == '~';
    }
  }
  return false;
}

const char *
ct_known_call_at(size_t n)
{
  return n < sizeof(calls) / sizeof(calls[0]) ? calls[n] + (calls[n][0] == '~') : NULL;
}

/* ---- Parsing ---- */

/* What is kept of the line: names and types, one after the other. */
struct room {
  char *next;
  size_t left;
};

static const char *
keep(struct room *room, const char *begin, size_t length)
{
  while (length != 0 && begin[length - 1] == ' ') {
    length--;
  }
  if (length + 1 > room->left) {
    return NULL;
  }
  char *kept = room->next;
  memcpy(kept, begin, length);
  kept[length] = '\0';
  room->next += length + 1;
  room->left -= length + 1;
  return kept;
}

static const char *
without_qualifiers(const char *text)
{
  static const char *const words[] = {"const ", "volatile "};
  for (size_t i = 0; i < sizeof(words) / sizeof(words[0]); i++) {
    if (strncmp(text, words[i], strlen(words[i])) == 0) {
      return without_qualifiers(text + strlen(words[i]));
    }
  }
  return text;
}

/* "const char *": what stands before a name. */
static bool
parse_type(struct room *room, const char *text, size_t length, bool is_array, struct ct_type *type)
{
  *type = (struct ct_type){.name = keep(room, text, length)};
  if (type->name == NULL) {
    return false;
  }
  size_t stars = is_array;
  for (const char *p = type->name; *p != '\0'; p++) {
    stars += *p == '*';
  }
  const char *base = without_qualifiers(type->name);
  size_t base_length = strcspn(base, "*");
  while (base_length != 0 && base[base_length - 1] == ' ') {
    base_length--;
  }
  if (stars != 0) {
    bool is_text = stars == 1 && base_length == 4 && memcmp(base, "char", 4) == 0;
    type->kind = CT_TYPE_POINTER;
    type->bytes = 8;
    type->pointee = is_text ? CT_POINTEE_TEXT : CT_POINTEE_OTHER;
    return true;
  }
  for (size_t i = 0; i < sizeof(base_types) / sizeof(base_types[0]); i++) {
    if (strlen(base_types[i].name) == base_length && memcmp(base, base_types[i].name, base_length) == 0) {
      type->kind = base_types[i].kind;
      type->bytes = base_types[i].bytes;
      return true;
    }
  }
  return false;
}

/* The word after a colon. */
static bool
annotate(struct room *room, const char *word, size_t length, struct ct_type *type)
{
  const char *name = keep(room, word, length);
  if (name != NULL && strcmp(name, "error") == 0) {
    type->kind = CT_TYPE_ERROR;
    return true;
  }
  if (name != NULL && strcmp(name, "number") == 0) {
    return true;
  }
  type->constants = name != NULL ? ct_known_constants(name) : NULL;
  return type->constants != NULL;
}

/* "flags&0x400040" */
static bool
parse_needs(const char *text, const struct ct_prototype *prototype, struct ct_parameter *parameter)
{
  size_t length = strcspn(text, "&");
  for (uint32_t i = 0; i < prototype->count && text[length] == '&'; i++) {
    const char *name = prototype->parameters[i].name;
    if (strlen(name) == length && memcmp(name, text, length) == 0) {
      parameter->needs = (uint8_t)(i + 1);
      parameter->needs_bits = strtoull(text + length + 1, NULL, 0);
    }
  }
  return parameter->needs != 0;
}

/* `int flags:open_flags`, `int (*compar)(const void *, const void *)`, `mode_t mode?flags&64`, `int fds[2]` */
static bool
parse_parameter(struct room *room, const char *text, size_t length, const struct ct_prototype *prototype,
                struct ct_parameter *parameter)
{
  *parameter = (struct ct_parameter){.name = ""};
  const char *inner = memmem(text, length, "(*", 2);
  if (inner != NULL) {
    parameter->name = keep(room, inner + 2, strcspn(inner + 2, ")"));
    parameter->type =
        (struct ct_type){.kind = CT_TYPE_POINTER, .pointee = CT_POINTEE_FUNCTION, .bytes = 8, .name = "function *"};
    return parameter->name != NULL;
  }
  size_t end = 0;
  while (end < length && strchr(":?[", text[end]) == NULL) {
    end++;
  }
  size_t begin = end;
  while (begin > 0 && text[begin - 1] != ' ' && text[begin - 1] != '*') {
    begin--;
  }
  bool is_array = end < length && text[end] == '[';
  parameter->name = keep(room, text + begin, end - begin);
  if (parameter->name == NULL || !parse_type(room, text, begin, is_array, &parameter->type)) {
    return false;
  }
  parameter->out_count = is_array ? (uint8_t)strtoul(text + end + 1, NULL, 10) : 1;
  parameter->out = is_array && parameter->out_count != 0 ? CT_OUT_VALUE : CT_OUT_NONE;
  if (end < length && text[end] == ':' && ct_known_out_parse(text + end + 1, length - end - 1, parameter)) {
    return true;
  }
  if (end < length && text[end] == ':') {
    return annotate(room, text + end + 1, length - end - 1, &parameter->type);
  }
  return end == length || text[end] != '?' || parse_needs(text + end + 1, prototype, parameter);
}

/* Registers in order; there is nothing in the table that goes elsewhere. */
static void
place(struct ct_prototype *prototype)
{
  uint16_t integers = 0, vectors = 0;
  for (uint32_t i = 0; i < prototype->count; i++) {
    struct ct_place *at = &prototype->parameters[i].place;
    bool is_float = prototype->parameters[i].type.kind == CT_TYPE_FLOAT;
    at->piece[0] = is_float ? 'f' : 'i';
    at->number[0] = is_float ? vectors++ : integers++;
  }
  if (prototype->result.kind != CT_TYPE_VOID) {
    prototype->result_place.piece[0] = prototype->result.kind == CT_TYPE_FLOAT ? 'f' : 'i';
  }
}

bool
ct_known_call_parse(const char *line, char *buffer, size_t size, struct ct_prototype *prototype)
{
  struct room room = {buffer, size};
  size_t name_length;
  const char *name = name_in(line, &name_length);
  const char *at = name + name_length + 1, *end = strrchr(line, ')');
  memset(prototype, 0, sizeof(*prototype));
  if (!parse_type(&room, line, (size_t)(name - line), false, &prototype->result)) {
    return false;
  }
  if (end[1] == ':' && !annotate(&room, end + 2, strlen(end + 2), &prototype->result)) {
    return false;
  }
  prototype->sets_errno = end[1] != ':';
  while (at < end && !(end - at == 4 && memcmp(at, "void", 4) == 0)) {
    size_t length = 0, depth = 0;
    while (at + length < end && (depth != 0 || at[length] != ',')) {
      depth += (at[length] == '(') - (size_t)(at[length] == ')');
      length++;
    }
    if (length == 3 && memcmp(at, "...", 3) == 0) {
      prototype->is_variadic = true;
    } else if (!parse_parameter(&room, at, length, prototype, &prototype->parameters[prototype->count])) {
      return false;
    } else {
      prototype->count++;
    }
    at += length + 1;
    at += strspn(at, " ");
  }
  place(prototype);
  return prototype->count <= CT_INTEGER_PLACES;
}
