/* SPDX-License-Identifier: MIT */
/* Names out of symbol tables. What comes back is a string of bounded length, or NULL. */
#include "fuzz.h"

#include "base/demangle.h"

int
LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
  char *name = malloc(size + 1);
  CHECK(name != NULL);
  memcpy(name, data, size);
  name[size] = 0;
  char *text = ct_demangle(name);
  CHECK(text == NULL || (strlen(text) != 0 && strlen(text) < (1 << 16) + size));
  free(text);
  free(name);
  return 0;
}
