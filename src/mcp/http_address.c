/* SPDX-License-Identifier: MIT */
/* Addresses, names of hosts, tokens: whom the server hears. */
#include "mcp/http.h"

#include <arpa/inet.h>
#include <ctype.h>
#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/random.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

enum { BACKLOG = 64, HOST_BYTES = 64, TOKEN_LEAST = 16 };

struct address {
  union {
    struct sockaddr any;
    struct sockaddr_in v4;
    struct sockaddr_in6 v6;
  };
  socklen_t size;
  bool is_loopback;
};

/* A numeric address, without brackets, or localhost. */
static bool
parse_host(const char *host, struct address *address)
{
  memset(address, 0, sizeof(*address));
  if (strcasecmp(host, "localhost") == 0) {
    host = "127.0.0.1";
  }
  if (inet_pton(AF_INET, host, &address->v4.sin_addr) == 1) {
    address->v4.sin_family = AF_INET;
    address->size = sizeof(address->v4);
    address->is_loopback = (ntohl(address->v4.sin_addr.s_addr) >> 24) == IN_LOOPBACKNET;
    return true;
  }
  if (inet_pton(AF_INET6, host, &address->v6.sin6_addr) == 1) {
    address->v6.sin6_family = AF_INET6;
    address->size = sizeof(address->v6);
    address->is_loopback = IN6_IS_ADDR_LOOPBACK(&address->v6.sin6_addr);
    return true;
  }
  return false;
}

/* "HOST[:PORT]", "[HOST][:PORT]": the host without brackets, and where ":PORT" begins, or the end. */
static bool
split_host(const char *text, char host[HOST_BYTES], const char **port)
{
  bool has_brackets = text[0] == '[';
  const char *begin = text + has_brackets, *end = begin + strcspn(begin, has_brackets ? "]" : ":");
  size_t length = (size_t)(end - begin);
  if (length == 0 || length >= HOST_BYTES || (has_brackets && *end != ']')) {
    return false;
  }
  memcpy(host, begin, length);
  host[length] = '\0';
  *port = end + has_brackets;
  return (**port == '\0' || **port == ':') && has_brackets == (strchr(host, ':') != NULL);
}

static bool
parse_port(const char *text, uint16_t *port)
{
  char *end;
  unsigned long number = isdigit((unsigned char)text[0]) ? strtoul(text, &end, 10) : UINT16_MAX + 1ul;
  *port = (uint16_t)number;
  return number <= UINT16_MAX && *end == '\0';
}

static int
refuse_address(const char *text, struct ct_diag *diag)
{
  snprintf(diag->text, sizeof(diag->text),
           "--http '%.100s': a port, or HOST:PORT with a numeric address, such as 127.0.0.1:8321 or [::1]:8321", text);
  return CT_EINVAL;
}

int
http_listen(const char *text, int *fd, bool *is_loopback, char name[HTTP_NAME_BYTES], struct ct_diag *diag)
{
  struct address address;
  char host[HOST_BYTES] = "127.0.0.1", shown[INET6_ADDRSTRLEN];
  const char *rest;
  uint16_t port;
  if (!parse_port(text, &port) && (!split_host(text, host, &rest) || rest[0] != ':' || !parse_port(rest + 1, &port))) {
    return refuse_address(text, diag);
  }
  if (!parse_host(host, &address)) {
    return refuse_address(text, diag);
  }
  bool is_v4 = address.any.sa_family == AF_INET;
  *(is_v4 ? &address.v4.sin_port : &address.v6.sin6_port) = htons(port);
  int one = 1, made = socket(address.any.sa_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
  if (made < 0 || setsockopt(made, SOL_SOCKET, SO_REUSEADDR, &one, sizeof(one)) != 0 ||
      bind(made, &address.any, address.size) != 0 || listen(made, BACKLOG) != 0 ||
      getsockname(made, &address.any, &address.size) != 0) {
    snprintf(diag->text, sizeof(diag->text), "--http %.100s: %s", text, strerror(errno));
    if (made >= 0) {
      close(made);
    }
    return CT_EIO;
  }
  inet_ntop(address.any.sa_family, is_v4 ? (void *)&address.v4.sin_addr : (void *)&address.v6.sin6_addr, shown,
            sizeof(shown));
  snprintf(name, HTTP_NAME_BYTES, is_v4 ? "http://%s:%u/mcp" : "http://[%s]:%u/mcp", shown,
           ntohs(is_v4 ? address.v4.sin_port : address.v6.sin6_port));
  *is_loopback = address.is_loopback;
  *fd = made;
  return 0;
}

bool
http_is_our_host(const char *text, bool is_loopback)
{
  struct address address;
  char host[HOST_BYTES];
  const char *rest;
  uint16_t port;
  return text != NULL && split_host(text, host, &rest) && (rest[0] == '\0' || parse_port(rest + 1, &port)) &&
         parse_host(host, &address) && (address.is_loopback || !is_loopback);
}

bool
http_is_our_origin(const char *text, bool is_loopback)
{
  static const char *const schemes[] = {"http://", "https://"};
  for (size_t i = 0; i < 2; i++) {
    if (strncasecmp(text, schemes[i], strlen(schemes[i])) == 0) {
      return http_is_our_host(text + strlen(schemes[i]), is_loopback);
    }
  }
  return false;
}

bool
http_is_authorized(const char *text, const char *token)
{
  static const char scheme[] = "Bearer ";
  if (text == NULL || strncasecmp(text, scheme, sizeof(scheme) - 1) != 0) {
    return false;
  }
  text += sizeof(scheme) - 1;
  text += strspn(text, " ");
  size_t length = strlen(token);
  if (strlen(text) != length) {
    return false;
  }
  unsigned char differs = 0;
  for (size_t i = 0; i < length; i++) { /* each is looked at */
    differs |= (unsigned char)(text[i] ^ token[i]);
  }
  return differs == 0;
}

bool
http_accepts(const char *accept, const char *type)
{
  size_t family = strcspn(type, "/") + 1, length = strlen(type);
  while (accept != NULL && *accept != '\0') {
    accept += strspn(accept, " \t,");
    size_t size = strcspn(accept, " \t,;");
    if ((size == 3 && strncmp(accept, "*/*", 3) == 0) || (size == length && strncasecmp(accept, type, length) == 0) ||
        (size == family + 1 && accept[family] == '*' && strncasecmp(accept, type, family) == 0)) {
      return true;
    }
    accept += strcspn(accept, ",");
  }
  return false;
}

bool
http_make_secret(char *text, size_t size)
{
  static const char digits[] = "0123456789abcdef";
  unsigned char bytes[HTTP_TOKEN_BYTES];
  size_t count = size - 1 < sizeof(bytes) ? size - 1 : sizeof(bytes);
  if (getrandom(bytes, count, 0) != (ssize_t)count) {
    return false;
  }
  for (size_t i = 0; i < count; i++) {
    text[i] = digits[bytes[i] & 15];
  }
  text[count] = '\0';
  return true;
}

/* ---- the token ---- */

enum { SECRET_DIGITS = 64 };

static int
fail_token(struct ct_diag *diag, const char *path, const char *why)
{
  snprintf(diag->text, sizeof(diag->text), "--token-file %.300s: %s", path, why);
  return CT_EIO;
}

static int
read_token(int fd, const char *path, char token[HTTP_TOKEN_BYTES], struct ct_diag *diag)
{
  struct stat info;
  if (fstat(fd, &info) != 0 || !S_ISREG(info.st_mode)) {
    return fail_token(diag, path, "not a file");
  }
  if ((info.st_mode & 077) != 0 || info.st_uid != geteuid()) {
    return fail_token(diag, path, "others may read or write it: chmod 600");
  }
  ssize_t got = read(fd, token, HTTP_TOKEN_BYTES - 1);
  token[got > 0 ? got : 0] = '\0';
  size_t length = strcspn(token, "\r\n");
  bool is_cut = token[length] == '\0' && got == HTTP_TOKEN_BYTES - 1;
  token[length] = '\0';
  for (size_t i = 0; i < length; i++) {
    if (token[i] <= ' ' || token[i] > '~') {
      length = 0;
    }
  }
  return length >= TOKEN_LEAST && !is_cut
             ? 0
             : fail_token(diag, path, "its first line is no token of 16 to 255 visible characters of ASCII");
}

static int
write_token(int fd, const char *path, const char *token, struct ct_diag *diag)
{
  char line[SECRET_DIGITS + 2];
  int length = snprintf(line, sizeof(line), "%s\n", token);
  ssize_t written = write(fd, line, (size_t)length);
  if (written == length) {
    return 0;
  }
  unlink(path);
  return fail_token(diag, path, written < 0 ? strerror(errno) : "it could not be written whole");
}

int
http_find_token(const char *path, char token[HTTP_TOKEN_BYTES], bool *is_new, struct ct_diag *diag)
{
  *is_new = false;
  int fd = path != NULL ? open(path, O_RDONLY | O_CLOEXEC | O_NOCTTY | O_NONBLOCK) : -1;
  if (fd >= 0) {
    int code = read_token(fd, path, token, diag);
    close(fd);
    return code;
  }
  if (path != NULL && errno != ENOENT) {
    return fail_token(diag, path, strerror(errno));
  }
  if (!http_make_secret(token, SECRET_DIGITS + 1)) {
    snprintf(diag->text, sizeof(diag->text), "no random numbers for a token: %s", strerror(errno));
    return CT_EIO;
  }
  *is_new = true;
  if (path == NULL) {
    return 0;
  }
  fd = open(path, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
  if (fd < 0) {
    return fail_token(diag, path, strerror(errno));
  }
  int code = write_token(fd, path, token, diag);
  close(fd);
  return code;
}
