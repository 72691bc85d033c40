/* SPDX-License-Identifier: MIT */
/*
 * Texts behind arguments: short, long, none, in two pages, at the end of what can be read, where nothing can be read.
 * Writes how each call is to be shown.
 */
#define _GNU_SOURCE 1
#include <fcntl.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <unistd.h>

#define LONG "/01234567890123456789012345678901234567890123456789012345678901234567890123456789"

static void
try(const char *path, const char *shown)
{
  int fd = open(path, O_RDONLY);
  printf("open(path=%p%s, flags=O_RDONLY) = %d\n", (const void *)path, shown, fd);
}

int
main(int argc, char **argv)
{
  long page = sysconf(_SC_PAGESIZE);
  char *pages = mmap(NULL, 3 * (size_t)page, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  try("/no\n\"where\"", " \"/no\\n\\\"where\\\"\"");
  try("", " \"\"");
  char cut[80] = " \"";
  strncat(cut, LONG, 64);
  strcat(cut, "\"...");
  try(LONG, cut);
  try(strcpy(pages + page - 5, "/across"), " \"/across\"");
  munmap(pages + 2 * page, (size_t)page);
  try(strcpy(pages + 2 * page - 5, "/end"), " \"/end\"");
  char *unended = memset(pages + 2 * page - 3, '/', 3);
  try(unended, " \"///\"...");
  try(pages + 2 * page, "");
  rename("/here/is", "/no/such");
  printf("rename(oldpath=%p \"/here/is\", newpath=%p \"/no/such\") = -1 ENOENT\n", "/here/is", "/no/such");
  rename(pages + 2 * page, "/no/such"); /* the second can be read although the first cannot */
  printf("rename(oldpath=%p, newpath=%p \"/no/such\") = -1 EFAULT\n", (void *)(pages + 2 * page), "/no/such");
  fflush(stdout);
  if (argc > 1 && strcmp(argv[1], "filter") == 0) {
    struct sock_filter allow = {BPF_RET | BPF_K, 0, 0, SECCOMP_RET_ALLOW};
    struct sock_fprog program = {1, &allow};
    prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0);
    prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program);
    try("/filtered", "");
  }
  if (argc > 1 && strcmp(argv[1], "crash") == 0) {
    setenv("NAME", (const char *)16, 1);
  }
  return 0;
}
