{ SPDX-License-Identifier: MIT }
{ Exceptions, those made of faults too, and threads; ends with status 7. }
program throws;
{$mode objfpc}
uses cthreads, sysutils, classes;

type
  TWorker = class(TThread)
    result: longint;
    procedure Execute; override;
  end;

function fib(n: longint): longint;
begin
  if n < 2 then fib := n else fib := fib(n - 1) + fib(n - 2);
end;

procedure TWorker.Execute;
begin
  result := fib(15);
end;

procedure thrower(n: longint);
begin
  if n = 0 then raise Exception.Create('thrown');
  thrower(n - 1);
end;

var
  i, caught, zero: longint;
  workers: array[0..3] of TWorker;
  nowhere: ^longint;
begin
  caught := 0;
  for i := 1 to 500 do
    try thrower(10); except on e: Exception do inc(caught); end;
  for i := 0 to 3 do workers[i] := TWorker.Create(false);
  for i := 0 to 3 do begin workers[i].WaitFor; caught := caught + workers[i].result; end;
  zero := 0;
  try caught := caught div zero; except on e: EDivByZero do inc(caught, 1); end;
  nowhere := nil;
  try nowhere^ := 1; except on e: EAccessViolation do inc(caught, 10); end;
  writeln(caught, ' ', fib(20), ' ', format('%.2f', [3.5]));
  halt(7);
end.
