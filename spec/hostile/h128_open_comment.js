return 1 /* and
