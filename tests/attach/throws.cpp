// SPDX-License-Identifier: MIT
// Loaded by hosts.c: an exception thrown and caught here, past frames of the program.
extern "C" int
guard(int (*function)(int), int argument)
{
  try {
    return function(argument);
  } catch (int value) {
    return value;
  }
}

extern "C" void
hurl(int value)
{
  throw value;
}
