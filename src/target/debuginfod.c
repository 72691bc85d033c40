/* SPDX-License-Identifier: MIT */
/*
 * Debug files from debuginfod servers, by elfutils' client library, which is loaded when it is asked for: contrail
 * works without it. The library keeps what it has fetched in a folder of the user's; there the file is found as any
 * other separate debug file is (debugfile.c), by its build-id, also later and without a server.
 */
#include "target/debuginfod.h"

#include "base/clock.h"
#include "base/error.h"
#include "target/elf.h"

#include <dlfcn.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define FETCH_NS 20000000000ull /* for one file; the program may be waiting */

struct debuginfod_client; /* elfutils' own */

struct library {
  struct debuginfod_client *(*begin)(void);
  void (*end)(struct debuginfod_client *client);
  int (*find)(struct debuginfod_client *client, const unsigned char *build_id, int length, char **path);
  void (*set_progress)(struct debuginfod_client *client, int (*)(struct debuginfod_client *, long, long));
};

static _Thread_local uint64_t deadline_ns;

/* Not 0: the library is to give up. */
static int
progress(struct debuginfod_client *client, long done, long all)
{
  (void)client;
  (void)done;
  (void)all;
  return ct_now_ns() > deadline_ns;
}

static bool
load(struct library *library)
{
  void *handle = dlopen("libdebuginfod.so.1", RTLD_NOW | RTLD_LOCAL); /* stays loaded */
  if (handle == NULL) {
    return false;
  }
  *(void **)&library->begin = dlsym(handle, "debuginfod_begin");
  *(void **)&library->end = dlsym(handle, "debuginfod_end");
  *(void **)&library->find = dlsym(handle, "debuginfod_find_debuginfo");
  *(void **)&library->set_progress = dlsym(handle, "debuginfod_set_progressfn");
  return library->begin != NULL && library->end != NULL && library->find != NULL && library->set_progress != NULL;
}

int
ct_debuginfod_check(struct ct_diag *diag)
{
  struct library library;
  const char *urls = getenv("DEBUGINFOD_URLS");
  if (urls == NULL || urls[0] == '\0') {
    return ct_fail(diag, CT_EINVAL, "debuginfod: DEBUGINFOD_URLS names no server");
  }
  return load(&library) ? 0 : ct_fail(diag, CT_EUNSUPPORTED, "debuginfod: there is no libdebuginfod.so.1 (elfutils)");
}

static bool
has_debug_file(const struct ct_elf *elf)
{
  struct ct_file_stamp stamps[CT_DEBUG_CANDIDATES];
  ct_elf_debug_stamps(elf, stamps);
  for (size_t i = 0; i < CT_DEBUG_CANDIDATES; i++) {
    if (stamps[i].bytes != 0) {
      return true;
    }
  }
  return false;
}

int
ct_debuginfod_fetch(int fd, const char *path)
{
  static const struct ct_elf_options layout = {.layout_only = true};
  struct library library;
  struct ct_elf *elf = NULL;
  int failure = 0;
  if (ct_elf_open_fd(fd, path, &layout, &elf, NULL) != 0) {
    return 0;
  }
  const char *build_id = ct_elf_build_id(elf);
  struct debuginfod_client *client = NULL;
  if (build_id[0] != '\0' && !ct_elf_has_debug_info(elf) && !has_debug_file(elf) && load(&library) &&
      (client = library.begin()) != NULL) {
    char *fetched = NULL;
    deadline_ns = ct_now_ns() + FETCH_NS;
    library.set_progress(client, progress);
    int file = library.find(client, (const unsigned char *)build_id, 0, &fetched);
    if (file >= 0) {
      close(file);
    } else if (file != -ENOENT) { /* ENOENT: they have none */
      failure = -file;
    }
    free(fetched);
    library.end(client);
  }
  ct_elf_close(elf);
  return failure;
}
