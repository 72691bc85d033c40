/* SPDX-License-Identifier: MIT */
/*
 * Threads that wait, without a time, by calls that return EINTR after each stop. A line "ready", then input: at its end
 * each of them is woken, some after a signal that a handler takes, all after some that are ignored, and a line tells
 * what each has got.
 */
#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/sem.h>
#include <unistd.h>

enum { EPOLL, EPOLL_PWAIT, MASKED, SIGNAL, SEMAPHORE, COUNT };

static int event, semaphore;
static int interrupted[COUNT];

static void
nothing(int number)
{
  (void)number;
}

static int
wait_once(int kind, int queue, const sigset_t *wanted)
{
  struct epoll_event got;
  struct sembuf take = {0, -1, 0};
  switch (kind) {
  case EPOLL:
    return epoll_wait(queue, &got, 1, -1);
  case EPOLL_PWAIT:
    return epoll_pwait(queue, &got, 1, -1, NULL);
  case MASKED:
    return epoll_pwait(queue, &got, 1, -1, wanted);
  case SIGNAL:
    return sigwaitinfo(wanted, NULL);
  default:
    return semop(semaphore, &take, 1);
  }
}

static void *
waits(void *number)
{
  int kind = (int)(intptr_t)number, queue = epoll_create1(0);
  sigset_t wanted;
  struct epoll_event in = {.events = EPOLLIN};
  sigemptyset(&wanted);
  sigaddset(&wanted, SIGUSR2);
  epoll_ctl(queue, EPOLL_CTL_ADD, event, &in);
  while (wait_once(kind, queue, &wanted) < 0 && errno == EINTR) {
    interrupted[kind]++;
  }
  return NULL;
}

int
main(void)
{
  pthread_t threads[COUNT];
  char byte;
  uint64_t one = 1;
  struct sembuf give = {0, 1, 0};
  sigset_t wanted;
  sigemptyset(&wanted);
  sigaddset(&wanted, SIGUSR2);
  pthread_sigmask(SIG_BLOCK, &wanted, NULL);
  sigaction(SIGUSR1, &(struct sigaction){.sa_handler = nothing}, NULL);
  event = eventfd(0, 0);
  semaphore = semget(IPC_PRIVATE, 1, 0600);
  for (intptr_t i = 0; i < COUNT; i++) {
    pthread_create(&threads[i], NULL, waits, (void *)i);
  }
  usleep(300000);
  puts("ready");
  fflush(stdout);
  while (read(0, &byte, 1) == 1) {
  }
  pthread_kill(threads[EPOLL], SIGUSR1);
  pthread_kill(threads[SEMAPHORE], SIGUSR1);
  for (int i = 0; i < 20; i++) {
    pthread_kill(threads[i % COUNT], SIGWINCH); /* is ignored */
    usleep(2000);
  }
  usleep(300000);
  pthread_kill(threads[SIGNAL], SIGUSR2);
  if (semop(semaphore, &give, 1) != 0 || write(event, &one, sizeof(one)) != sizeof(one)) {
    return 1;
  }
  for (int i = 0; i < COUNT; i++) {
    pthread_join(threads[i], NULL);
  }
  semctl(semaphore, 0, IPC_RMID);
  printf("epoll_wait %d, epoll_pwait %d and %d, sigwaitinfo %d, semop %d\n", interrupted[EPOLL],
         interrupted[EPOLL_PWAIT], interrupted[MASKED], interrupted[SIGNAL], interrupted[SEMAPHORE]);
  return 0;
}
