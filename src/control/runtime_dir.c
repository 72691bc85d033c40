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
enum { BACKLOG = 256, TRIES = 8, CONNECT_MS = 3000, NAMES = 16 /* in /tmp that are tried */ };

static bool
is_ours(int fd)
{
  struct stat info;
  return fstat(fd, &info) == 0 && S_ISDIR(info.st_mode) && info.st_uid == geteuid();
}

static bool
is_private(int fd)
{
  struct stat info;
  return is_ours(fd) && fstat(fd, &info) == 0 && (info.st_mode & 022) == 0;
}

/* Opens the directory that is to hold ours, when it may. */
static int
open_runtime(char *path, size_t size)
{
  const char *runtime = getenv("XDG_RUNTIME_DIR");
  if (runtime == NULL || runtime[0] != '/' || strlen(runtime) + sizeof("/contrail") > size) {
    return -1;
  }
  int fd = open(runtime, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  if (fd >= 0 && !is_ours(fd)) { /* of another user, from whom we got our environment */
    close(fd);
    return -1;
  }
  snprintf(path, size, "%s/contrail", runtime);
  return fd;
}

/* The directory of that name, made when it is not there; -1 and errno. EPERM: it is not ours alone. */
static int
open_own(int above, const char *name, bool make)
{
  int fd = openat(above, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
  if (fd < 0 && errno == ENOENT && make && (mkdirat(above, name, 0700) == 0 || errno == EEXIST)) {
    fd = openat(above, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
  }
  if (fd < 0) {
    errno = errno == ENOTDIR || errno == ELOOP ? EPERM : errno;
  } else if (!is_private(fd)) {
    close(fd);
    fd = -1;
    errno = EPERM;
  }
  return fd;
}

/*
 * In /tmp anybody may have taken the name before us. Then the next one is taken: those who look for sessions try them
 * in the same order, and find a directory of ours after whatever is in the way.
 */
static int
open_in_tmp(struct ct_runtime_dir *runtime_dir, bool make)
{
  int above = open("/tmp", O_RDONLY | O_DIRECTORY | O_CLOEXEC), fd = -1;
  for (int n = 0; n < NAMES && above >= 0 && fd < 0; n++) {
    char name[64];
    int length = snprintf(name, sizeof(name), "contrail-%lu", (unsigned long)geteuid());
    if (n != 0) {
      snprintf(name + length, sizeof(name) - (size_t)length, ".%d", n);
    }
    snprintf(runtime_dir->path, sizeof(runtime_dir->path), "/tmp/%s", name);
    fd = open_own(above, name, make);
    if (fd < 0 && errno != EPERM && (make || errno != ENOENT)) { /* what was in the way may have gone */
      break;
    }
  }
  int error = errno;
  if (above >= 0) {
    close(above);
  }
  errno = error;
  return fd;
}

int
ct_runtime_dir_open(struct ct_runtime_dir *runtime_dir, bool make, struct ct_diag *diag)
{
  struct stat info;
  runtime_dir->fd = -1;
  int above = open_runtime(runtime_dir->path, sizeof(runtime_dir->path));
  int fd = above >= 0 ? open_own(above, "contrail", make) : open_in_tmp(runtime_dir, make);
  int error = errno;
  if (above >= 0) {
    close(above);
  }
  if (fd < 0 && error == EPERM) {
    return ct_fail(diag, CT_EACCES, "%s belongs to another user, or others may write to it", runtime_dir->path);
  }
  if (fd < 0) {
    return ct_fail(diag, ct_err_from_errno(error), "%s: %s", runtime_dir->path, strerror(error));
  }
  if (make && fstat(fd, &info) == 0 && (info.st_mode & 0777) != 0700) {
    fchmod(fd, 0700); /* the umask may have taken our own rights; what others could read before is no secret */
  }
  runtime_dir->fd = fd;
  return CT_OK;
}

void
ct_runtime_dir_close(struct ct_runtime_dir *runtime_dir)
{
  if (runtime_dir->fd >= 0) {
    close(runtime_dir->fd);
  }
  runtime_dir->fd = -1;
}

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
