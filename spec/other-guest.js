// What `make test-faults` puts into the prelude of a second guest image, so that it is another in id, layout and
// behaviour: cells of `testkit` `upgrade` look for it. CELLMATE_GUEST_ADDITION names this file to the build.
global.edition = 2;
