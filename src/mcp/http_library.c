/* SPDX-License-Identifier: MIT */
/* libmicrohttpd, loaded when HTTP is asked for: linked in, it and what it needs would take 8 ms of each command. */
#include "mcp/http.h"

#include <dlfcn.h>
#include <stdio.h>
#include <string.h>

#define LIBRARY "libmicrohttpd.so.12"

struct http_library http_library;

static bool
find(void *library, const char *name, void *place)
{
  void *found = dlsym(library, name);
  memcpy(place, &found, sizeof(found));
  return found != NULL;
}

bool
http_library_load(struct ct_diag *diag)
{
  void *library = dlopen(LIBRARY, RTLD_NOW | RTLD_LOCAL);
  bool good = library != NULL;
#define HTTP_FIND(name) good = good && find(library, "MHD_" #name, &http_library.name);
  HTTP_FUNCTIONS(HTTP_FIND)
  if (!good) {
    snprintf(diag->text, sizeof(diag->text), "--http needs %s (Debian: libmicrohttpd12): %.200s", LIBRARY,
             library == NULL ? dlerror() : "a function is missing in it");
  }
  return good;
}
