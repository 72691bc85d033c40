/* SPDX-License-Identifier: MIT */
/*
 * What libnats does to the process that loads it must not reach the program that contrail starts: it ignores SIGPIPE,
 * begins threads, and its sockets stay open over an exec. So SIGPIPE is put back and blocked instead in whatever calls
 * it, threads begin with all signals blocked, and sockets are marked after each connecting. It does not connect again
 * by itself, since we must know of each time.
 */
#include "stream/broker.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define NATS        "nats://"
#define ASK         ".ask"
#define PORT        "4222"
#define SUBJECT_MAX 128

/* The parts of an address. */
struct place {
  char url[300]; /* nats://HOST:PORT */
  char subject[SUBJECT_MAX + 1];
};

bool
ct_broker_is_meant(const char *address)
{
  return strncmp(address, NATS, strlen(NATS)) == 0;
}

/* Words of visible characters with dots between, none of them a wildcard. */
static bool
is_subject(const char *text)
{
  size_t size = strlen(text);
  if (size == 0 || size > SUBJECT_MAX || text[0] == '.' || text[size - 1] == '.' || strstr(text, "..") != NULL) {
    return false;
  }
  for (size_t i = 0; i < size; i++) {
    if (text[i] <= ' ' || text[i] > '~' || text[i] == '*' || text[i] == '>') {
      return false;
    }
  }
  return true;
}

static bool
split(const char *address, struct place *place)
{
  const char *begin = address + strlen(NATS), *slash = strchr(begin, '/');
  if (slash == NULL || slash == begin || slash - begin > 255 || memchr(begin, '@', (size_t)(slash - begin)) != NULL ||
      !is_subject(slash + 1)) {
    return false;
  }
  int length = (int)(slash - begin);
  const char *bracket = memchr(begin, ']', (size_t)length);
  const char *colon =
      memchr(bracket != NULL ? bracket : begin, ':', (size_t)(slash - (bracket != NULL ? bracket : begin)));
  if (colon == begin || (colon != NULL && (slash - colon < 2 || slash - colon > 6 ||
                                           strspn(colon + 1, "0123456789") != (size_t)(slash - colon - 1)))) {
    return false;
  }
  snprintf(place->url, sizeof(place->url), NATS "%.*s%s", length, begin, colon == NULL ? ":" PORT : "");
  snprintf(place->subject, sizeof(place->subject), "%s", slash + 1);
  return true;
}

int
ct_broker_check(const char *address, struct ct_diag *diag)
{
  struct place place;
  if (split(address, &place)) {
    return CT_OK;
  }
  return memchr(address, '@', strcspn(address + strlen(NATS), "/") + strlen(NATS)) != NULL
             ? ct_fail(diag, CT_EINVAL,
                       "an address has no password, which others would see: --token has it, as USER:PASSWORD")
             : ct_fail(diag, CT_EINVAL, "'%s' is no address: nats://HOST:PORT/SUBJECT, a subject without wildcards",
                       address);
}

#ifdef CT_WITH_NATS

#include "base/clock.h"

#include <dirent.h>
#include <dlfcn.h>
#include <fcntl.h>
#include <limits.h>
#include <nats/nats.h>
#include <pthread.h>
#include <signal.h>
#include <sys/stat.h>
#include <time.h>

#define LIBRARY "libnats.so.3.4"
enum { CONNECT_MS = 5000, WRITE_MS = 2000, FLUSH_MS = 2000, FDS_MAX = 4096 };

/* Functions of libnats: its name for each, and ours. */
#define FUNCTIONS(X)                                                                                                   \
  X(natsStatus_GetText)                                                                                                \
  X(nats_GetLastError)                                                                                                 \
  X(natsOptions_Create)                                                                                                \
  X(natsOptions_Destroy)                                                                                               \
  X(natsOptions_SetURL)                                                                                                \
  X(natsOptions_SetName)                                                                                               \
  X(natsOptions_SetToken)                                                                                              \
  X(natsOptions_SetUserInfo)                                                                                           \
  X(natsOptions_SetTimeout)                                                                                            \
  X(natsOptions_SetWriteDeadline)                                                                                      \
  X(natsOptions_SetAllowReconnect)                                                                                     \
  X(natsConnection_Connect)                                                                                            \
  X(natsConnection_Close)                                                                                              \
  X(natsConnection_Destroy)                                                                                            \
  X(natsConnection_FlushTimeout)                                                                                       \
  X(natsConnection_GetLastError)                                                                                       \
  X(natsConnection_GetMaxPayload)                                                                                      \
  X(natsConnection_IsClosed)                                                                                           \
  X(natsConnection_Publish)                                                                                            \
  X(natsConnection_SubscribeSync)                                                                                      \
  X(natsSubscription_NextMsg)                                                                                          \
  X(natsSubscription_Destroy)                                                                                          \
  X(natsMsg_Destroy)                                                                                                   \
  X(natsMsg_GetData)                                                                                                   \
  X(natsMsg_GetDataLength)

struct ct_broker {
  char url[300];
  char puts_on[SUBJECT_MAX + sizeof(ASK)];
  natsConnection *connection;
  natsSubscription *subscription;
  natsMsg *message;
};

#define MEMBER(name) __typeof__(name) *name;
static struct {
  FUNCTIONS(MEMBER)
} nats;
static bool is_loaded; /* for good; under the lock */
static pthread_mutex_t loading = PTHREAD_MUTEX_INITIALIZER;

static bool
find(void *library, const char *name, void *place)
{
  void *found = dlsym(library, name);
  memcpy(place, &found, sizeof(found));
  return found != NULL;
}

static int
load(struct ct_diag *diag)
{
  int code = CT_OK;
  pthread_mutex_lock(&loading);
  if (!is_loaded) {
    void *library = dlopen(LIBRARY, RTLD_NOW | RTLD_LOCAL);
    is_loaded = library != NULL;
#define FIND(name) is_loaded = is_loaded && find(library, #name, &nats.name);
    FUNCTIONS(FIND)
    if (!is_loaded) {
      code = ct_fail(diag, CT_EUNSUPPORTED, "NATS needs %s (Debian: libnats3.4): %.200s", LIBRARY,
                     library == NULL ? dlerror() : "a function is missing in it");
    }
  }
  pthread_mutex_unlock(&loading);
  return code;
}

/* ---- what must not get out of here ---- */

struct guard {
  sigset_t mask;
  bool had_pipe; /* a SIGPIPE waited already */
};

/* No signal is taken by what is called now, nor by a thread that it begins. */
static void
enter(struct guard *guard)
{
  sigset_t all, waiting;
  sigfillset(&all);
  sigpending(&waiting);
  guard->had_pipe = sigismember(&waiting, SIGPIPE) == 1;
  pthread_sigmask(SIG_SETMASK, &all, &guard->mask);
}

static void
leave(const struct guard *guard)
{
  static const struct timespec at_once = {0, 0};
  sigset_t pipe_signal, waiting;
  sigemptyset(&pipe_signal);
  sigaddset(&pipe_signal, SIGPIPE);
  sigpending(&waiting);
  if (!guard->had_pipe && sigismember(&waiting, SIGPIPE) == 1) {
    sigtimedwait(&pipe_signal, NULL, &at_once);
  }
  pthread_sigmask(SIG_SETMASK, &guard->mask, NULL);
}

/* Calls for each descriptor that is open. */
static void
each_descriptor(void (*call)(int fd, uint8_t *known), uint8_t *known)
{
  DIR *dir = opendir("/proc/self/fd");
  struct dirent *entry;
  while (dir != NULL && (entry = readdir(dir)) != NULL) {
    int fd = entry->d_name[0] != '.' ? atoi(entry->d_name) : -1;
    if (fd >= 0 && fd < FDS_MAX && fd != dirfd(dir)) {
      call(fd, known);
    }
  }
  if (dir != NULL) {
    closedir(dir);
  }
}

static void
note_descriptor(int fd, uint8_t *known)
{
  known[fd] = 1;
}

/* A socket that was not there before is the library's: what else we open has the mark from its begin. */
static void
mark_descriptor(int fd, uint8_t *known)
{
  struct stat status;
  if (known[fd] == 0 && fstat(fd, &status) == 0 && S_ISSOCK(status.st_mode)) {
    fcntl(fd, F_SETFD, FD_CLOEXEC);
  }
}

/* ---- connections ---- */

static int
failed(const struct ct_broker *broker, natsStatus status, struct ct_diag *diag)
{
  const char *detail = nats.nats_GetLastError(NULL);
  int code = status == NATS_CONNECTION_AUTH_FAILED || status == NATS_NOT_PERMITTED ? CT_EACCES : CT_EIO;
  return ct_fail(diag, code, "%s: %s%s%.100s", broker->url, nats.natsStatus_GetText(status),
                 detail != NULL && detail[0] != '\0' ? ": " : "", detail != NULL ? detail : "");
}

static natsStatus
set_options(natsOptions *options, const char *url, const char *token)
{
  const char *colon = token != NULL ? strchr(token, ':') : NULL;
  natsStatus status = nats.natsOptions_SetURL(options, url);
  if (status == NATS_OK && colon != NULL) {
    char *user = strndup(token, (size_t)(colon - token));
    status = user != NULL ? nats.natsOptions_SetUserInfo(options, user, colon + 1) : NATS_NO_MEMORY;
    free(user);
  } else if (status == NATS_OK && token != NULL && token[0] != '\0') {
    status = nats.natsOptions_SetToken(options, token);
  }
  status = status == NATS_OK ? nats.natsOptions_SetName(options, "contrail") : status;
  status = status == NATS_OK ? nats.natsOptions_SetTimeout(options, CONNECT_MS) : status;
  status = status == NATS_OK ? nats.natsOptions_SetWriteDeadline(options, WRITE_MS) : status;
  return status == NATS_OK ? nats.natsOptions_SetAllowReconnect(options, false) : status;
}

/* Connection and subscription; the server has answered when it is done. */
static natsStatus
open_connection(struct ct_broker *broker, const char *listens_on, const char *token)
{
  natsOptions *options = NULL;
  natsStatus status = nats.natsOptions_Create(&options);
  status = status == NATS_OK ? set_options(options, broker->url, token) : status;
  status = status == NATS_OK ? nats.natsConnection_Connect(&broker->connection, options) : status;
  nats.natsOptions_Destroy(options);
  if (status == NATS_OK) {
    status = nats.natsConnection_SubscribeSync(&broker->subscription, broker->connection, listens_on);
  }
  return status == NATS_OK ? nats.natsConnection_FlushTimeout(broker->connection, CONNECT_MS) : status;
}

int
ct_broker_connect(const char *address, const char *token, enum ct_broker_end end, struct ct_broker **broker,
                  struct ct_diag *diag)
{
  struct place place;
  if (!split(address, &place)) {
    return ct_broker_check(address, diag);
  }
  int code = load(diag);
  struct ct_broker *made = code == CT_OK ? calloc(1, sizeof(*made)) : NULL;
  uint8_t *known = made != NULL ? calloc(1, FDS_MAX) : NULL;
  if (code != CT_OK || known == NULL) {
    free(made);
    return code != CT_OK ? code : ct_fail(diag, CT_ENOMEM, "out of memory");
  }
  char asks[sizeof(made->puts_on)];
  snprintf(asks, sizeof(asks), "%s" ASK, place.subject);
  snprintf(made->url, sizeof(made->url), "%s", place.url);
  snprintf(made->puts_on, sizeof(made->puts_on), "%s", end == CT_BROKER_SENDER ? place.subject : asks);
  struct guard guard;
  struct sigaction pipe_action;
  enter(&guard);
  sigaction(SIGPIPE, NULL, &pipe_action);
  each_descriptor(note_descriptor, known);
  natsStatus status = open_connection(made, end == CT_BROKER_SENDER ? asks : place.subject, token);
  each_descriptor(mark_descriptor, known);
  sigaction(SIGPIPE, &pipe_action, NULL);
  code = status == NATS_OK ? CT_OK : failed(made, status, diag);
  leave(&guard);
  free(known);
  if (code == CT_OK && ct_broker_is_refused(made, diag)) {
    code = CT_EACCES;
  }
  if (code != CT_OK) {
    ct_broker_close(made);
    return code;
  }
  *broker = made;
  return CT_OK;
}

void
ct_broker_close(struct ct_broker *broker)
{
  struct guard guard;
  if (broker == NULL) {
    return;
  }
  enter(&guard);
  if (broker->message != NULL) {
    nats.natsMsg_Destroy(broker->message);
  }
  if (broker->connection != NULL) {
    (void)nats.natsConnection_FlushTimeout(broker->connection, FLUSH_MS);
    /* First, and with it the library's reader: before 3.6 that may be at a message for a subscription that goes
     * (nats.c issue 637). */
    nats.natsConnection_Close(broker->connection);
    nats.natsSubscription_Destroy(broker->subscription);
    nats.natsConnection_Destroy(broker->connection);
  }
  leave(&guard);
  free(broker);
}

size_t
ct_broker_most(const struct ct_broker *broker)
{
  int64_t most = nats.natsConnection_GetMaxPayload(broker->connection);
  return most > 0 ? (size_t)most : 0;
}

bool
ct_broker_put(struct ct_broker *broker, const void *data, size_t size)
{
  struct guard guard;
  enter(&guard);
  natsStatus status = size <= INT_MAX
                          ? nats.natsConnection_Publish(broker->connection, broker->puts_on, data, (int)size)
                          : NATS_INVALID_ARG;
  leave(&guard);
  return status == NATS_OK;
}

int
ct_broker_next(struct ct_broker *broker, int timeout_ms, const uint8_t **data, size_t *size)
{
  if (broker->message != NULL) {
    nats.natsMsg_Destroy(broker->message);
    broker->message = NULL;
  }
  struct guard guard;
  uint64_t until = ct_now_ns() + (uint64_t)timeout_ms * 1000000;
  natsStatus status;
  do { /* messages that did not fit into its queue are reported once, and missed by their numbers */
    uint64_t now = ct_now_ns();
    enter(&guard);
    status = nats.natsSubscription_NextMsg(&broker->message, broker->subscription,
                                           now < until ? (int64_t)((until - now) / 1000000 + 1) : 0);
    leave(&guard);
  } while (status == NATS_SLOW_CONSUMER);
  if (status != NATS_OK) {
    broker->message = NULL;
    return status == NATS_TIMEOUT && !nats.natsConnection_IsClosed(broker->connection) ? CT_ETIMEOUT : CT_EIO;
  }
  int length = nats.natsMsg_GetDataLength(broker->message);
  *data = (const uint8_t *)nats.natsMsg_GetData(broker->message);
  *size = length > 0 ? (size_t)length : 0;
  return CT_OK;
}

bool
ct_broker_is_refused(struct ct_broker *broker, struct ct_diag *diag)
{
  const char *text = NULL;
  natsStatus status = nats.natsConnection_GetLastError(broker->connection, &text);
  bool is_refused = status == NATS_NOT_PERMITTED || (text != NULL && strcasestr(text, "permissions violation") != NULL);
  if (is_refused) {
    (void)ct_fail(diag, CT_EACCES, "%s: %.200s", broker->url, text != NULL ? text : "not permitted");
  }
  return is_refused;
}

#else

int
ct_broker_connect(const char *address, const char *token, enum ct_broker_end end, struct ct_broker **broker,
                  struct ct_diag *diag)
{
  return ct_fail(diag, CT_EUNSUPPORTED,
                 "%s: this contrail was built without NATS (libnats-dev, and meson's -Dnats=enabled)", address);
}

void
ct_broker_close(struct ct_broker *broker)
{
}

size_t
ct_broker_most(const struct ct_broker *broker)
{
  return 0;
}

bool
ct_broker_put(struct ct_broker *broker, const void *data, size_t size)
{
  return false;
}

int
ct_broker_next(struct ct_broker *broker, int timeout_ms, const uint8_t **data, size_t *size)
{
  return CT_EIO;
}

bool
ct_broker_is_refused(struct ct_broker *broker, struct ct_diag *diag)
{
  return false;
}

#endif
