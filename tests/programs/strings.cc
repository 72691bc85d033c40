// SPDX-License-Identifier: MIT
// Strings behind arguments of the program's own functions: inside of the object, outside of it, in two pages, longer than
// is recorded, where nothing can be read, and objects that are none. Writes how each call is to be shown.
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>
#include <sys/mman.h>

extern "C" {
__attribute__((noinline)) int
take(const std::string &s)
{
  __asm__ volatile("" : : "r"(&s) : "memory");
  return 7;
}

__attribute__((noinline)) int
copy(char *to, const char *from, const std::string *s, const char *fourth)
{
  __asm__ volatile("" : : "r"(to), "r"(from), "r"(s), "r"(fourth) : "memory");
  return 1;
}
}

static void
show(const std::string &s, const char *shown)
{
  printf("take(s=%p%s) = %d\n", (const void *)&s, shown, take(s));
}

int
main()
{
  std::string text = "inside";
  show(text, " \"inside\"");
  text = "fifteen letters";
  show(text, " \"fifteen letters\"");
  text += "!";
  show(text, " \"fifteen letters!\"");
  text.clear();
  show(text, " \"\"");
  text.assign(64, 'x');
  show(text, (" \"" + text + "\"").c_str());
  show(text + "y", (" \"" + text + "\"...").c_str());
  text = std::string("zero\0in it", 10) + " and somewhat more";
  show(text, " \"zero\\0in it and somewhat more\"");
  char *pages = (char *)mmap(NULL, 3 * 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  std::string *across = new (pages + 4096 - 8) std::string("a string that lies in two pages");
  show(*across, " \"a string that lies in two pages\"");
  munmap(pages + 2 * 4096, 4096);
  std::string &cut = *(std::string *)(pages + 2 * 4096 - 8); /* its length is in a page that is not there */
  show(cut, "");
  std::string &nowhere = *(std::string *)(pages + 2 * 4096);
  show(nowhere, "");
  uint64_t fake[4] = {0x1000, 5, 0, 0}; /* it points to nothing */
  show(*(std::string *)fake, "");
  fake[0] = (uint64_t)"a text that is not its own";
  fake[1] = UINT64_MAX / 2;
  show(*(std::string *)fake, " \"a text that is not its own");
  char buffer[8] = "old";
  std::string s = "some words that are too long for the object";
  copy(buffer, "new", &s, "fourth");
  printf("copy(to=%p \"old\", from=%p \"new\", s=%p, fourth=%p) = 1\n", (void *)buffer, (const void *)"new", (void *)&s,
         (const void *)"fourth");
  copy(NULL, (const char *)16, NULL, "fourth");
  printf("copy(to=NULL, from=0x10, s=NULL, fourth=%p \"fourth\") = 1\n", (const void *)"fourth");
  return 0;
}
