/* SPDX-License-Identifier: MIT */
/*
 * The directory of sockets; see runtime_dir.h. Sockets are named through /proc/self/fd/N/, so that the directory is the
 * one that was checked, and paths longer than a socket's address do no harm.
 */
#include "control/runtime_dir.h"

#include <ctype.h>
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#define SUFFIX ".sock"
enum { BACKLOG = 256, TRIES = 8, CONNECT_MS = 3000 };

/* ---- names ---- */

static bool
is_id_character(char c)
{
  return isalnum((unsigned char)c) || c == '.' || c == '_' || c == '-';
}

bool
ct_session_id_is_valid(const char *id)
{
  size_t length = 0;
  for (; is_id_character(id[length]); length++) {
  }
  return length != 0 && id[length] == '\0' && length < CT_SESSION_ID_BYTES && id[0] != '.';
}

void
ct_session_id_make(char id[CT_SESSION_ID_BYTES], const char *program, long pid)
{
  const char *slash = strrchr(program, '/');
  snprintf(id, 32, "%s", slash != NULL ? slash + 1 : program);
  for (char *c = id; *c != '\0'; c++) {
    if (!is_id_character(*c)) {
      *c = '_';
    }
  }
  if (id[0] == '.' || id[0] == '\0') {
    id[0] = '_', id[1] = '\0';
  }
  size_t length = strlen(id);
  snprintf(id + length, CT_SESSION_ID_BYTES - length, "-%ld", pid);
}

/* ---- sockets ---- */

static bool
address_of(const struct ct_runtime_dir *runtime_dir, const char *name, struct sockaddr_un *address)
{
  *address = (struct sockaddr_un){.sun_family = AF_UNIX};
  int length = snprintf(address->sun_path, sizeof(address->sun_path), "/proc/self/fd/%d/%s", runtime_dir->fd, name);
  return length > 0 && (size_t)length < sizeof(address->sun_path);
}

static int
new_socket(void)
{
  return socket(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
}

/* A connection, or -1 and errno. */
static int
connect_to(const struct ct_runtime_dir *runtime_dir, const char *name)
{
  struct sockaddr_un address;
  int fd = new_socket();
  if (fd < 0) {
    return -1;
  }
  if (!address_of(runtime_dir, name, &address)) {
    errno = ENOENT;
  } else if (connect(fd, (const struct sockaddr *)&address, sizeof(address)) == 0) {
    return fd;
  }
  int error = errno;
  close(fd);
  errno = error;
  return -1;
}

/*
 * Takes away a socket that refused us. The one that is taken away is the one that refuses: whoever removes or puts a
 * socket in place holds the directory's lock meanwhile.
 */
static void
remove_dead(const struct ct_runtime_dir *runtime_dir, const char *name)
{
  struct stat info;
  if (flock(runtime_dir->fd, LOCK_EX | LOCK_NB) != 0) { /* somebody else is at it, or wants to keep us */
    usleep(1000);
    return;
  }
  if (fstatat(runtime_dir->fd, name, &info, AT_SYMLINK_NOFOLLOW) == 0 && S_ISSOCK(info.st_mode)) {
    int fd = connect_to(runtime_dir, name);
    if (fd >= 0) {
      close(fd);
    } else if (errno == ECONNREFUSED) {
      unlinkat(runtime_dir->fd, name, 0);
    }
  }
  flock(runtime_dir->fd, LOCK_UN);
}

/* Binds under a name of our own and listens. */
static int
listen_as(const struct ct_runtime_dir *runtime_dir, const char *name, int *out)
{
  struct sockaddr_un address;
  if (!address_of(runtime_dir, name, &address)) {
    return ENAMETOOLONG;
  }
  int fd = new_socket();
  if (fd < 0) {
    return errno;
  }
  unlinkat(runtime_dir->fd, name, 0);
  /* The mode of the file is the socket's less the umask: nobody else may connect, not for a moment either. */
  int error = fchmod(fd, 0600) != 0 || bind(fd, (const struct sockaddr *)&address, sizeof(address)) != 0 ? errno : 0;
  if (error == 0 && (fchmodat(runtime_dir->fd, name, 0600, 0) != 0 || listen(fd, BACKLOG) != 0)) {
    error = errno;
  }
  if (error != 0) {
    unlinkat(runtime_dir->fd, name, 0);
    close(fd);
    return error;
  }
  *out = fd;
  return 0;
}

int
ct_runtime_dir_listen(const struct ct_runtime_dir *runtime_dir, const char *id, int *out, struct ct_diag *diag)
{
  char name[CT_SESSION_ID_BYTES + 8], own[40];
  int fd = -1;
  if (!ct_session_id_is_valid(id)) {
    return ct_fail(diag, CT_EINVAL, "'%.80s' cannot be a session's name", id);
  }
  snprintf(name, sizeof(name), "%s" SUFFIX, id);
  snprintf(own, sizeof(own), ".%ld-%p", (long)getpid(), (void *)&fd);
  int error = listen_as(runtime_dir, own, &fd);
  for (int tries = 0; error == 0 && tries < TRIES; tries++) {
    if (linkat(runtime_dir->fd, own, runtime_dir->fd, name, 0) == 0) {
      break;
    }
    error = errno;
    int other = error == EEXIST ? connect_to(runtime_dir, name) : -1;
    if (other >= 0) {
      close(other);
      break;
    }
    if (error == EEXIST && (errno == ECONNREFUSED || errno == ENOENT) && tries + 1 < TRIES) {
      remove_dead(runtime_dir, name);
      error = 0;
    }
  }
  unlinkat(runtime_dir->fd, own, 0);
  if (error == 0) {
    *out = fd;
    return CT_OK;
  }
  if (fd >= 0) {
    close(fd);
  }
  if (error == EEXIST) {
    return ct_fail(diag, CT_EEXIST, "there is a session %s already", id);
  }
  return ct_fail(diag, ct_err_from_errno(error), "cannot make a socket in %s: %s", runtime_dir->path, strerror(error));
}

void
ct_runtime_dir_remove(const struct ct_runtime_dir *runtime_dir, const char *id)
{
  char name[CT_SESSION_ID_BYTES + 8];
  snprintf(name, sizeof(name), "%s" SUFFIX, id);
  unlinkat(runtime_dir->fd, name, 0);
}

int
ct_runtime_dir_connect(const struct ct_runtime_dir *runtime_dir, const char *id, int *out, struct ct_diag *diag)
{
  char name[CT_SESSION_ID_BYTES + 8];
  if (!ct_session_id_is_valid(id)) {
    return ct_fail(diag, CT_ENOENT, "there is no session %.80s", id);
  }
  snprintf(name, sizeof(name), "%s" SUFFIX, id);
  int fd = connect_to(runtime_dir, name);
  for (int ms = 0; fd < 0 && errno == EAGAIN && ms < CONNECT_MS; ms += 10) { /* more than the queue takes are waiting */
    usleep(10000);
    fd = connect_to(runtime_dir, name);
  }
  if (fd >= 0) {
    *out = fd;
    return CT_OK;
  }
  if (errno == ECONNREFUSED) {
    remove_dead(runtime_dir, name);
  }
  if (errno == EAGAIN) {
    return ct_fail(diag, CT_ETIMEOUT, "session %s does not answer", id);
  }
  if (errno == EACCES || errno == EPERM) {
    return ct_fail(diag, CT_EACCES, "session %s is not yours", id);
  }
  return ct_fail(diag, CT_ENOENT, "there is no session %s", id);
}

/* ---- the list ---- */

static int
compare_ids(const void *a, const void *b)
{
  return strcmp(*(char *const *)a, *(char *const *)b);
}

/* Adds the id of a socket's name; other files are passed over. */
static int
add_id(char ***ids, size_t *count, const char *name)
{
  size_t length = strlen(name);
  if (length <= strlen(SUFFIX) || strcmp(name + length - strlen(SUFFIX), SUFFIX) != 0) {
    return CT_OK;
  }
  char *id = strndup(name, length - strlen(SUFFIX));
  if (id != NULL && !ct_session_id_is_valid(id)) {
    free(id);
    return CT_OK;
  }
  char **more = id != NULL ? reallocarray(*ids, *count + 2, sizeof(*more)) : NULL;
  if (more == NULL) {
    free(id);
    return CT_ENOMEM;
  }
  *ids = more;
  more[(*count)++] = id;
  more[*count] = NULL;
  return CT_OK;
}

int
ct_runtime_dir_ids(const struct ct_runtime_dir *runtime_dir, char ***ids, size_t *count, struct ct_diag *diag)
{
  char **list = calloc(1, sizeof(*list));
  size_t n = 0;
  int fd = openat(runtime_dir->fd, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  DIR *directory = fd >= 0 ? fdopendir(fd) : NULL;
  if (directory == NULL || list == NULL) {
    free(list);
    if (fd >= 0) {
      directory != NULL ? (void)closedir(directory) : (void)close(fd);
    }
    return ct_fail(diag, CT_EIO, "cannot read %s", runtime_dir->path);
  }
  int code = CT_OK;
  const struct dirent *entry;
  while (code == CT_OK && (entry = readdir(directory)) != NULL) {
    code = add_id(&list, &n, entry->d_name);
  }
  closedir(directory);
  if (code != CT_OK) {
    ct_runtime_dir_free_ids(list);
    return ct_fail(diag, code, "out of memory for the list of sessions");
  }
  qsort(list, n, sizeof(*list), compare_ids);
  *ids = list;
  *count = n;
  return CT_OK;
}

void
ct_runtime_dir_free_ids(char **ids)
{
  for (size_t i = 0; ids != NULL && ids[i] != NULL; i++) {
    free(ids[i]);
  }
  free(ids);
}
