-- SPDX-License-Identifier: MIT
-- Errors through C frames, coroutines, collections; ends with status 3.
local function fib(n) if n < 2 then return n end return fib(n - 1) + fib(n - 2) end
local kept = {}
for i = 1, 20000 do kept[i % 100] = { i, tostring(i), fib(5) } end
local ok, message = pcall(function() error("thrown", 0) end)
local sum = 0
for i = 1, 2000 do
  local step = coroutine.wrap(function(a) for _ = 1, 10 do a = a + coroutine.yield(a) end return a end)
  sum = sum + step(i)
  for k = 1, 10 do sum = sum + step(k) end
  if i % 100 == 0 then collectgarbage() end
end
local failed = 0
for _ = 1, 1000 do if not pcall(string.rep) then failed = failed + 1 end end
local sorted = pcall(table.sort, { 3, 1, 2 }, function() error("in a callback of C") end)
print(ok, message, sum, fib(20), failed, sorted, (string.gsub(string.rep("x", 10), "x", "y")))
os.exit(3)
