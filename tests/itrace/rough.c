/* SPDX-License-Identifier: MIT */
/*
 * Threads at bad moments. Whoever traces them must not be seen.
 *
 *   rough exec N    a thread that is not the first one execs this program, N times, while others make threads
 *   rough maps N    N threads, while one maps and unmaps what it can
 *   rough files N   N threads at a time; how many files are open at the end
 *   rough masks     threads by clone, which have the signal mask of their maker; then looks at all masks
 *   rough self      execs itself without end, and says its id first
 *   rough moves     code of files that is moved onto other code of files, which others call
 *   rough again     a thread with the id of one that has ended (as root only)
 *   rough makers N  N threads that make others all the time; until a line comes on stdin
 *   rough spawns N  the same of children, by vfork
 *   rough vforked   waits for a child of vfork, which waits for a line on stdin
 */
#define _GNU_SOURCE
#include <dirent.h>
#include <fcntl.h>
#include <linux/sched.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

enum { STACK = 65536, MAKERS = 4, EACH = 20, THREADS_MAX = 256 };

#define THREAD_FLAGS (CLONE_VM | CLONE_FS | CLONE_FILES | CLONE_SIGHAND | CLONE_THREAD | CLONE_SYSVSEM)
#define MASK         0x800ul /* SIGUSR2 */

static int is_over, count;

static void *
one(void *nothing)
{
  __atomic_add_fetch(&count, 1, __ATOMIC_SEQ_CST);
  return nothing;
}

static void
make_one(void)
{
  pthread_t thread;
  if (pthread_create(&thread, NULL, one, NULL) == 0) {
    pthread_join(thread, NULL);
  }
}

static void *
makes(void *nothing)
{
  for (;;) {
    make_one();
  }
  return nothing;
}

static void *
execs(void *text)
{
  char *argv[] = {"rough", "exec", text, NULL};
  execv("/proc/self/exe", argv);
  _exit(99);
}

static int
exec_of_another(int left)
{
  char text[16];
  pthread_t thread;
  make_one();
  if (left == 0) {
    printf("end\n");
    return 5;
  }
  for (int i = 0; i < 2; i++) {
    pthread_create(&thread, NULL, makes, NULL);
  }
  usleep((useconds_t)(left * 337 % 5000));
  snprintf(text, sizeof(text), "%d", left - 1);
  pthread_create(&thread, NULL, execs, text);
  pthread_join(thread, NULL);
  return 98;
}

static void *
maps(void *nothing)
{
  enum { PIECES = 16 };
  void *pieces[PIECES];
  while (!__atomic_load_n(&is_over, __ATOMIC_ACQUIRE)) {
    for (int i = 0; i < PIECES; i++) {
      pieces[i] = mmap(NULL, 100 << 20, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    }
    for (int i = 0; i < PIECES; i++) {
      munmap(pieces[i], 100 << 20);
    }
  }
  return nothing;
}

static int
beside_maps(int threads)
{
  pthread_t mapper;
  pthread_create(&mapper, NULL, maps, NULL);
  for (int i = 0; i < threads; i++) {
    make_one();
  }
  __atomic_store_n(&is_over, 1, __ATOMIC_RELEASE);
  pthread_join(mapper, NULL);
  printf("%d\n", count);
  return 3;
}

static void *
waits(void *nothing)
{
  while (!__atomic_load_n(&is_over, __ATOMIC_ACQUIRE)) {
    usleep(1000);
  }
  return nothing;
}

static int
files(int threads)
{
  pthread_t all[THREADS_MAX];
  for (int i = 0; i < threads && i < THREADS_MAX; i++) {
    pthread_create(&all[i], NULL, waits, NULL);
  }
  __atomic_store_n(&is_over, 1, __ATOMIC_RELEASE);
  for (int i = 0; i < threads && i < THREADS_MAX; i++) {
    pthread_join(all[i], NULL);
  }
  DIR *folder = opendir("/proc/self/fd");
  while (readdir(folder) != NULL) {
    count++;
  }
  closedir(folder);
  printf("%d\n", count);
  return 0;
}

static int
exec_self(int number)
{
  char text[16];
  if (number == 0) {
    printf("%d\n", (int)getpid());
    fflush(stdout);
  } else if (number % 3 == 0) {
    make_one();
  }
  snprintf(text, sizeof(text), "%d", number + 1);
  execl("/proc/self/exe", "rough", "self", text, (char *)NULL);
  return 98;
}

/* ---- code that is moved ---- */

enum { PAGE = 4096, TURNS = 60 };
static unsigned char *code;
static pthread_barrier_t before, after;

/* mov $value, %eax; ret: in a file, mapped elsewhere, moved to its place */
static void
move_code(int value)
{
  unsigned char bytes[PAGE] = {0xb8};
  char name[] = "./rough.XXXXXX";
  int fd = mkstemp(name);
  memcpy(bytes + 1, &value, sizeof(value));
  bytes[5] = 0xc3;
  if (write(fd, bytes, sizeof(bytes)) != sizeof(bytes)) {
    _exit(97);
  }
  void *elsewhere = mmap(NULL, PAGE, PROT_READ | PROT_EXEC, MAP_PRIVATE, fd, 0);
  mremap(elsewhere, PAGE, PAGE, MREMAP_MAYMOVE | MREMAP_FIXED, code);
  close(fd);
  unlink(name);
}

static void *
calls(void *nothing)
{
  for (int i = 0; i < TURNS; i++) {
    pthread_barrier_wait(&before);
    count += ((int (*)(void))code)() != i;
    pthread_barrier_wait(&after);
  }
  return nothing;
}

static int
moves(void)
{
  pthread_t caller;
  int wrong = 0;
  code = mmap(NULL, PAGE, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  pthread_barrier_init(&before, NULL, 2);
  pthread_barrier_init(&after, NULL, 2);
  pthread_create(&caller, NULL, calls, NULL);
  for (int i = 0; i < TURNS; i++) {
    move_code(i);
    wrong += ((int (*)(void))code)() != i;
    pthread_barrier_wait(&before);
    pthread_barrier_wait(&after);
  }
  pthread_join(caller, NULL);
  printf("%d and %d wrong\n", wrong, count);
  return 0;
}

/* ---- threads of which the C library knows nothing ---- */

static int
waits_for_end(void *nothing)
{
  (void)nothing;
  while (!__atomic_load_n(&is_over, __ATOMIC_ACQUIRE)) {
    syscall(SYS_sched_yield);
    usleep(5000);
  }
  __atomic_sub_fetch(&count, 1, __ATOMIC_SEQ_CST);
  return 0;
}

static char *
new_stack(void)
{
  return mmap(NULL, STACK, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
}

static void *
clones(void *nothing)
{
  for (int i = 0; i < EACH; i++) {
    __atomic_add_fetch(&count, 1, __ATOMIC_SEQ_CST);
    clone(waits_for_end, new_stack() + STACK, THREAD_FLAGS, NULL);
  }
  return nothing;
}

static int
others_with_another_mask(void)
{
  int others = 0;
  DIR *folder = opendir("/proc/self/task");
  for (const struct dirent *entry; (entry = readdir(folder)) != NULL;) {
    char path[300], line[256];
    unsigned long mask = MASK;
    snprintf(path, sizeof(path), "/proc/self/task/%s/status", entry->d_name);
    FILE *file = entry->d_name[0] != '.' ? fopen(path, "r") : NULL;
    while (file != NULL && fgets(line, sizeof(line), file) != NULL) {
      sscanf(line, "SigBlk: %lx", &mask);
    }
    if (file != NULL) {
      fclose(file);
    }
    others += mask != MASK;
  }
  closedir(folder);
  return others;
}

static int
masks(void)
{
  pthread_t makers[MAKERS];
  sigset_t mask;
  sigemptyset(&mask);
  sigaddset(&mask, SIGUSR2);
  pthread_sigmask(SIG_SETMASK, &mask, NULL);
  printf("ready\n");
  fflush(stdout);
  for (int i = 0; i < MAKERS; i++) {
    pthread_create(&makers[i], NULL, clones, NULL);
  }
  for (int i = 0; i < MAKERS; i++) {
    pthread_join(makers[i], NULL);
  }
  sleep(2); /* those who wait for a tracer that is dead leave within a second, ... */
  int others = others_with_another_mask();
  for (int i = 0; i < 600 && others != 0; i++) { /* ... or later, on a busy machine */
    usleep(100000);
    others = others_with_another_mask();
  }
  printf("%d others\n", others);
  __atomic_store_n(&is_over, 1, __ATOMIC_RELEASE);
  while (__atomic_load_n(&count, __ATOMIC_SEQ_CST) != 0) {
    usleep(1000);
  }
  return 0;
}

/* It does nothing but end; 0: it cannot be made. */
static pid_t
thread_with_id(pid_t id)
{
  static int tid;
  pid_t ids[] = {id};
  struct clone_args args = {.flags = THREAD_FLAGS | CLONE_CHILD_CLEARTID | CLONE_PARENT_SETTID,
                            .child_tid = (uintptr_t)&tid,
                            .parent_tid = (uintptr_t)&tid,
                            .stack = (uintptr_t)new_stack(),
                            .stack_size = STACK,
                            .set_tid = id != 0 ? (uintptr_t)ids : 0,
                            .set_tid_size = id != 0};
  long got;
  __asm__ volatile("syscall\n\ttest %%eax, %%eax\n\tjnz 1f\n\tmov %3, %%eax\n\txor %%edi, %%edi\n\tsyscall\n1:"
                   : "=a"(got)
                   : "0"((long)SYS_clone3), "D"(&args), "i"(SYS_exit), "S"(sizeof(args))
                   : "rcx", "r11", "memory");
  while (got > 0 && __atomic_load_n(&tid, __ATOMIC_SEQ_CST) != 0) {
    usleep(100);
  }
  return got > 0 ? (pid_t)got : 0;
}

static int
again(void)
{
  for (int i = 0; i < 10; i++) {
    pid_t id = thread_with_id(0);
    usleep(10000); /* it may still be on its way */
    if (id != 0 && thread_with_id(id) == id) {
      printf("%d\n", (int)id);
      return 0;
    }
  }
  return 77;
}

/* ---- threads and children all the time ---- */

static void *
makes_for_long(void *nothing)
{
  while (!__atomic_load_n(&is_over, __ATOMIC_ACQUIRE)) {
    make_one();
  }
  return nothing;
}

static void *
spawns_for_long(void *nothing)
{
  while (!__atomic_load_n(&is_over, __ATOMIC_ACQUIRE)) {
    int status = 0;
    pid_t child = vfork();
    if (child == 0) {
      _exit(7);
    }
    if (child < 0 || waitpid(child, &status, 0) != child || WEXITSTATUS(status) != 7) {
      _exit(96);
    }
  }
  return nothing;
}

/* The first thread's stack is full of words that may be addresses of what a tracer maps below 2 GiB, as hashes may. */
static int
for_long(void *(*makes_them)(void *), int threads)
{
  pthread_t makers[THREADS_MAX];
  volatile uint64_t words[2048];
  for (size_t i = 0; i < sizeof(words) / sizeof(words[0]); i++) {
    words[i] = 0x7fffff00u - i * 0x80000u;
  }
  for (int i = 0; i < threads && i < THREADS_MAX; i++) {
    pthread_create(&makers[i], NULL, makes_them, NULL);
  }
  printf("ready\n");
  fflush(stdout);
  getchar();
  __atomic_store_n(&is_over, 1, __ATOMIC_RELEASE);
  for (int i = 0; i < threads && i < THREADS_MAX; i++) {
    pthread_join(makers[i], NULL);
  }
  printf("all right\n");
  return 0;
}

static int
vforked(void)
{
  char byte;
  int status = 0;
  printf("ready\n");
  fflush(stdout);
  pid_t child = vfork();
  if (child == 0) {
    _exit(read(STDIN_FILENO, &byte, 1) == 1 ? 7 : 1);
  }
  if (child < 0 || waitpid(child, &status, 0) != child || WEXITSTATUS(status) != 7) {
    return 96;
  }
  printf("all right\n");
  return 0;
}

int
main(int argc, char **argv)
{
  const char *name = argc > 1 ? argv[1] : "";
  int number = argc > 2 ? atoi(argv[2]) : 0;
  return strcmp(name, "exec") == 0      ? exec_of_another(number)
         : strcmp(name, "self") == 0    ? exec_self(number)
         : strcmp(name, "maps") == 0    ? beside_maps(number)
         : strcmp(name, "files") == 0   ? files(number)
         : strcmp(name, "masks") == 0   ? masks()
         : strcmp(name, "moves") == 0   ? moves()
         : strcmp(name, "makers") == 0  ? for_long(makes_for_long, number)
         : strcmp(name, "spawns") == 0  ? for_long(spawns_for_long, number)
         : strcmp(name, "vforked") == 0 ? vforked()
                                        : again();
}
