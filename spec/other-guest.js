// `make test-faults` adds this file to the prelude of a second guest image, so that the image differs in id, layout and
// behaviour; the `upgrade` tests of `testkit` check for it. CELLMATE_GUEST_ADDITION tells the build where the file is.
global.edition = 2;
