#!/bin/bash
# cost.sh PROGRAM [ARGUMENT...]: runs a test, and says at its end what it and all that it waited for had of a processor.
# summary.py reads that.
TIMEFORMAT='cost: %U + %S s of a processor'
time "$@"
