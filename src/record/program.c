/* SPDX-License-Identifier: MIT */
/* See program.h. */
#include "record/program.h"

#include "base/file.h"

#include <elf.h>
#include <errno.h>
#include <limits.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/xattr.h>
#include <unistd.h>

static int
check_file(const char *path, int *exec_errno, struct ct_diag *diag)
{
  struct stat file;
  if (stat(path, &file) != 0) {
    *exec_errno = errno;
    return ct_fail(diag, ct_err_from_errno(errno), "%s: %s", path, strerror(errno));
  }
  if (S_ISDIR(file.st_mode)) {
    *exec_errno = EACCES;
    return ct_fail(diag, CT_EACCES, "%s is a directory", path);
  }
  if (!S_ISREG(file.st_mode)) {
    *exec_errno = EACCES;
    return ct_fail(diag, CT_EACCES, "%s is no regular file", path);
  }
  if (access(path, X_OK) != 0) {
    *exec_errno = EACCES;
    return ct_fail(diag, CT_EACCES, "%s is not executable", path);
  }
  if (ct_program_is_privileged(path)) {
    return ct_fail(diag, CT_EUNSUPPORTED,
                   "%s is setuid, setgid or has capabilities, which it would lose when recorded; run as root", path);
  }
  int fd = ct_open_regular(path);
  if (fd < 0) {
    return ct_fail(diag, ct_err_from_errno(errno), "cannot read %s: %s; its functions are not known without", path,
                   strerror(errno));
  }
  unsigned char ident[EI_NIDENT + 4] = {0};
  ssize_t got = read(fd, ident, sizeof(ident));
  close(fd);
  if (got == (ssize_t)sizeof(ident) && memcmp(ident, ELFMAG, SELFMAG) == 0 &&
      (ident[EI_CLASS] != ELFCLASS64 || ident[18] != EM_X86_64)) {
    return ct_fail(diag, CT_EUNSUPPORTED, "%s is not a 64-bit x86 program; only these can be recorded", path);
  }
  return 0;
}

int
ct_program_check(const char *name, int *exec_errno, struct ct_diag *diag)
{
  *exec_errno = 0;
  if (strchr(name, '/') != NULL) {
    return check_file(name, exec_errno, diag);
  }
  const char *list = getenv("PATH");
  char path[PATH_MAX];
  bool denied = false;
  list = list != NULL ? list : "/bin:/usr/bin";
  while (name[0] != '\0') {
    size_t length = strcspn(list, ":");
    int fits = snprintf(path, sizeof(path), "%.*s%s%s", (int)length, list, length != 0 ? "/" : "", name);
    struct stat file;
    if (fits < (int)sizeof(path) && stat(path, &file) == 0) {
      if (S_ISREG(file.st_mode) && access(path, X_OK) == 0) {
        return check_file(path, exec_errno, diag);
      }
      denied = true;
    }
    if (list[length] == '\0') {
      break;
    }
    list += length + 1;
  }
  *exec_errno = denied ? EACCES : ENOENT;
  return denied ? ct_fail(diag, CT_EACCES, "%s in PATH is not executable", name)
         : access(name, X_OK) == 0 && name[0] != '\0'
             ? ct_fail(diag, CT_ENOENT, "%s: not found in PATH; here: ./%s", name, name)
             : ct_fail(diag, CT_ENOENT, "%s: not found in PATH", name);
}

int
ct_program_is_privileged(const char *path)
{
  struct stat file;
  if (geteuid() == 0 || stat(path, &file) != 0) {
    return 0; /* root's tracing takes no privilege away */
  }
  bool changes_user = (file.st_mode & S_ISUID) != 0 && file.st_uid != geteuid();
  bool changes_group = (file.st_mode & (S_ISGID | S_IXGRP)) == (S_ISGID | S_IXGRP) && file.st_gid != getegid();
  bool has_capabilities = getxattr(path, "security.capability", NULL, 0) > 0;
  return changes_user || changes_group || has_capabilities;
}
