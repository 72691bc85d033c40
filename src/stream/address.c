/* SPDX-License-Identifier: MIT */
/* unix:PATH and tcp://HOST:PORT as sockets; the token that a user has given. */
#include "stream/broker.h"
#include "stream/link.h"

#include "base/file.h"

#include <contrail/stream.h>

#include <errno.h>
#include <fcntl.h>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#define UNIX "unix:"
#define TCP  "tcp://"
#define FD   "fd:"
enum { CONNECT_MS = 5000, BACKLOG = 8 };

/* Host and port of tcp://HOST:PORT, HOST perhaps in brackets. */
static bool
split_tcp(const char *address, char host[256], char port[8])
{
  const char *begin = address + strlen(TCP), *colon = strrchr(begin, ':');
  if (colon == NULL || colon == begin || colon[1] == '\0' || strlen(colon + 1) > 5 ||
      strspn(colon + 1, "0123456789") != strlen(colon + 1) || atoi(colon + 1) > 65535) {
    return false;
  }
  size_t length = (size_t)(colon - begin);
  if (begin[0] == '[' && begin[length - 1] == ']') {
    begin++;
    length -= 2;
  } else if (memchr(begin, ':', length) != NULL) {
    return false; /* an address of IPv6 without its brackets */
  }
  if (length == 0 || length > 255) {
    return false;
  }
  snprintf(host, 256, "%.*s", (int)length, begin);
  snprintf(port, 8, "%s", colon + 1);
  return true;
}

/* Of fd:N; -1 for other addresses. */
static int
number_of(const char *address)
{
  const char *digits = address + strlen(FD);
  bool is_number = strncmp(address, FD, strlen(FD)) == 0 && digits[0] != '\0' && strlen(digits) <= 6 &&
                   strspn(digits, "0123456789") == strlen(digits);
  return is_number ? atoi(digits) : -1;
}

bool
ct_address_is_one_way(const char *address)
{
  return number_of(address) >= 0;
}

bool
ct_address_is_broker(const char *address)
{
  return ct_broker_is_meant(address);
}

int
ct_address_check(const char *address, bool *is_tcp, struct ct_diag *diag)
{
  char host[256], port[8];
  if (ct_broker_is_meant(address)) {
    *is_tcp = false;
    return ct_broker_check(address, diag);
  }
  if (number_of(address) >= 0) {
    *is_tcp = false;
    return CT_OK;
  }
  if (strncmp(address, TCP, strlen(TCP)) == 0 && split_tcp(address, host, port)) {
    *is_tcp = true;
    return CT_OK;
  }
  struct sockaddr_un name;
  size_t prefix = strlen(UNIX);
  if (strncmp(address, UNIX, prefix) == 0 && address[prefix] != '\0') {
    if (strlen(address + prefix) >= sizeof(name.sun_path)) {
      return ct_fail(diag, CT_EINVAL, "%s: the path is too long for a socket (%zu bytes at most)", address,
                     sizeof(name.sun_path) - 1);
    }
    *is_tcp = false;
    return CT_OK;
  }
  return ct_fail(diag, CT_EINVAL, "'%s' is no address: unix:PATH, tcp://HOST:PORT, nats://HOST:PORT/SUBJECT, or fd:N",
                 address);
}

static int
connect_in_time(int fd, const struct sockaddr *to, socklen_t size)
{
  if (connect(fd, to, size) == 0) {
    return 0;
  }
  if (errno != EINPROGRESS) {
    return errno;
  }
  struct pollfd entry = {.fd = fd, .events = POLLOUT};
  int n, err = 0;
  socklen_t length = sizeof(err);
  while ((n = poll(&entry, 1, CONNECT_MS)) < 0 && errno == EINTR) {
  }
  if (n == 0) {
    return ETIMEDOUT;
  }
  return n < 0 || getsockopt(fd, SOL_SOCKET, SO_ERROR, &err, &length) != 0 ? errno : err;
}

static void
unix_name(const char *address, struct sockaddr_un *name)
{
  *name = (struct sockaddr_un){.sun_family = AF_UNIX};
  snprintf(name->sun_path, sizeof(name->sun_path), "%s", address + strlen(UNIX));
}

/* Nothing waits until more has gathered. */
static void
without_delay(int fd)
{
  int on = 1;
  setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof(on));
}

/* The first of the host's addresses with which that succeeds, connecting or listening. */
static int
open_tcp(const char *address, bool listening, int *fd, struct ct_diag *diag)
{
  char host[256], port[8];
  struct addrinfo hints = {.ai_family = AF_UNSPEC, .ai_socktype = SOCK_STREAM, .ai_flags = listening ? AI_PASSIVE : 0};
  struct addrinfo *list = NULL;
  split_tcp(address, host, port);
  int failed = getaddrinfo(host, port, &hints, &list);
  if (failed != 0) {
    return ct_fail(diag, CT_ENOENT, "%s: %s", address, gai_strerror(failed));
  }
  int err = EADDRNOTAVAIL, opened = -1;
  for (const struct addrinfo *one = list; one != NULL && opened < 0; one = one->ai_next) {
    opened = socket(one->ai_family, SOCK_STREAM | SOCK_CLOEXEC | (listening ? 0 : SOCK_NONBLOCK), 0);
    if (opened < 0) {
      err = errno;
      continue;
    }
    int on = 1;
    if (listening) {
      setsockopt(opened, SOL_SOCKET, SO_REUSEADDR, &on, sizeof(on));
      err = bind(opened, one->ai_addr, one->ai_addrlen) != 0 || listen(opened, BACKLOG) != 0 ? errno : 0;
    } else {
      err = connect_in_time(opened, one->ai_addr, one->ai_addrlen);
    }
    if (err != 0) {
      close(opened);
      opened = -1;
    }
  }
  freeaddrinfo(list);
  if (opened < 0) {
    return ct_fail(diag, CT_EIO, "%s: %s", address, strerror(err));
  }
  without_delay(opened);
  *fd = opened;
  return CT_OK;
}

int
ct_address_connect(const char *address, int *fd, struct ct_diag *diag)
{
  bool is_tcp;
  int code = ct_address_check(address, &is_tcp, diag);
  if (code != CT_OK) {
    return code;
  }
  if (number_of(address) >= 0) {
    int own = fcntl(number_of(address), F_DUPFD_CLOEXEC, 3);
    if (own < 0) {
      return ct_fail(diag, CT_EIO, "%s: %s", address, strerror(errno));
    }
    *fd = own;
    return CT_OK;
  }
  if (is_tcp) {
    return open_tcp(address, false, fd, diag);
  }
  struct sockaddr_un name;
  unix_name(address, &name);
  int opened = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
  int err = opened < 0 ? errno : connect_in_time(opened, (struct sockaddr *)&name, sizeof(name));
  if (err != 0) {
    if (opened >= 0) {
      close(opened);
    }
    return ct_fail(diag, CT_EIO, "%s: %s", address, strerror(err));
  }
  *fd = opened;
  return CT_OK;
}

/* A socket that nobody listens on any more, as one leaves that was killed. Nothing else is removed. */
static void
remove_stale(const char *address, const struct sockaddr_un *name)
{
  struct stat file;
  int fd;
  if (lstat(name->sun_path, &file) != 0 || !S_ISSOCK(file.st_mode)) {
    return;
  }
  if (ct_address_connect(address, &fd, NULL) == CT_OK) {
    close(fd);
  } else {
    unlink(name->sun_path);
  }
}

int
ct_address_listen(const char *address, int *fd, struct ct_diag *diag)
{
  bool is_tcp;
  int code = ct_address_check(address, &is_tcp, diag);
  if (code != CT_OK) {
    return code;
  }
  if (is_tcp) {
    return open_tcp(address, true, fd, diag);
  }
  struct sockaddr_un name;
  unix_name(address, &name);
  remove_stale(address, &name);
  int opened = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
  /* The mode of the socket's file is that of its descriptor: nobody but our user connects. */
  if (opened < 0 || fchmod(opened, 0600) != 0 || bind(opened, (struct sockaddr *)&name, sizeof(name)) != 0 ||
      listen(opened, BACKLOG) != 0) {
    int err = errno;
    if (opened >= 0) {
      close(opened);
    }
    return ct_fail(diag, err == EADDRINUSE ? CT_EEXIST : CT_EIO, "%s: %s", address, strerror(err));
  }
  *fd = opened;
  return CT_OK;
}

int
ct_stream_token(const char *given, char **token, struct ct_diag *diag)
{
  char text[CT_LINK_TOKEN_MAX + 2] = "";
  int fd = ct_open_regular(given);
  if (fd >= 0) {
    text[ct_read_at(fd, text, sizeof(text) - 1, 0)] = '\0';
    close(fd);
  } else if (errno != ENOENT && errno != ENAMETOOLONG && errno != ENOTDIR) {
    return ct_fail(diag, CT_EACCES, "the token's file %s: %s", given, strerror(errno));
  } else if (strchr(given, '/') != NULL) {
    return ct_fail(diag, CT_ENOENT, "the token's file %s: %s", given, strerror(errno));
  } else {
    snprintf(text, sizeof(text), "%s", given);
  }
  text[strcspn(text, "\r\n")] = '\0';
  if (strlen(text) < CT_LINK_TOKEN_MIN || strlen(text) > CT_LINK_TOKEN_MAX) {
    return ct_fail(diag, CT_EINVAL, "a token has %d to %d bytes, and this one has %zu%s", CT_LINK_TOKEN_MIN,
                   CT_LINK_TOKEN_MAX, strlen(text), strlen(text) > CT_LINK_TOKEN_MAX ? " or more" : "");
  }
  *token = strdup(text);
  return *token != NULL ? CT_OK : ct_fail(diag, CT_ENOMEM, "out of memory");
}
