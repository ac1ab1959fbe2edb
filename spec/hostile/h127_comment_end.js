return 1 // and no more
