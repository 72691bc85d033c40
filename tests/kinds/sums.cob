      *> SPDX-License-Identifier: MIT
       IDENTIFICATION DIVISION.
       PROGRAM-ID. SUMS.
       DATA DIVISION.
       WORKING-STORAGE SECTION.
       01 N PIC 9(9) VALUE 0.
       01 I PIC 9(5).
       PROCEDURE DIVISION.
           PERFORM VARYING I FROM 1 BY 1 UNTIL I > 5000
             COMPUTE N = N + FUNCTION MOD (I, 7) * 2
           END-PERFORM
           DISPLAY "N=" N
           MOVE 3 TO RETURN-CODE
           STOP RUN.
