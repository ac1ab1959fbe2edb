#!/usr/bin/env node
return 1
