--  SPDX-License-Identifier: MIT
--  Exceptions, those made of faults too, tasks, storage checks; ends with status 8.
with Ada.Command_Line;
with Ada.Text_IO; use Ada.Text_IO;

procedure Throws is
   Boom   : exception;
   Caught : Integer := 0;
   Zero   : Integer := 0;

   function Fib (N : Integer) return Integer is
     (if N < 2 then N else Fib (N - 1) + Fib (N - 2));

   procedure Thrower (N : Integer) is
   begin
      if N = 0 then
         raise Boom with "thrown";
      end if;
      Thrower (N - 1);
   end Thrower;

   function Deep (N : Integer) return Integer is
   begin
      return (if N = 0 then 0 else 1 + Deep (N - 1));
   end Deep;

   task type Worker is
      entry Go (N : in out Integer);
   end Worker;

   task body Worker is
   begin
      accept Go (N : in out Integer) do
         N := Fib (N);
      end Go;
   end Worker;

begin
   for I in 1 .. 500 loop
      begin
         Thrower (10);
      exception
         when Boom => Caught := Caught + 1;
      end;
   end loop;
   declare
      Workers : array (1 .. 20) of Worker;
      X       : Integer;
   begin
      for I in Workers'Range loop
         X := 10;
         Workers (I).Go (X);
         Caught := Caught + X;
      end loop;
   end;
   begin
      Caught := Caught / Zero;
   exception
      when Constraint_Error => Caught := Caught + 1;
   end;
   begin
      Zero := Deep (100_000_000);
   exception
      when Storage_Error => Caught := Caught + 100;
   end;
   declare
      type Pointer is access Integer;
      Nowhere : Pointer := null;
   begin
      Zero := Nowhere.all;
   exception
      when Constraint_Error => Caught := Caught + 1000;
   end;
   Put_Line (Integer'Image (Caught) & Integer'Image (Fib (15)));
   Ada.Command_Line.Set_Exit_Status (8);
end Throws;
